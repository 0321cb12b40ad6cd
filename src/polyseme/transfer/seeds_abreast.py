"""How many seeds take their steps in turn: where steps are recorded, as many as half of a GPU's free memory holds."""

from __future__ import annotations

import torch

from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import Prepared
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.train_step import bucket, can_record

MOST_ABREAST = 8
WEIGHT_COPIES = 6
"""Copies of the weights that one seed holds: with gradients, two moments, the best so far and those of its graphs."""
STATES_PER_LAYER = 40
"""States of a row that a layer holds for the backward pass, at most."""


def seeds_abreast(model: TaskModel, train: Prepared, settings: FinetuneSettings) -> int:
    """Seeds of such a model that fit side by side; one where steps are not recorded."""
    if not can_record(model) or settings.compile is False:
        return 1
    weights = sum(each.numel() * each.element_size() for each in model.learned().values())
    pieces = int(settings.batch_size or 32) * bucket(int(train.source.lengths.max(initial=1)))
    widths = model.bundle.config.widths if model.bundle is not None else ()
    states = STATES_PER_LAYER * pieces * sum(widths) * 4
    free, _ = torch.cuda.mem_get_info(model.device)
    return max(1, min(MOST_ABREAST, int(free / 2 / (WEIGHT_COPIES * weights + states))))

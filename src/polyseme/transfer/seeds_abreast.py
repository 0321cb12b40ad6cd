"""Several seeds take their steps in turn, since a small model fills no GPU.

Steps that were recorded are launched without waiting, each seed on a stream of its own and with its own random state,
and each gives to the last bit what it gives alone.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

import torch

from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import PreparedItems
from polyseme.transfer.task_model import TaskModel
from polyseme.transfer.train_step import bucket, can_record

Result = TypeVar("Result")
Run: TypeAlias = Generator[None, None, Result]
"""Yields after each step and returns its result."""

MOST_ABREAST = 8
WEIGHT_COPIES = 6
"""Copies of the weights that one seed holds: with gradients, two moments, the best so far and those of its graphs."""
STATES_PER_LAYER = 40
"""States of a row that a layer holds for the backward pass, at most."""


def seeds_abreast(model: TaskModel, train: PreparedItems, settings: FinetuneSettings) -> int:
    """Seeds of such a model that half of a GPU's free memory holds; one where steps are not recorded."""
    if not can_record(model) or settings.compile is False:
        return 1
    weights = sum(each.numel() * each.element_size() for each in model.learned().values())
    pieces = int(settings.batch_size or 32) * bucket(int(train.source.lengths.max(initial=1)))
    widths = model.bundle.config.widths if model.bundle is not None else ()
    states = STATES_PER_LAYER * pieces * sum(widths) * 4
    free, _ = torch.cuda.mem_get_info(model.device)
    return max(1, min(MOST_ABREAST, int(free / 2 / (WEIGHT_COPIES * weights + states))))


class Lane:
    """Where one run goes at a time: a stream of the device and a random state of its own; as it is, on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
            self.stream.wait_stream(torch.cuda.current_stream(device))
            self.random_state = _generator_of(device).clone_state()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """What is launched and drawn in here is of this lane."""
        if self.stream is None:
            yield
            return
        common = _generator_of(self.device)
        before = common.graphsafe_get_state()
        common.graphsafe_set_state(self.random_state)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            self.random_state = common.graphsafe_get_state()
            common.graphsafe_set_state(before)

    def close(self) -> None:
        """Make later work wait for what was launched here."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


def take_turns(begin: Sequence[Callable[[], Run[Result]]], *, abreast: int, device: torch.device) -> list[Result]:
    """The results of all runs, in their order; `abreast` of them run at once."""
    results: dict[int, Result] = {}
    waiting = deque(enumerate(begin))
    alone = abreast == 1 or len(begin) == 1
    lanes = [Lane(torch.device("cpu"))] if alone else [Lane(device) for _ in range(min(abreast, len(begin)))]
    running: list[tuple[Lane, int, Run[Result]]] = []
    free = list(lanes)
    while waiting or running:
        while waiting and free:
            number, start = waiting.popleft()
            running.append((free.pop(), number, start()))
        for one in list(running):
            lane, number, run = one
            try:
                with lane.taken():
                    next(run)
            except StopIteration as end:
                results[number] = end.value
                running.remove(one)
                free.append(lane)
    for lane in lanes:
        lane.close()
    return [results[number] for number in range(len(begin))]


def _generator_of(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index or 0]

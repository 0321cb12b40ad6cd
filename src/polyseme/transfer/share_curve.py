"""A learning curve: a task is learned from samples of its training items, and from all, by one model or from scratch.

Every run sees its sample alone: vocabularies, baselines and the settings that follow from the number of items come from
it. Dev and test are always whole.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import torch

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import fresh_bundle
from polyseme.errors import OptionError
from polyseme.files.atomic import whole_file
from polyseme.json_reading import damage_reported, load_json
from polyseme.tasks.items import TaskData
from polyseme.tasks.train_samples import TrainSamples, TrainShare
from polyseme.training.energy_ledger import Ledger
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FEATURES, FinetuneResult, FinetuneRun, finetune_task
from polyseme.transfer.share_points import PRETRAINED, SCRATCH, SharePoint
from polyseme.transfer.task_folder import REPORT

_logger = logging.getLogger(__name__)
MIN_STEPS = 200
"""Steps in which few items are learned at least, unless the user says how many epochs: four epochs of twenty items
would end before anything is learned (Mosbach, Andriushchenko and Klakow 2021)."""
SCRATCH_RATES = {True: 1e-3, False: 3e-4}
"""Learning rates of random weights, unless the user sets any: of recurrent encoders, and of others."""


@dataclass(frozen=True)
class _Run:
    """One call of `finetune_task`."""

    start: str
    share: str
    n_items: int
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of its folder."""
        seeds = "-".join(map(str, self.seeds))
        return f"{self.start.replace(' ', '-')}-{self.n_items}-seeds-{seeds}"


def finetune_shares(
    data: TaskData,
    bundle: Bundle | None,
    settings: FinetuneSettings,
    shares: Sequence[TrainShare],
    run: FinetuneRun | None = None,
    *,
    scratch: bool = False,
) -> FinetuneResult:
    """`finetune_task` for every share and seed; the result is that of the largest share, with the curve in its report.

    With `scratch` the same architecture is trained from random weights, too.
    """
    run = FinetuneRun() if run is None else run
    if scratch:
        check_scratch(bundle, settings)
    train = data.splits["train"]
    samples = TrainSamples.of(shares, train, settings.seeds, data.name)
    reports: dict[_Run, FinetuneReport] = {}
    best: FinetuneResult | None = None
    with ExitStack() as stack:
        cache = run.cache
        if cache is None:
            own = run.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polyseme-")))
            cache = own / FEATURES
        runs = list(_runs(samples, settings.seeds, len(train), scratch=scratch))
        _report_earlier(runs, run.folder)
        for each in runs:
            is_largest = each.start == PRETRAINED and each.n_items == max(samples.sizes.values())
            place = None if run.folder is None else run.folder / each.name
            earlier = None if is_largest or place is None else _earlier(place)
            if earlier is not None:
                reports[each] = earlier
                continue
            sample = samples.items(train, each.share, each.seeds[0])
            done = finetune_task(
                replace(data, splits={**data.splits, "train": sample}),
                _start_of(bundle, each),
                replace(_settings(settings, bundle, each.start), seeds=each.seeds),
                replace(
                    run,
                    folder=place,
                    cache=cache,
                    min_steps=MIN_STEPS,
                    part=f"{each.share}, {each.start}",
                ),
            )
            reports[each] = done.report
            if is_largest:
                best = done if best is None or _rank(done) > _rank(best) else best
            elif place is not None:
                _keep(place, done.report)
    assert best is not None  # the runs of the largest share are always made
    return FinetuneResult(best.model, _join_reports(reports, best, samples), best.cut)


def check_scratch(bundle: Bundle | None, settings: FinetuneSettings) -> None:
    """Refuse to train from scratch what has no weights, or does not learn."""
    if bundle is None:
        raise OptionError("Without a model there is nothing but training from scratch. Leave scratch out.")
    if settings.frozen:
        raise OptionError("A frozen encoder with random weights would never learn. Leave out scratch, or frozen.")


def _settings(settings: FinetuneSettings, bundle: Bundle | None, start: str) -> FinetuneSettings:
    """From scratch without what protects pretrained weights: all layers learn from the beginning, as new ones do."""
    if start == PRETRAINED or bundle is None:
        return settings
    rate = settings.head_learning_rate or settings.learning_rate or SCRATCH_RATES[bundle.config.memory == "state"]
    return replace(settings, gradual_unfreezing=False, layer_decay=1.0, reinit_layers=0, learning_rate=rate)


def _runs(samples: TrainSamples, seeds: Sequence[int], n_train: int, *, scratch: bool) -> Iterator[_Run]:
    """All runs; those of all items and one model go together, the others have a sample or weights for each seed."""
    for share, n_items in samples.sizes.items():
        for start in (PRETRAINED, SCRATCH) if scratch else (PRETRAINED,):
            together = n_items == n_train and start == PRETRAINED
            for group in [tuple(seeds)] if together else [(seed,) for seed in seeds]:
                yield _Run(start, share, n_items, group)


def _start_of(bundle: Bundle | None, run: _Run) -> Bundle | None:
    if bundle is None or run.start == PRETRAINED:
        return bundle
    torch.manual_seed(run.seeds[0])
    return fresh_bundle(bundle)


def _rank(done: FinetuneResult) -> tuple[bool, float]:
    best = done.report.best
    return best.learned, best.dev[done.report.metrics[0]]


def _report_earlier(runs: Sequence[_Run], folder: Path | None) -> None:
    """Log how many runs an earlier session had finished."""
    n_earlier = 0 if folder is None else sum((folder / each.name / REPORT).is_file() for each in runs)
    if n_earlier:
        _logger.info(f"Resumed: an earlier run had finished {n_earlier} of the curve's {len(runs)} runs.")


def _earlier(place: Path) -> FinetuneReport | None:
    """What an earlier session made of a run."""
    file = place / REPORT
    if not file.is_file():
        return None
    with damage_reported(file, "Remove its folder, and run the command again."):
        return FinetuneReport.from_json(load_json(file, kind=dict))


def _keep(place: Path, report: FinetuneReport) -> None:
    """Keep the figures of a run; its weights are no longer needed."""
    with whole_file(place / REPORT, force=True) as file:
        file.write_text(json.dumps(report.to_json()), encoding="utf-8")
    for each in place.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


def _join_reports(reports: dict[_Run, FinetuneReport], best: FinetuneResult, samples: TrainSamples) -> FinetuneReport:
    """The report of the largest share, with all shares as its curve, and what all of them cost."""
    points = []
    for start, share in dict.fromkeys((run.start, run.share) for run in reports):
        of_point = [report for run, report in reports.items() if (run.start, run.share) == (start, share)]
        seeds = tuple(figures for report in of_point for figures in report.seeds)
        n_items = samples.sizes[share]
        points.append(SharePoint(share=share, n_items=n_items, start=start, seeds=seeds, settings=of_point[0].settings))
    largest = max(samples.sizes.values())
    seeds = next(each.seeds for each in points if (each.start, each.n_items) == (PRETRAINED, largest))
    return replace(
        best.report,
        seeds=seeds,
        settings={**best.report.settings, "seeds": [each.seed for each in seeds]},
        curve=tuple(points),
        ledger=reduce(Ledger.add, (report.ledger for report in reports.values())).replace(n_sessions=1),
    )

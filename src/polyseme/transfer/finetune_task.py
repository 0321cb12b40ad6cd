"""A task from its data to its report: settings filled in, every seed trained, the best on dev kept."""

from __future__ import annotations

import logging
import platform
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyseme import __version__
from polyseme.bundle import Bundle
from polyseme.errors import PolysemeWarning
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.word_inputs import WordInputsConfig, learn_word_inputs
from polyseme.metrics.task_metrics import CORRELATIONS, undefined
from polyseme.tasks.encoder_rows import RowMaker, document_of
from polyseme.tasks.items import Item, TaskData, labels_in
from polyseme.tasks.kinds import KINDS, baseline_scores
from polyseme.tasks.predictions import Judgment
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.energy_meter import Meter
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.default_settings import fill_settings
from polyseme.transfer.finetune_report import FinetuneReport, worst_errors
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import PreparedItems, judge, prepare, standardize
from polyseme.transfer.seed_results import SeedFigures, SeedResult, SeedResults
from polyseme.transfer.seeds_abreast import seeds_abreast, take_turns
from polyseme.transfer.split_figures import confusion_of, gold_and_answers, split_figures
from polyseme.transfer.stacked_inputs import CHARACTERS, InputModel, load_inputs
from polyseme.transfer.task_model import TaskConfig, TaskModel, check_language_model, pooler_of
from polyseme.transfer.task_teaching import TaskTeaching
from polyseme.transfer.text_labels import answers_of, numbers_of
from polyseme.transfer.train_seed import SeedTraining, StepReport, TrainedSeed, named_part, put, reinit_top
from polyseme.transfer.train_step import autocast
from polyseme.transfer.vector_store import Store
from polyseme.types import Progress
from polyseme.verb_options.task_options import CHECKPOINT_SECONDS

FEATURES = "features"
_logger = logging.getLogger(__name__)


@dataclass
class FinetuneResult:
    """The result of `finetune_task`: the model that is kept, and the report."""

    model: TaskModel
    report: FinetuneReport
    cut: tuple[str, ...] = ()
    """How many texts were not read as they stand, one line each; the report's notes have them too."""


@dataclass(frozen=True, kw_only=True)
class FinetuneRun:
    """What a fine-tuning needs besides its data, its model and its settings."""

    model_name: str = ""
    device: str = "cpu"
    folder: Path | None = None
    """Where unfinished work is kept and resumed from; None: nothing is kept."""
    cache: Path | None = None
    """Folder of frozen vectors; None: one in `folder`, if there is one."""
    rates: Rates | None = None
    abreast: int | None = None
    """How many seeds take their steps in turn; None: as many as fit on a GPU, and one on a CPU."""
    stacked: Sequence[InputModel] | None = None
    """The models among the inputs, where they are loaded already."""
    teaching: TaskTeaching | None = None
    """If given, the model is a student, which reads as its teacher does and learns from it."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    min_steps: int = 0
    """How many steps there are at least where the settings have no epochs; dev is then scored about ten times, and not
    after epochs of a step or two."""
    notes: Sequence[str] = ()
    """Further notes of the report."""
    part: str = ""
    """Which of several fine-tunings this is, for reports and messages."""
    on_report: Callable[[StepReport], None] | None = None
    progress: Progress | None = None


def finetune_task(
    data: TaskData, bundle: Bundle | None, settings: FinetuneSettings, run: FinetuneRun | None = None
) -> FinetuneResult:
    """Train a head over `bundle`, or the whole, for a task whose data has been checked. `bundle` is not changed."""
    work = _Finetuning(data, bundle, settings, FinetuneRun() if run is None else run)
    meter = Meter(work.device, rates=work.run.rates)
    started = time.perf_counter()
    results = take_turns(
        [partial(work.seed, seed) for seed in work.settings.seeds], abreast=work.n_abreast(), device=work.device
    )
    best = max(results, key=work.results.rank)
    model = work.best_model(best)
    dev_judgments = judge(model, work.prepared["dev"], autocast=work.autocast())
    for note in (note for each in results for note in each.figures.notes):
        warnings.warn(note, PolysemeWarning, stacklevel=2)
    ledger = work.ledger(results, time.perf_counter() - started, meter)
    return FinetuneResult(model, work.report(results, best, dev_judgments, ledger), work.cut)


class _Finetuning:
    """What all seeds share."""

    def __init__(self, data: TaskData, bundle: Bundle | None, settings: FinetuneSettings, run: FinetuneRun) -> None:
        if settings.ulmfit:
            check_language_model(bundle)
        self.data = data
        self.bundle = bundle
        self.run = run
        self.on_report = None if run.on_report is None else named_part(run.on_report, run.part)
        self.device = torch.device(run.device)
        if run.teaching is not None:
            run.teaching.teacher.to(self.device)
        self.cache = run.cache or (None if run.folder is None else run.folder / FEATURES)
        train = data.splits["train"]
        self.kind = KINDS[data.kind]
        seen = {label for item in train for label in labels_in(item)}
        has_labels = self.kind.has_labels and not data.regression
        seen |= set(data.labels) if run.teaching is not None else set()
        self.labels = tuple(label for label in data.labels if label in seen) if has_labels else ()
        maker = None
        if bundle is not None and bundle.tokenizer is not None:
            maker = RowMaker(bundle.tokenizer, bundle.config, bundle.config.window or 512)
        starts = maker is not None and maker.starts
        filled = fill_settings(
            settings,
            None if bundle is None else bundle.config,
            kind=data.kind,
            n_train=len(train),
            pooler=bundle is not None and pooler_of(bundle) is not None,
            starts=starts,
            answers=answers_of(bundle, data, starts=starts),
            min_steps=run.min_steps,
        )
        self.min_gap = run.min_steps // 10 if settings.epochs is None else 0
        self.settings = filled.settings
        self.notes = list(filled.notes)
        self.bf16 = settings.dtype == "bf16" or (settings.dtype == "auto" and self.device.type == "cuda")
        self.inputs = self._inputs(train)
        self.stacked = load_inputs(self.settings.inputs) if run.stacked is None else run.stacked
        self.results = SeedResults(self.settings.seeds, run.folder)
        if earlier := self.results.earlier():
            part = f"{run.part}: an" if run.part else "an"
            _logger.info(f"Resumed: {part} earlier run had trained {earlier}.")
        self.standards: dict[str, Tensor] = {}
        self.first = self.new_model(self.settings.seeds[0])
        self.prepared = {
            name: prepare(self.first, items, learning=name == "train", cache=self.cache, progress=run.progress)
            for name, items in data.splits.items()
            if items and any(item.gold is not None for item in items)
        }
        standardize(self.first, self.prepared["train"])
        self.standards = self.first.standards()
        self.cut: tuple[str, ...] = ()
        if self.first.row_maker is not None:
            self.cut = tuple(self.first.row_maker.tally.notes(self.settings.max_pieces))
        for each in self.first.frozen_inputs:
            self.cut += tuple(f"{each.name}: {note}" for note in each.tally.notes(None))
        self.notes += self.cut

    def _inputs(self, train: Sequence[Item]) -> WordInputsConfig | None:
        if CHARACTERS not in (self.settings.inputs or ()):
            return None
        return learn_word_inputs([list(map(str, document_of(item).words)) for item in train])

    def autocast(self) -> Any:
        return autocast(self.device, bf16=self.bf16)

    def new_model(self, seed: int) -> TaskModel:
        """The model that a seed begins with."""
        settings, data = self.settings, self.data
        torch.manual_seed(seed)
        bundle = self.bundle
        if bundle is not None and not settings.frozen:
            bundle = bundle.copied()
        if self.run.teaching is not None and bundle is not None:
            return self.run.teaching.new_student(bundle).to(self.device)
        head: dict[str, Any] = {"labels": self.labels, "regression": data.regression, "multi": data.multi}
        head["reread_inputs"] = settings.reread_inputs
        if settings.head_layers is not None:
            head["n_layers"] = settings.head_layers
        if settings.at != "input":
            head["late_at"] = settings.at
        if settings.dropout is not None:
            head["dropout_rate"] = settings.dropout
        if settings.inner_width is not None:
            head["inner_width"] = settings.inner_width
        head |= self.kind.head_settings(data)
        if settings.head == "text":
            head["numbers"] = numbers_of(data)
        model = build_task_model(
            bundle,
            TaskConfig(
                kind=data.kind,
                frozen=settings.frozen,
                layer=settings.layer or "-1",
                pool=settings.pool or "mean",
                readout=settings.readout or "mean",
                max_pieces=settings.max_pieces or 512,
                stride=settings.stride,
                chunk_length=settings.chunk_length,
                read_last=settings.read_last,
                stack=settings.stack or "encoder",
                prompt=self.kind.prompt(data.name),
            ),
            settings.head or "linear",
            inputs=self.inputs,
            stacked=self.stacked,
            head_settings=head,
        ).to(self.device)
        put(model, self.standards)
        if settings.reinit_layers and bundle is not None:
            torch.manual_seed(seed + 1)
            reinit_top(model, model.fresh_groups(), settings.reinit_layers)
        return model

    # --- one seed -----------------------------------------------------------------------------------------------------

    def n_abreast(self) -> int:
        """How many seeds take their steps in turn."""
        if self.run.abreast is not None:
            return self.run.abreast
        return seeds_abreast(self.first, self.prepared["train"], self.settings)

    def seed(self, seed: int) -> Generator[None, None, SeedResult]:
        """Train one, or take what an earlier session made of it."""
        earlier = self.results.read(seed)
        if earlier is not None:
            return self.results.add(earlier)
        model = self.new_model(seed)
        learned = yield from SeedTraining(
            model=model,
            train=self.prepared["train"],
            score=self.dev_figures,
            settings=self.settings,
            seed=seed,
            n_dev=len(self.prepared["dev"].source.lengths),
            teaching=self.run.teaching,
            bf16=self.bf16,
            min_gap=self.min_gap,
            checkpoints=self.results.checkpoints(seed),
            checkpoint_seconds=self.run.checkpoint_seconds,
            on_report=self.on_report,
        ).run()
        result = self._result(model, learned)
        self.results.keep(seed, result)
        return self.results.add(result)

    def dev_figures(self, model: TaskModel) -> dict[str, float]:
        return split_figures(self.data, "dev", judge(model, self.prepared["dev"], autocast=self.autocast()))

    def _undefined_notes(self, model: TaskModel, split: str, figures: Mapping[str, float]) -> list[str]:
        """Notes on figures that are not defined, which may be those that are 0."""
        doubtful = [name for name in figures if name in CORRELATIONS and figures[name] == 0]
        if not doubtful:
            return []
        judgments = judge(model, self.prepared[split], autocast=self.autocast())
        return [f"{split}: {note}" for note in undefined(doubtful, *gold_and_answers(self.data, split, judgments))]

    def _result(self, model: TaskModel, run: TrainedSeed) -> SeedResult:
        dev = run.dev
        calibrated = self.kind.calibrated(model.head.config, self.data.splits["dev"], partial(self._judge_dev, model))
        if calibrated is not None:
            model.head.config = calibrated
            dev = self.dev_figures(model)
        others = {
            name: split_figures(self.data, name, judge(model, prepared, autocast=self.autocast()))
            for name, prepared in self.prepared.items()
            if name not in ("train", "dev")
        }
        first = self.data.metrics[0]
        notes = [
            f"Seed {run.seed}, {note}"
            for split, measured in {"dev": dev, **others}.items()
            for note in self._undefined_notes(model, split, measured)
        ]
        learned = not run.diverged and dev[first] > self.baseline[first]
        figures = SeedFigures(
            seed=run.seed,
            dev=dev,
            others=others,
            best_step=run.best_step,
            n_steps=run.n_steps,
            n_taken=run.n_taken,
            curve=run.curve,
            learned=learned,
            diverged=run.diverged,
            seconds=run.seconds,
            mix=model.shares(),
            notes=notes,
        )
        weights = {name: each.detach() for name, each in model.state().items()}
        return SeedResult(figures, dev[first], weights, model.head.config.to_json(), run.seconds_before)

    @property
    def _mode(self) -> str:
        if self.run.teaching is not None:
            return "distilled"
        return "frozen" if self.settings.frozen or self.bundle is None else "tuned"

    @cached_property
    def baseline(self) -> dict[str, float]:
        return baseline_scores(self.data, "dev")

    def _judge_dev(self, model: TaskModel, config: HeadConfig) -> list[Judgment]:
        """Dev as the model judges it with this config of its head."""
        model.head.config = config
        return judge(model, self.prepared["dev"], autocast=self.autocast())

    def best_model(self, best: SeedResult) -> TaskModel:
        """The model with the weights of the best seed."""
        model = self.new_model(best.figures.seed)
        if best.weights is None:
            raise RuntimeError("The weights of the best seed are gone.")
        put(model, {name: each.to(self.device) for name, each in best.weights.items()})
        model.head.config = type(model.head.config).from_json(best.head)
        return model.eval()

    # --- the report ---------------------------------------------------------------------------------------------------

    def ledger(self, results: Sequence[SeedResult], seconds: float, meter: Meter) -> Ledger:
        """What it all cost, in earlier sessions, too; their energy is estimated by this one's.

        Training reads each row forwards and backwards. Frozen vectors are computed once, or were in the cache.
        """
        train, settings = self.prepared["train"], self.settings
        steps = sum(each.figures.n_taken for each in results)
        before = sum(each.seconds_before for each in results)
        joules = meter.stop()
        an_epoch = max(1, -(-len(train.source.units) // int(settings.batch_size or 32)))
        pieces = flops = 0.0
        if self.bundle is not None:
            forward = self.first.forward_flops(train.row_lengths, learning=True)
            if settings.frozen:
                stores = [each for each in self.prepared.values() if self._is_computed_here(each)]
                pieces = sum(each.n_pieces for each in stores)
                flops = sum(each.forward_flops(self.first) for each in stores)
            else:
                pieces = train.n_pieces * steps / an_epoch
                flops = 3 * forward * steps / an_epoch
            if self.run.teaching is not None:
                flops += self.run.teaching.teacher.forward_flops(train.row_lengths) * steps / an_epoch
        for store in self._stores_of_inputs():
            pieces += int(store.n_pieces.sum())
            flops += store.flops
        return Ledger.of(
            pieces=int(pieces),
            flops=flops,
            seconds=seconds + before,
            steps=steps,
            device=torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device),
            joules=joules * (1 + before / max(seconds, 1e-9)),
            measured=meter.measured and not before,
            rates=self.run.rates,
        )

    def _stores_of_inputs(self) -> list[Store]:
        """The vectors of frozen inputs that were computed here."""
        sources = [getattr(each.source, "stacked", None) for each in self.prepared.values()]
        return [store for source in sources if source is not None for store in source.stores if store.computed]

    def _is_computed_here(self, prepared: PreparedItems) -> bool:
        """Whether the vectors are this run's work: not if a cache of the user's had them."""
        store = getattr(prepared.source, "store", None)
        own = self.run.folder is not None and self.cache == self.run.folder / FEATURES
        return own or store is None or store.computed

    def report(
        self,
        results: Sequence[SeedResult],
        best: SeedResult,
        dev_judgments: Sequence[Judgment],
        ledger: Ledger,
    ) -> FinetuneReport:
        data = self.data
        return FinetuneReport(
            task=data.name,
            kind=data.kind,
            model=self.run.model_name,
            mode=self._mode,
            metrics=data.metrics,
            seeds=tuple(each.figures for each in results),
            best_seed=best.figures.seed,
            baseline=self.baseline,
            baseline_name=self.kind.baseline_name(data),
            sizes={name: len(each) for name, each in data.splits.items()},
            sampled=data.sampled,
            labels=self.labels,
            confusion=confusion_of(data, dev_judgments, self.labels),
            errors=worst_errors(data.kind, data.splits["dev"], dev_judgments, self.labels),
            notes=(
                *data.notes,
                *self.run.notes,
                *self.notes,
                *(note for each in results for note in each.figures.notes),
            ),
            settings=self.settings.to_json(),
            ledger=ledger,
            versions={"polyseme": __version__, "torch": torch.__version__, "python": platform.python_version()},
        )

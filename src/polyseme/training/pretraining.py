"""A pretraining run from its settings to its model: set up, measured, trained, kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polyseme.bundle import Bundle, load_bundle, new_bundle, save_bundle
from polyseme.config import Config, EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layouts import Layout, Packed, Streams
from polyseme.encoders.kinds import config_from_json
from polyseme.errors import InputError, OptionError
from polyseme.objectives.base import BaseObjective
from polyseme.objectives.named import check_needs, objective_from
from polyseme.parts.unfilled import unfilled
from polyseme.training.budget import parse_budget
from polyseme.training.checkpoint import read_latest
from polyseme.training.devices import Devices
from polyseme.training.effects.base import Effect
from polyseme.training.effects.evaluate import Evaluate
from polyseme.training.effects.keep import CHECKPOINTS, Keep
from polyseme.training.effects.log import Log, TensorBoard, forget_after
from polyseme.training.effects.tell import OnReport, Tell
from polyseme.training.effects.watch import TrainingStoppedError, Watch
from polyseme.training.ledger import Ledger, Meter, Rates, measured_peak
from polyseme.training.loader import Loader, StepRows
from polyseme.training.loop import train
from polyseme.training.run import LEDGER, Run, write_json
from polyseme.training.settings import Phase, Plan, TrainingSettings
from polyseme.training.trainer import WEIGHTS, Trainer
from polyseme.types import Objective

PASS_WEIGHT = {"cuda": 2**25, "cpu": 2**21}
"""Pieces times width that a device runs at once, unless the user says otherwise."""
HELD_STEPS = 8
"""How many steps' worth of held-out rows an evaluation reads …"""
HELD_PIECES = 2**18
"""… and pieces at most."""
HELD_ROWS = 8
"""How many rows of a held-out stream there are at least, where there is enough text: the first ones lack a memory."""
TRIAL_SECONDS = 3.0
"""How long steps are timed before a budget of time is turned into a number of steps."""


@dataclass(frozen=True, kw_only=True)
class Job(Config):
    """Everything that decides a run."""

    recipe: str
    family: str
    encoder: Mapping[str, Any]
    """The encoder's config, with its kind."""
    outputs: tuple[str, ...]
    tied: bool = True
    """Whether the output shares the table of pieces, where it can."""
    objective: Mapping[str, Any]
    """The objective's settings, with its name."""
    training: TrainingSettings
    corpus: str
    """The corpus folder; where it begins with `./`, inside the run's."""
    corpus_fingerprint: str
    budget: str
    start: str | None = None
    """A model whose weights are trained on."""
    log_every: int = 10
    evaluate_every: int | None = None
    """None: ten times in a run."""
    checkpoint_every: int | None = None
    """None: ten times in a run, and every 1,000 steps at least."""
    keep: int = 2
    shard_size: int | None = None
    tensorboard: bool = False

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Job:
        """The job of `to_json`, the records in it included."""
        settings = {**settings, "training": TrainingSettings.from_json(settings["training"])}
        read: Job = super().from_json(settings)
        return read

    def told_objective(self, corpus: Corpus) -> BaseObjective:
        """The objective, told of the corpus's vocabulary."""
        return self.plain_objective().for_tokenizer(corpus.tokenizer)

    def plain_objective(self) -> BaseObjective:
        """The objective by its settings alone."""
        settings = dict(self.objective)
        return objective_from(settings.pop("name"), settings)

    def evaluates_every(self, n_steps: int) -> int:
        return self.evaluate_every or max(n_steps // 10, 1)

    def keeps_every(self, n_steps: int) -> int:
        return self.checkpoint_every or min(max(n_steps // 10, 1), 1000)


@dataclass
class Pretraining:
    """A job set up on its devices."""

    job: Job
    corpus: Corpus
    devices: Devices
    objective: Objective
    trainer: Trainer
    layouts: Sequence[Layout]
    held: Layout | None
    pass_rows: Sequence[int]
    workers: int = 1

    @classmethod
    def set_up(cls, job: Job, corpus: Corpus, devices: Devices, *, workers: int = 1) -> Pretraining:
        """Check that everything fits together, then build the networks."""
        check_job(job, corpus, devices)
        training = job.training
        torch.manual_seed(training.seed)
        bundle = start_bundle(job, corpus)
        objective = job.told_objective(corpus)
        layouts = layouts_of(job, corpus)
        held = held_layout(job, corpus)
        trainer = Trainer(objective, objective.nets(bundle), training, devices)
        width = max(bundle.config.widths)
        pass_rows = [rows_of_a_pass(phase, width, training.pass_rows, devices) for phase in training.phases]
        return cls(job, corpus, devices, objective, trainer, layouts, held if held.n_rows else None, pass_rows, workers)

    def loader(self, plan: Plan) -> Loader:
        return Loader(self.layouts, self.objective, plan, self.devices, self.pass_rows)

    def held_rows(self) -> Iterator[StepRows]:
        """This process's share of the held-out rows that an evaluation reads."""
        if self.held is None:
            return
        loader = Loader([self.held], self.objective, Plan(self.job.training, 1), self.devices, self.pass_rows[:1])
        if isinstance(self.held, Streams):
            n_steps = min(self.held.n_rows // self.held.n, max(HELD_PIECES // (self.held.n * self.held.length), 1))
            mine = np.arange(self.held.n)[self.devices.share_of(self.held.n)]
            for step in range(n_steps if len(mine) else 0):
                yield loader.on_device(loader.rows(step, 0, step * self.held.n + mine))
            return
        most = min(HELD_STEPS * self.job.training.phases[0].rows, max(HELD_PIECES // self.held.length, 1))
        n_rows = min(self.held.n_rows, most)
        mine = np.arange(n_rows)[self.devices.share_of(n_rows)]
        if len(mine):
            yield loader.on_device(loader.rows(0, 0, mine))

    # --- how many steps -----------------------------------------------------------------------------------------------

    def flops_a_step(self) -> list[float]:
        """Of each phase, over all devices."""
        return [
            self.objective.flops(self.trainer.inner, phase.rows, phase.length) for phase in self.job.training.phases
        ]

    def n_steps(self, started: float) -> int:
        """The budget as a number of steps; one of time is measured first, and what that took is taken off it."""
        budget = parse_budget(self.job.budget)
        training = self.job.training
        pieces = training.mean_over_phases([float(phase.pieces) for phase in training.phases])
        flops = training.mean_over_phases(self.flops_a_step())
        if budget.unit != "seconds":
            return budget.n_steps(seconds=math.inf, flops=flops, pieces=pieces)
        timing = self.trial()
        spent = time.perf_counter() - started
        left = budget.amount - spent - 11 * timing.evaluation
        n_steps: int = self.devices.agree(max(1, int(left / training.mean_over_phases(timing.steps))))
        return n_steps

    def trial(self, *, seconds: float = TRIAL_SECONDS, least: int = 2) -> Timing:
        """Time steps of each phase, and an evaluation; the networks are then put back as they were."""
        before = {name: each.detach().cpu().clone() for name, each in self.trainer.tensors().items()}
        plan = Plan(self.job.training, 1000)
        try:
            timing = self._timed(plan, seconds, least)
        except torch.OutOfMemoryError:
            raise self.too_large(plan) from None
        self.trainer.put(before)
        return timing

    def _timed(self, plan: Plan, seconds: float, least: int) -> Timing:
        loader = self.loader(plan)
        steps = []
        for start in plan.starts:
            for warm_up in range(2):
                self.trainer.step(loader.on_device(loader.make(start + warm_up)), plan)
            self._finish()
            began, n_done = time.perf_counter(), 0
            for rows in loader.steps(start, start + 10_000, workers=self.workers):
                self.trainer.step(rows, plan)
                n_done += 1
                if n_done >= least and n_done % 2 == 0:
                    self._finish()
                    if self.devices.agree(time.perf_counter() - began > seconds):
                        break
            steps.append((time.perf_counter() - began) / n_done)
        began = time.perf_counter()
        self.trainer.evaluate(self.held_rows())
        return Timing(steps, time.perf_counter() - began)

    def _finish(self) -> None:
        if self.devices.device.type == "cuda":
            torch.cuda.synchronize()

    def too_large(self, plan: Plan) -> OptionError:
        """What to say when the step that was begun last did not fit into the device's memory: one that does.

        The networks are of no use afterwards.
        """
        number = plan.at(self.trainer.at)[0]
        rows, length = self.pass_rows[number], self.job.training.phases[number].length
        fitting = self._fitting_rows(plan, self.trainer.at, number)
        advice = (
            f"{fitting:,} fit: use --pass-rows {fitting}; the step stays the same, in more passes."
            if fitting
            else "Not even one fits: take a smaller recipe, shorter rows (--length), or a larger device."
        )
        return OptionError(
            f"{self.devices.device} has too little memory for {rows:,} rows of {length:,} pieces at once. {advice}"
        )

    def _fitting_rows(self, plan: Plan, step: int, number: int) -> int:
        fewer = list(self.pass_rows)
        while fewer[number] > 1:
            fewer[number] //= 2
            self.trainer.optimiser.zero_grad(set_to_none=True)
            if self.devices.device.type == "cuda":
                torch.cuda.empty_cache()
            loader = Loader(self.layouts, self.objective, plan, self.devices, fewer)
            try:
                self.trainer.step(loader.on_device(loader.make(step)), plan)
                return fewer[number]
            except torch.OutOfMemoryError:
                continue
        return 0

    # --- what comes out -----------------------------------------------------------------------------------------------

    def results(self) -> dict[str, Bundle]:
        """The bundles to keep, whole and on the CPU, wherever the networks are; all processes must ask."""
        tensors = {
            name.removeprefix(WEIGHTS): each.cpu()
            for name, each in self.trainer.tensors().items()
            if name.startswith(WEIGHTS)
        }
        torch.manual_seed(self.job.training.seed)
        nets = self.objective.nets(start_bundle(self.job, self.corpus))
        filled = {**dict(nets.named_parameters()), **dict(nets.named_buffers())}
        with torch.no_grad():
            for name, each in filled.items():
                each.copy_(tensors[name])
        return dict(self.objective.result(nets))


@dataclass(frozen=True)
class Timing:
    """What was measured before a run."""

    steps: list[float]
    """Seconds of a step of each phase."""
    evaluation: float


def run_job(
    run: Run,
    job: Job,
    corpus: Corpus,
    devices: Devices,
    *,
    workers: int = 1,
    rates: Rates,
    on_report: OnReport | None = None,
) -> Ledger:
    """Train a run to its end, from where it stands, and write its model; what it cost is returned."""
    started = time.perf_counter()
    pretraining = Pretraining.set_up(job, corpus, devices, workers=workers)
    trainer = pretraining.trainer
    meter = Meter(devices.device, rates=rates)
    checkpoint = read_latest(run.folder / CHECKPOINTS)
    first, before, past = 0, 0.0, None
    if checkpoint is not None:
        trainer.put(checkpoint.tensors)
        first, before = checkpoint.step, float(checkpoint.about["seconds"])
        past = Ledger.from_json(checkpoint.about["ledger"]) if checkpoint.about.get("ledger") else None
    if run.n_steps is None:
        run.n_steps = pretraining.n_steps(started)
        if devices.leads:
            run.write()
    plan = Plan(job.training, run.n_steps)
    if devices.leads:
        forget_after(run.folder, first)
    devices.wait()
    flops = pretraining.flops_a_step()
    peak = measured_peak(devices.device, torch.bfloat16 if job.training.dtype == "bf16" else torch.float32)

    def ledger(done: int, seconds: float) -> Ledger:
        spent = Ledger.of(
            pieces=plan.pieces_until(done) - plan.pieces_until(first),
            flops=sum(
                each * (after - earlier)
                for each, after, earlier in zip(flops, plan.steps_until(done), plan.steps_until(first), strict=True)
            ),
            seconds=seconds - before,
            steps=done - first,
            device=_device_name(devices.device),
            n_devices=devices.world,
            peak=peak,
            joules=meter.joules() * devices.world,
            measured=meter.measured,
            rates=rates,
        )
        return spent if past is None else past.add(spent)

    keep = Keep(
        run.folder,
        job.keeps_every(run.n_steps),
        lambda done, seconds: {"seconds": seconds, "ledger": ledger(done, seconds).to_json()},
        keep=job.keep,
        shard_size=job.shard_size,
    )
    if checkpoint is None:
        keep.now(trainer, 0, 0.0)
    effects: list[Effect] = [Evaluate(pretraining.held_rows, job.evaluates_every(run.n_steps))]
    effects += [Log(run.folder, job.log_every)]
    effects += [TensorBoard(run.folder, job.log_every)] if job.tensorboard and devices.leads else []
    effects += [Tell(on_report, job.log_every)] if on_report is not None else []
    effects += [Watch(job.log_every), keep]
    try:
        seconds = train(trainer, pretraining.loader(plan), plan, effects, first=first, seconds=before, workers=workers)
    except torch.OutOfMemoryError:
        raise pretraining.too_large(plan) from None
    except TrainingStoppedError as error:
        run.stopped = str(error)
        if devices.leads:
            run.write()
        raise
    bill = ledger(run.n_steps, seconds)
    results = pretraining.results()
    if devices.leads:
        for name, bundle in results.items():
            save_bundle(bundle, run.folder / name, force=True, shard_size=job.shard_size)
        write_json(run.folder / LEDGER, bill.to_json())
        run.finished, run.stopped = True, None
        run.write()
    devices.wait()
    return bill


def check_job(job: Job, corpus: Corpus, devices: Devices) -> None:
    """Refuse what does not fit together, before any work: nothing is allocated here."""
    with unfilled():
        bundle = new_bundle(
            FAMILIES[job.family], config_from_json(job.encoder), job.outputs, corpus.tokenizer, tied=job.tied
        )
    check_needs(job.told_objective(corpus), bundle, corpus.tokenizer)
    for phase in job.training.phases:
        _check_phase(phase, bundle.config, devices)
    _check_streams(job, devices)
    for phase, layout in zip(job.training.phases, layouts_of(job, corpus), strict=True):
        _check_rows(phase, layout, corpus)


def layouts_of(job: Job, corpus: Corpus) -> list[Layout]:
    """How each phase of a job takes its rows from the corpus."""
    if _streams_wanted(job):
        return [_streams(job, corpus, phase.rows, length=phase.length) for phase in job.training.phases]
    return [_packed(job, corpus, length=phase.length) for phase in job.training.phases]


def held_layout(job: Job, corpus: Corpus) -> Layout:
    """How the rows that are held out are taken; as many streams as in training, or fewer, so that each is long."""
    phase = job.training.phases[0]
    if not _streams_wanted(job):
        return _packed(job, corpus, split="held", length=phase.length)
    n_streams = min(phase.rows, max(corpus.n_pieces("held") // (HELD_ROWS * phase.length), 1))
    return _streams(job, corpus, n_streams, split="held", length=phase.length)


def _streams_wanted(job: Job) -> bool:
    return job.plain_objective().needs.layout == "streams"


def _streams(job: Job, corpus: Corpus, n_streams: int, **settings: Any) -> Streams:
    training = job.training
    back = job.plain_objective().both_ways
    return Streams(corpus, n_streams, seed=training.seed, ahead=1, back=back, varied=training.varied, **settings)


def _packed(job: Job, corpus: Corpus, **settings: Any) -> Packed:
    training = job.training
    same_cuts = job.plain_objective().same_rows
    return Packed(
        corpus, seed=training.seed, apart=training.apart, reset=training.reset, same_cuts=same_cuts, **settings
    )


def start_bundle(job: Job, corpus: Corpus) -> Bundle:
    """The model a job begins with: freshly drawn, or one that is trained on, with the outputs that it lacks."""
    family, config = FAMILIES[job.family], config_from_json(job.encoder)
    fresh = new_bundle(family, config, job.outputs, corpus.tokenizer, tied=job.tied)
    if job.start is None:
        return fresh
    loaded = load_bundle(job.start)
    _check_words(loaded, corpus, job.start)
    outputs = {name: loaded.outputs[name] if name in loaded.outputs else fresh.outputs[name] for name in job.outputs}
    return Bundle(family=family, encoder=loaded.encoder, outputs=outputs, tokenizer=corpus.tokenizer, tied=loaded.tied)


def _check_words(loaded: Bundle, corpus: Corpus, start: str) -> None:
    """Refuse to train a softmax on with words that are numbered otherwise."""
    words = getattr(loaded.tokenizer, "vocabulary", None)
    if words is not None and tuple(corpus.tokenizer.pieces(range(len(words)))) != words:
        raise OptionError(
            f"The softmax of {start} chooses from other words than the first {len(words):,} of the corpus "
            f"{corpus.folder}. Train it on with a corpus that has its table of words, or start afresh."
        )


def rows_of_a_pass(phase: Phase, width: int, wanted: int | None, devices: Devices) -> int:
    """How many of a step's rows a device runs at once: passes of one size, none above what is wanted or suits it."""
    rows = phase.rows // devices.world
    most = wanted or PASS_WEIGHT[devices.device.type] // (width * phase.length)
    n_passes = -(-rows // max(most, 1))
    while rows % n_passes:
        n_passes += 1
    return rows // n_passes


def _check_phase(phase: Phase, config: EncoderConfig, devices: Devices) -> None:
    if config.window is not None and phase.length > config.window:
        raise OptionError(
            f"Rows of {phase.length:,} pieces are longer than the {config.window:,} positions of the model. "
            "Shorten them (--length)."
        )
    if phase.rows % devices.world:
        raise OptionError(
            f"The {phase.rows:,} rows of a step cannot be shared evenly by {devices.world} processes. "
            "Choose a number of rows that can (--rows)."
        )


def _check_streams(job: Job, devices: Devices) -> None:
    """Refuse what streams that carry a memory cannot do."""
    training = job.training
    if not _streams_wanted(job):
        if training.varied:
            raise OptionError("Rows of varied lengths are for streams; packed rows are all of one length.")
        return
    if len({phase.rows for phase in training.phases}) > 1:
        raise OptionError(
            "Every row of a step is a stream of its own, with its memory, so all phases must have equally many rows."
        )
    if training.apart or training.reset:
        raise OptionError(
            "A stream goes on over the ends of documents with what it remembers: they cannot be kept 'apart', nor "
            "positions 'reset'. Leave these out."
        )
    if devices.world > 1 and training.parallel == "fsdp":
        raise OptionError("Recurrent encoders are trained on several devices by 'ddp' only. Choose that.")


def _check_rows(phase: Phase, layout: Layout, corpus: Corpus) -> None:
    if layout.n_rows < phase.rows:
        raise InputError(
            f"The corpus is smaller than a batch: {corpus.n_pieces('train'):,} pieces make {layout.n_rows:,} rows of "
            f"{phase.length:,}, and a step takes {phase.rows:,}. Give more text, or smaller steps (--rows)."
        )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)

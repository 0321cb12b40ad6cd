"""A pretraining run from where it is to its end, or to the end of a slice: trained, logged, saved, its cost kept."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyseme.bundle import Bundle
from polyseme.corpus.corpus import Corpus
from polyseme.errors import PolysemeWarning
from polyseme.model_folder import save_bundle
from polyseme.parts.device import cpu_threads
from polyseme.training.budget import parse_budget
from polyseme.training.checkpoint import clear_up, named_under, read_latest, read_regular, read_step
from polyseme.training.device_group import Devices
from polyseme.training.effects import (
    CHECKPOINTS,
    AverageWeights,
    DrawCurve,
    Effect,
    Evaluate,
    Log,
    OnReport,
    ReportProgress,
    TensorBoard,
    WriteCheckpoints,
    read_log,
    truncate_log,
)
from polyseme.training.energy_ledger import Ledger, Rates
from polyseme.training.loop import Trained, train
from polyseme.training.models_at_words import SEEN, AmountRead, KeepAtWords
from polyseme.training.pretraining import TRIAL_SECONDS, TRIAL_SHARE, Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_card import write_cards
from polyseme.training.run_folder import LEDGER, MODEL, Run, write_json
from polyseme.training.slice_costs import SliceCosts, costs_until
from polyseme.training.time_budget import (
    CHECKS,
    LATE,
    N_TO_MEASURE,
    Correction,
    Slowdown,
    Timing,
    check_time_left,
    step_of_check,
    steps_within,
    warn_of_few_steps,
)
from polyseme.training.trainer import WEIGHTS
from polyseme.training.training_settings import Plan
from polyseme.training.watching import (
    FAIR_STEPS,
    MeasureSteps,
    StopAfter,
    StopIfDiverged,
    TrainingStoppedError,
    WarnIfNothingIsLearned,
)
from polyseme.training.weight_average import mean_of

_logger = logging.getLogger(__name__)
CLEARLY_LOWER = 0.02
"""Nats by which a held-out loss must be below the last one for an earlier model to be taken."""


@dataclass(frozen=True, kw_only=True)
class PausedRun:
    """A run that stopped after the time it was given (`stop_after`); `pretrain(resume=folder)` resumes it."""

    folder: Path
    done: int
    """Steps taken so far, in all slices."""
    n_steps: int
    ledger: Ledger
    """What it cost so far."""

    def lines(self) -> list[str]:
        """For the terminal."""
        return [
            f"stopped after step {self.done:,} of {self.n_steps:,}; resume with: polyseme pretrain --resume "
            f"{self.folder}",
            *self.ledger.lines(),
        ]


def run_job(
    run: Run,
    job: Job,
    corpus: Corpus,
    devices: Devices,
    *,
    workers: int = 1,
    rates: Rates,
    on_report: OnReport | None = None,
    start: Bundle | None = None,
    started: float | None = None,
    stop_after: float | None = None,
) -> Ledger | PausedRun:
    """Train a run from where it is to its end, and write its model; what it cost is returned.

    The command began when the clock (`time.perf_counter`) was at `started`. A budget of time counts from there. Once
    `stop_after` seconds have passed since then, no step begins: the run writes a checkpoint and returns. Every call
    takes one step at least.
    """
    started = time.perf_counter() if started is None else started
    if run.n_steps is None and parse_budget(job.budget).unit == "seconds":
        check_time_left(job, devices.agree(time.perf_counter() - started), run.folder)
    pretraining = Pretraining.set_up(job, corpus, devices, workers=workers, start=start)
    current = RunSlice(run, pretraining, started, rates, on_report, stop_after)
    try:
        measured = None if run.timing is None else run.timing.threads
        with cpu_threads(measured or job.training.threads):
            done, seconds = current.train()
    except torch.OutOfMemoryError:
        raise pretraining.too_large(current.plan) from None
    except TrainingStoppedError as error:
        run.stopped = str(error)
        if devices.leads:
            run.write()
        raise
    if done < current.plan.n_steps:
        return _pause(run, done, current.costs.ledger(done, seconds), devices)
    held_out = current.averaged_held_out() if job.average_checkpoints is not None else current.lowest_held_out()
    results = pretraining.results()
    if devices.leads:
        for name, bundle in results.items():
            save_bundle(bundle, run.folder / name, force=True, shard_size=job.shard_size)
        if run.model_step is not None:
            write_json(run.folder / MODEL / SEEN, current.seen(run.model_step).to_json())
    reached = {
        "held_out": held_out,
        "unigram_entropy": run.unigram_entropy,
        "baseline_name": pretraining.objective.baseline_name,
    }
    bill: Ledger = current.costs.ledger(done, seconds).replace(**reached)
    if devices.leads:
        write_cards(run, job, corpus, bill, results)
        write_json(run.folder / LEDGER, bill.to_json())
        run.finished, run.stopped = True, None
        run.write()
    devices.wait()
    return bill


class RunSlice:
    """What one process trains of a run: all of it, or from where another process stopped."""

    def __init__(
        self,
        run: Run,
        pretraining: Pretraining,
        started: float,
        rates: Rates,
        on_report: OnReport | None,
        stop_after: float | None,
    ) -> None:
        self.run, self.job, self.pretraining, self.started = run, pretraining.job, pretraining, started
        job, trainer, devices, folder = pretraining.job, pretraining.trainer, pretraining.devices, run.folder
        checkpoint = read_latest(folder / CHECKPOINTS)
        run.check_resumed(checkpoint, pretraining.counted_steps())
        self.first = 0 if checkpoint is None else checkpoint.step
        if self.first and devices.leads:
            planned = "" if run.n_steps is None else f" of {run.n_steps:,}"
            _logger.info(f"Resumed: an earlier run had taken {self.first:,}{planned} steps.")
        self.keep = WriteCheckpoints(
            folder, 1, 0, self._record, keep=job.keep, shard_size=job.shard_size, keeps_lowest=job.keeps_lowest
        )
        self.costs = SliceCosts(pretraining, costs_until(checkpoint, folder), self.first, started, rates)
        began = time.perf_counter()
        if checkpoint is not None:
            trainer.put(checkpoint.tensors)
        else:
            self.keep.now(trainer, 0, 0.0)
        if run.n_steps is None:
            run.unigram_entropy = devices.agree(pretraining.baseline() if devices.leads else None)
            self._count_steps(0.0 if checkpoint is not None else time.perf_counter() - began)
        if devices.leads:
            clear_up(folder / CHECKPOINTS)
            truncate_log(folder, self.first)
        devices.wait()
        self.evaluate = Evaluate(pretraining.held_rows, 1)
        self.measured, self.slowdown = MeasureSteps(pretraining.finish), Slowdown()
        self.effects: list[Effect] = [AverageWeights(), self.evaluate, Log(folder, job.log_every)]
        self.effects += [DrawCurve(folder, f"{job.recipe}: {folder.name}", run.unigram_entropy)]
        self.effects += [TensorBoard(folder, job.log_every)] if job.tensorboard and devices.leads else []
        self.effects += [ReportProgress(on_report, job.log_every)] if on_report is not None else []
        log = devices.agree(read_log(folder))
        self.keep.resume(log, trainer)
        self.effects += self._watches(log)
        self.effects += [] if job.keep_at_words is None else [self._keep_at_words(job.keep_at_words)]
        self.end = None if stop_after is None else StopAfter(started + stop_after)
        self.effects += [] if self.end is None else [self.end]
        self.effects += [self.keep, self.measured]

    def _watches(self, log: Sequence[Mapping[str, Any]]) -> list[Effect]:
        """What stops a run or warns of it by its loss, as it is after the steps of a log."""
        watches: list[Effect] = [StopIfDiverged.resumed(self.job.log_every, log)]
        if self.run.unigram_entropy is not None:
            learns = WarnIfNothingIsLearned(self.run.unigram_entropy, self.pretraining.corpus.n_pieces("train"))
            learns.resume(log, self._n_steps, self.pretraining.trainer)
            watches.append(learns)
        return watches

    def _keep_at_words(self, numbers: Sequence[int]) -> KeepAtWords:
        """What keeps models at these numbers of words; those that the run does not get to are warned of once."""
        pretraining, plan = self.pretraining, self.pretraining.plan(self._n_steps)
        keep = KeepAtWords(
            self.run.folder,
            numbers,
            pretraining.corpus.words_per_piece,
            pretraining.results,
            self.job.shard_size,
            plan.pieces_until(self.first),
        )
        n_words = keep.words(plan.pieces_until(plan.n_steps))
        beyond = [f"{number:,}" for number in numbers if number > n_words]
        if beyond and self.first == 0 and pretraining.devices.leads:
            warnings.warn(
                f"The run reads about {n_words:,} words, so no model is kept at {', '.join(beyond)} (keep_at_words). "
                "Give a larger budget, or smaller numbers.",
                PolysemeWarning,
                stacklevel=2,
            )
        return keep

    @property
    def plan(self) -> Plan:
        """Of the steps that are being taken."""
        return self.costs.plan

    def train(self) -> Trained:
        """Take all steps that are left, or those until the slice ends; a budget of time is corrected on the way."""
        run, trained = self.run, Trained(self.first, self.costs.seconds_before)
        for past in run.corrections:
            if trained.done < past.step:
                trained = self._train(past.planned, trained, past.step)
                if self._is_over:
                    return trained
        if run.timing is not None:
            began, left = time.perf_counter(), self._seconds_left()
            for share in CHECKS:
                step = step_of_check(self.job, self._n_steps, share)
                is_new = all(past.share < share for past in run.corrections)
                if is_new and step is not None and step > trained.done:
                    late = StopAfter(began + LATE * share * left, self.first + N_TO_MEASURE)
                    trained = self._train(self._n_steps, trained, step, late)
                    if self._is_over:
                        return trained
                    self._correct(trained.done, share, run.timing)
        return self._train(self._n_steps, trained, self._n_steps)

    @property
    def _is_over(self) -> bool:
        """Whether the slice has ended before the run."""
        return self.end is not None and self.end.stopped

    def _train(self, n_steps: int, trained: Trained, last: int, *more: Effect) -> Trained:
        """Take the steps up to `last` of a run that has `n_steps`."""
        job, plan = self.job, self.pretraining.plan(n_steps)
        self.costs.plan = plan
        most = self.run.most_evaluations
        self.evaluate.every = job.evaluates_every(n_steps, most)
        self.keep.every, self.keep.n_steps = job.keeps_every(n_steps, most), n_steps
        return train(
            self.pretraining.trainer,
            self.pretraining.loader(plan),
            plan,
            [*self.effects, *more],
            first=trained.done,
            last=last,
            seconds=trained.seconds,
            workers=self.pretraining.workers,
        )

    def last_held_out(self) -> float | None:
        """The loss of predicting pieces of held-out text at the end of the run."""
        lines = self.pretraining.devices.agree(read_log(self.run.folder))
        return self.pretraining.trainer.prediction(lines[-1].get("held_out", {})) if lines else None

    def lowest_held_out(self) -> float | None:
        """The same, or, where it was clearly lower before, that of the checkpoint with the lowest one: the networks are
        given its weights for good.
        """
        last, lowest = self.last_held_out(), self.keep.lowest
        if last is None or lowest is None or lowest.loss > last - CLEARLY_LOWER or self._n_steps < FAIR_STEPS:
            return last
        self.pretraining.trainer.put(read_step(self.run.folder / CHECKPOINTS, lowest.step).tensors)
        self.run.model_step = lowest.step
        if self.pretraining.devices.leads:
            warnings.warn(
                f"The held-out loss was lowest after step {lowest.step:,} of {self._n_steps:,}, at {lowest.loss:.2f} "
                f"nats, and is {last:.2f} at the end: the text was being memorized. "
                f"The model is that of step {lowest.step:,}. A better one needs more text, a smaller model or more "
                f"dropout (--set dropout_rate=0.3); or give about {lowest.step / self._n_steps:.0%} of the budget.",
                PolysemeWarning,
                stacklevel=2,
            )
        return lowest.loss

    def seen(self, step: int) -> AmountRead:
        """What was read until a step."""
        pieces = self.plan.pieces_until(step)
        return AmountRead(words=round(pieces * self.pretraining.corpus.words_per_piece), pieces=pieces, step=step)

    def averaged_held_out(self) -> float | None:
        """The same of the mean of the last checkpoints' weights, which the networks are given for good."""
        trainer = self.pretraining.trainer
        checkpoints = read_regular(self.run.folder / CHECKPOINTS)
        last = checkpoints[-(self.job.average_checkpoints or 1) :]
        trainer.put_weights(mean_of([named_under(WEIGHTS, each.tensors) for each in last]))
        return trainer.prediction(trainer.evaluate(self.pretraining.held_rows()))

    # --- how many steps -----------------------------------------------------------------------------------------------

    @property
    def _n_steps(self) -> int:
        if self.run.n_steps is None:
            raise ValueError("The budget has not been turned into steps yet.")
        return self.run.n_steps

    def _count_steps(self, checkpoint_seconds: float) -> None:
        """Turn the budget into a number of steps; one of time by a trial."""
        run, job, devices = self.run, self.job, self.pretraining.devices
        run.n_steps = self.pretraining.counted_steps()
        if run.n_steps is None:
            timed = min(TRIAL_SECONDS, TRIAL_SHARE * self._seconds_left())
            timing = self.pretraining.trial(seconds=timed, checkpoint=checkpoint_seconds)
            run.timing = devices.agree(timing.within(self._seconds_left(), job.fewest_evaluations))
            run.n_steps = devices.agree(steps_within(job, run.timing, self._seconds_left()))
            if devices.leads:
                warn_of_few_steps(job, run.timing, run.n_steps)
        if devices.leads:
            _warn_of_few_checkpoints(job, run.n_steps, run.most_evaluations)
            run.write()

    def _correct(self, step: int, share: float, timing: Timing) -> None:
        """Check the number of steps by the time that those of this process took."""
        run, devices, planned = self.run, self.pretraining.devices, self._n_steps
        first, seconds = self.measured.until(step)
        self.slowdown.add(self.job, timing, planned, (first, step), seconds)
        correction = devices.agree(Correction(step, planned, self.slowdown.factor, share))
        run.corrections.append(correction)
        run.n_steps = devices.agree(correction.n_steps(self.job, timing, self._seconds_left()))
        if devices.leads:
            run.write()

    def _seconds_left(self) -> float:
        """Of a budget of time, which all slices share."""
        before = 0.0 if self.costs.before is None else self.costs.before.total_seconds
        return parse_budget(self.job.budget).amount - before - (time.perf_counter() - self.started)

    def _record(self, done: int, seconds: float) -> dict[str, Any]:
        """What a checkpoint holds besides tensors."""
        ledger = self.costs.ledger(done, seconds).to_json() if done else None
        return {"seconds": seconds, "ledger": ledger, "settings": self.run.checksum}


def _warn_of_few_checkpoints(job: Job, n_steps: int, most: int) -> None:
    every = job.keeps_every(n_steps, most)
    n_checkpoints = -(-n_steps // every)
    if job.average_checkpoints is not None and n_checkpoints < job.average_checkpoints:
        warnings.warn(
            f"The model was to be the mean of the last {job.average_checkpoints} checkpoints, and there are "
            f"{n_checkpoints} in {n_steps:,} steps, one every {every:,}: it is the mean of all. For more, write them "
            "more often (--checkpoint-every).",
            PolysemeWarning,
            stacklevel=2,
        )


def _pause(run: Run, done: int, bill: Ledger, devices: Devices) -> PausedRun:
    """Write that a slice has ended, and what it cost; its checkpoint is there."""
    n_steps = run.n_steps or done
    if devices.leads:
        write_json(run.folder / LEDGER, bill.to_json())
        run.stopped = f"The slice ended after step {done:,} of {n_steps:,}."
        run.write()
    devices.wait()
    return PausedRun(folder=run.folder, done=done, n_steps=n_steps, ledger=bill)

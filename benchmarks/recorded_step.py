"""Pretraining steps on a GPU, plain and recorded as CUDA graphs, in one run: whether they are the same, and how long
they take.

Rows are random pieces, made ahead by two workers. All cases have dropout 0.1. For each recipe three trainers with the
same weights take the same steps: plainly; plainly with rates and counts on the device, as a recorded step has them;
and recorded. The last two may be equal to the bit, as far as the GPU's own order of summing is the same; the first two
differ by rounding. "in a step" is the time of the host alone, without waiting for the device.

    python benchmarks/recorded_step.py [RECIPE …] [--compile] [--batch-size 128] [--optimizer muon] [--seconds 1]
    python benchmarks/recorded_step.py --failures
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measure import machine, skip, table

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.objectives.objective import Vocabulary
from polyseme.objectives.objective_table import objective_from
from polyseme.objectives.spans import WithSentinels
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training.device_group import Devices
from polyseme.training.loader import Loader
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Phase, Plan
from polyseme.types import Rows

SPECIALS = {"start": 0, "end": 1, "pad": 2, "unknown": 3, "mask": 4}
N_COMPARED = 12
USUAL = ("bert-mini", "gpt-tiny", "xlnet-tiny", "electra-small", "bart-tiny", "t5-tiny", "lstm-tiny")


@dataclass(frozen=True)
class RandomRows:
    """Random rows with a special piece at each end."""

    length: int
    n_pieces: int
    n_rows: int = 1 << 20

    def rows(self, indices: np.ndarray) -> Rows:
        keys = row_keys(0, 0, indices)
        pieces = 200 + (uniform(keys, "pieces", self.length) * (self.n_pieces - 200)).astype(np.int64)
        special = np.zeros(pieces.shape, np.bool_)
        special[:, [0, -1]] = True
        pieces[:, 0], pieces[:, -1] = 0, 1
        sentences = uniform(keys, "sentences", self.length) < 0.05
        return Rows(pieces=pieces, starts=~special, special=special, keys=keys, sentences=sentences)


class Case:
    """A recipe's trainer and rows."""

    def __init__(self, recipe: Recipe, options: argparse.Namespace, *, record: bool) -> None:
        shape = {
            name: 0.1
            for name in ("dropout_rate", "attention_dropout_rate", "embedding_dropout_rate")
            if hasattr(FAMILIES[recipe.family].base(), name)
        }
        batch_size = options.batch_size or recipe.training.phases[0].batch_size
        phase = Phase(length=recipe.training.phases[0].length, batch_size=batch_size)
        optimizer = recipe.training.optimizer
        if options.optimizer is not None:
            optimizer = optimizer.replace(kind=options.optimizer)
        settings = recipe.training.replace(
            phases=(phase,),
            optimizer=optimizer,
            dtype=options.dtype,
            compile=options.compile,
            record=record,
            varied=False,
            micro_batch_size=None,
        )
        objective = objective_from(recipe.objective, recipe.objective_settings)
        known: dict[str, Any] = {"n_pieces": recipe.vocabulary, "specials": SPECIALS, "before": (0,), "after": (0,)}
        kind = WithSentinels if recipe.objective == "spans" else Vocabulary
        if kind is WithSentinels:
            known["sentinels"] = tuple(range(100, 200))
        objective = objective.replace(known_vocabulary=kind(**known))
        torch.manual_seed(0)
        config = recipe.config(recipe.vocabulary, shape)
        bundle = new_bundle(FAMILIES[recipe.family], config, objective.needs.outputs, tied=recipe.tied)
        self.devices = Devices(torch.device(options.device))
        self.trainer = Trainer(objective, objective.nets(bundle), settings, self.devices)
        self.plan = Plan(settings, 1000)
        length = objective.row_length(phase.length, 2) + getattr(objective.needs.layout, "ahead", 0)
        rows = RandomRows(length, recipe.vocabulary)
        passes = batch_size // options.passes
        self.loader = Loader([rows], objective, self.plan, self.devices, [passes])
        self.pieces = batch_size * phase.length

    def losses(self, first: int, last: int) -> list[list[float]]:
        """Of these steps; looked at after the last."""
        steps = self.loader.steps(first, last, workers=2)
        means = [self.trainer.step(rows, self.plan) for rows in steps]
        return [[float(each) for each in step.values()] for step in means]

    def timed(self, seconds: float) -> tuple[float, float]:
        """Seconds per step, and those in which the host was in `step`."""
        steps = self.loader.steps(100, 100_000, workers=2)
        for _ in range(4):
            self.trainer.step(next(steps), self.plan)
        synchronize(self.devices.device)
        started, inside, n = time.perf_counter(), 0.0, 0
        while time.perf_counter() - started < seconds:
            for _ in range(5):
                rows = next(steps)
                before = time.perf_counter()
                self.trainer.step(rows, self.plan)
                inside += time.perf_counter() - before
            n += 5
            synchronize(self.devices.device)
        taken = (time.perf_counter() - started) / n
        steps.close()
        return taken, inside / n


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def difference(one: Case, other: Case) -> tuple[float, bool]:
    """The largest difference of weights and optimizer states, in parts of the largest value; whether there is none."""
    mine, theirs = one.trainer.tensors(), other.trainer.tensors()
    same = all(torch.equal(each, theirs[name]) for name, each in mine.items())
    largest = max(
        float((each - theirs[name]).abs().max() / theirs[name].abs().max().clamp(min=1e-12))
        for name, each in mine.items()
        if each.is_floating_point() and each.numel() and name.startswith("weights/")
    )
    return largest, same


def of_losses(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = [pair for steps in zip(one, other, strict=True) for pair in zip(*steps, strict=True)]
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)


def memory(device: torch.device) -> str:
    return f"{torch.cuda.max_memory_reserved(device) / 2**30:.2f}" if device.type == "cuda" else ""


def compare(recipe: Recipe, options: argparse.Namespace) -> list[str]:
    """One line of the table; what goes wrong is printed beside it."""
    device = torch.device(options.device)
    cases: dict[str, Case] = {}
    losses: dict[str, list[list[float]]] = {}
    figures: dict[str, tuple[float, float]] = {}
    used: dict[str, str] = {}
    first: dict[str, float] = {}
    for name in ("plain", "unrecorded", "recorded"):
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cases[name] = case = Case(recipe, options, record=name != "plain")
            if name == "unrecorded" and case.trainer.recorded is not None:
                case.trainer.recorded.n_plain = 1 << 30
            started = time.perf_counter()
            losses[name] = case.losses(0, 4)
            synchronize(device)
            first[name] = time.perf_counter() - started
            losses[name] += case.losses(4, N_COMPARED)
        for text in dict.fromkeys(f"{each.category.__name__}: {str(each.message)[:300]}" for each in caught):
            print(f"  {recipe.name}, {name}: {text}", flush=True)
        if name == "recorded" and case.trainer.recorded is not None:
            kept = {key: each.clone() for key, each in case.trainer.tensors().items()}
            going_on = case.losses(N_COMPARED, N_COMPARED + 6)
            case.trainer.put(kept)
            restored = case.losses(N_COMPARED, N_COMPARED + 6)
            print(
                f"  {recipe.name}: {len(case.trainer.recorded.recorded)} recorded; after restoring, losses differ by "
                f"{of_losses(restored, going_on):.1e}",
                flush=True,
            )
            case.trainer.put(kept)
    lost = of_losses(losses["recorded"], losses["unrecorded"])
    rounded = of_losses(losses["unrecorded"], losses["plain"])
    weights, same = difference(cases["recorded"], cases["unrecorded"])
    rounded_weights, _ = difference(cases["unrecorded"], cases["plain"])
    print(
        f"  {recipe.name}: first losses {[round(each[0], 5) for each in losses['plain'][:3]]}, recorded "
        f"{[round(each[0], 5) for each in losses['recorded'][:3]]}, last {losses['plain'][-1][0]:.5f} and "
        f"{losses['recorded'][-1][0]:.5f}; equal to the bit: {same}",
        flush=True,
    )
    del cases["unrecorded"]
    for name in ("plain", "recorded"):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        figures[name] = cases[name].timed(options.seconds)
        used[name] = memory(device)
    plain, recorded = figures["plain"], figures["recorded"]
    return [
        recipe.name,
        f"{plain[0] * 1e3:.2f} ({plain[1] * 1e3:.2f})",
        f"{recorded[0] * 1e3:.2f} ({recorded[1] * 1e3:.2f})",
        f"{plain[0] / recorded[0]:.2f} ×",
        f"{cases['plain'].pieces / recorded[0]:,.0f}",
        f"{lost:.1e} ({rounded:.1e})",
        f"{weights:.1e} ({rounded_weights:.1e})",
        f"{first['plain']:.1f}, {first['recorded']:.1f}",
        f"{used['plain']}, {used['recorded']}",
    ]


def failures(options: argparse.Namespace) -> None:
    """A step that waits for the device, found out beforehand, and then while it is recorded: both go on plainly."""
    recipe = RECIPES["bert-tiny"]
    expected = Case(recipe, options, record=False).losses(0, 8)
    for forewarned in (True, False):
        case = Case(recipe, options, record=True)
        recorded = case.trainer.recorded
        if recorded is None:
            print("Steps are not recorded here.")
            return

        def wait(module: Any, arguments: Any, result: Any) -> None:
            float(next(iter(result[0].values())))

        case.trainer.inner.register_forward_hook(wait)
        if not forewarned:
            plain = recorded.recorder.plain

            def unwatched(run: Callable[[], Any], plain: Callable[..., Any] = plain) -> tuple[Any, None]:
                return plain(run), None

            recorded.recorder.waits = unwatched
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            losses = case.losses(0, 8)
        print(f"forewarned: {forewarned}; losses differ by {of_losses(losses, expected):.1e}; warnings:")
        for each in caught:
            print(f"  {each.category.__name__}: {str(each.message)[:300]}")
        case = Case(recipe, options, record=True)
        again = case.losses(0, 8)
        assert case.trainer.recorded is not None
        n_recorded = len(case.trainer.recorded.recorded)
        print(f"  a trainer after it: {n_recorded} recorded, losses differ by {of_losses(again, expected):.1e}")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", choices=[*RECIPES, []], metavar="RECIPE")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--optimizer")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--failures", action="store_true")
    options = parser.parse_args()
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        skip("torch sees no GPU here")
    torch.set_float32_matmul_precision("high")
    print(machine("torch"), flush=True)
    if options.failures:
        failures(options)
        return
    lines = []
    for name in options.recipes or USUAL:
        started = time.perf_counter()
        try:
            lines.append(compare(RECIPES[name], options))
        except Exception as error:  # noqa: BLE001 - the other recipes are measured all the same
            print(f"  {name} failed: {type(error).__name__}: {str(error)[:1000]}", flush=True)
        print(f"  {name}: {time.perf_counter() - started:.1f} s in all", flush=True)
    head = [
        "recipe",
        "plain, ms (in a step)",
        "recorded, ms (in a step)",
        "ratio",
        "pieces/s",
        f"losses of {N_COMPARED} steps (plain ones)",
        "weights after them",
        "first 4 steps, s: plain, recorded",
        "memory reserved, GiB",
    ]
    print(table(head, lines), flush=True)


if __name__ == "__main__":
    main()

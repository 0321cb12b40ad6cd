"""Kernels for few rows: equal to the plain step, in Triton's interpreter and on a GPU; and choosing within the step."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from generating.kernel_battery import KINDS, ROWS, random_bundle, texts, writer_of
from generating.writing import language
from parts.triton_battery import has_gpu, has_triton, run_battery
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.fast_decoder import FastSteps
from polyseme.generating.kernel_steps import KernelSteps, kernels_fit
from polyseme.parts import kernel_trials
from polyseme.parts.kernel_trials import report_fallback
from polyseme.parts.memory_and_cache import Cache, Memory

BATTERY = Path(__file__).with_name("kernel_battery.py")


@has_triton
def test_kernels_equal_the_plain_step_in_the_interpreter() -> None:
    options = ("--device", "cpu", "--kinds", "norms before", "t5", "--rows", "1", "6")
    run_battery(BATTERY, *options, TRITON_INTERPRET="1")


@has_triton
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_the_interpreter(kind: str) -> None:
    run_battery(BATTERY, "--device", "cpu", "--kinds", kind, TRITON_INTERPRET="1")


@has_triton
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["norms before", "bart", "t5"])
def test_texts_after_trials_in_the_interpreter(kind: str) -> None:
    run_battery(BATTERY, "--device", "cpu", "--kinds", kind, "--rows", "1", "--trials", TRITON_INTERPRET="1")


@has_triton
@has_gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_a_gpu(kind: str, dtype: str) -> None:
    run_battery(BATTERY, "--kinds", kind, "--dtype", dtype)


@pytest.mark.parametrize("kind", ["norms before", "t5"])
def test_texts_are_the_same_with_the_choice_in_the_step(kind: str) -> None:
    result = texts(kind, len(ROWS), torch.float32, "cpu")
    assert result["right"], result


def test_greedy_steps_on_a_cpu_are_an_option() -> None:
    model = writer_of(random_bundle("norms before"))
    memory = model.encoder.new_memory(1, 16)
    model.prepare()
    assert not model.has_greedy_steps(memory)
    model.prepare(kernels=True)
    assert model.has_greedy_steps(memory)
    other, pieces, forbidden = Memory(memory.lengths), torch.zeros(1, dtype=torch.long), torch.zeros(99)
    assert not model.has_greedy_steps(other)
    with pytest.raises(ModelError, match="has greedy steps"):
        model.greedy_steps(pieces, other, forbidden, 4)


def test_what_kernels_do_not_compute_goes_the_plain_way() -> None:
    for kind in KINDS:
        encoder = writer_of(random_bundle(kind).float()).encoder
        assert kernels_fit(encoder)  # type: ignore[arg-type]
        assert not kernels_fit(encoder.double())  # type: ignore[arg-type]
    encoder = writer_of(random_bundle("norms before").float()).encoder
    encoder.layers[0].attention.keep([])  # type: ignore[union-attr,index]
    assert not kernels_fit(encoder)  # type: ignore[arg-type]


# --- trials: kernels that compute what the plain step does, or something else -----------------------------------------


class PlainKernels(KernelSteps):
    """The plain step in the place of kernels."""

    steps: FastSteps
    fails_early = False
    chooses_first = False

    def scores(self, pieces: Tensor, memory: Cache) -> Tensor:
        if self.fails_early and self.launch.early:
            raise KeyError("Keyword argument launch_pdl was specified but unrecognised")  # by an older Triton
        return self.plain(pieces, memory)

    def greedy_step(
        self, pieces: Tensor, memory: Cache, forbidden: Tensor, chosen: Tensor, likelihoods: Tensor
    ) -> None:
        self.steps.greedy_step(pieces, memory, forbidden, chosen, likelihoods, n_slots=memory.keys[0].shape[2])
        if self.chooses_first:
            chosen.zero_()
            pieces.zero_()


def plain_kernels(kind: str = "norms before") -> PlainKernels:
    report_fallback.cache_clear()
    steps = writer_of(random_bundle(kind).float()).steps
    assert steps is not None
    kernels = PlainKernels(
        steps.encoder, steps.output, steps._biases, ModuleType("kernels"), steps._plain_scores, early=True
    )
    kernels.steps = steps
    return kernels


@torch.no_grad()
@pytest.mark.parametrize("kind", ["norms before", "bart", "t5"])
def test_the_plain_step_passes_the_trial(kind: str) -> None:
    kernels = plain_kernels(kind)
    assert [kernels.serves(n_rows) for n_rows in (1, 4, 5, 64, 65)] == [True, True, True, True, False]
    kernels.serves(1)
    assert kernels.launch.early
    kernels.serves(5)
    assert not kernels.launch.early


@torch.no_grad()
def test_kernels_that_cannot_start_early_serve_one_after_another() -> None:
    kernels = plain_kernels()
    kernels.fails_early = True
    assert kernels.serves(1)
    assert not kernels.launch.early


@torch.no_grad()
def test_another_choice_fails_the_trial_and_is_reported_once() -> None:
    kernels = plain_kernels()
    kernels.chooses_first = True
    with pytest.warns(PolysemeWarning, match="Generation runs without its Triton kernels.*results differed") as caught:
        assert not any(kernels.serves_greedy_step(2) for _ in range(3))
    assert len(caught) == 1


@torch.no_grad()
def test_kernels_that_cannot_be_started_leave_texts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module without kernels, on what passes for a GPU."""
    model = language(writer_of(random_bundle("norms before").float()))
    expected = write_on(model, ROWS, Decoding(max_new=12))
    monkeypatch.setattr(kernel_trials, "gpu_capability", lambda device: (9, 0))
    monkeypatch.setitem(sys.modules, "polyseme.parts.row_kernels", ModuleType("row_kernels"))
    report_fallback.cache_clear()
    model.prepare(kernels=True)
    with pytest.warns(PolysemeWarning, match="Generation runs without its Triton kernels.*AttributeError") as caught:
        written = write_on(model, ROWS, Decoding(max_new=12))
    assert len(caught) == 1
    assert [one.pieces for (one,) in written] == [one.pieces for (one,) in expected]

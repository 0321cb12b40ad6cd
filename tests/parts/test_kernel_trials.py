"""Kernels that cannot be used leave the work to torch, and the reason is reported once.

The tests answer only the question which GPU there is; modules are loaded and tried as on a GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from parts.triton_battery import has_triton
from polyseme.encoders.packed_transformer import PackedTransformer
from polyseme.encoders.transformer import Transformer
from polyseme.errors import PolysemeWarning
from polyseme.parts import clipped_lstm, crf, kernel_trials
from polyseme.parts.crf import LinearChain
from polyseme.parts.kernel_trials import KernelModule, load_kernels, report_fallback, trial_failure, try_kernels
from polyseme.parts.recurrence import Reader
from tiny_models import tiny_model

CPU = torch.device("cpu")
MODULES = ("crf_kernels", "lstm_kernels", "packed_kernels", "row_kernels")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], None]:
    """Makes this device a GPU of some capability, in the eyes of what loads kernels; nothing was reported or tried."""

    def set_capability(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(kernel_trials, "gpu_capability", lambda device: capability)

    report_fallback.cache_clear()
    monkeypatch.setattr(crf, "KERNELS", KernelModule("A CRF", crf.KERNELS.module))
    monkeypatch.setattr(clipped_lstm, "KERNELS", KernelModule("An LSTM", clipped_lstm.KERNELS.module))
    return set_capability


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"polyseme.parts.{name}", raising=False)


# --- a trial ----------------------------------------------------------------------------------------------------------


def test_a_trial_within_the_bound_passes() -> None:
    assert trial_failure(lambda: 1e-3, 1e-3) is None


@pytest.mark.parametrize("worst", [2e-3, float("inf"), float("nan")])
def test_other_results_fail_the_trial(worst: float) -> None:
    reason = trial_failure(lambda: worst, 1e-3)
    assert f"{worst:.1e}" in str(reason)


def failure_of(error: BaseException) -> str | None:
    def trial() -> float:
        raise error

    return trial_failure(trial, 1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("no\n compiler"), "RuntimeError: no compiler"),
        (KeyError("launch_pdl was not recognized"), "KeyError: 'launch_pdl was not recognized'"),  # another version
        (ImportError("stub.so: invalid ELF header"), "ImportError: stub.so: invalid ELF header"),  # a damaged cache
        (json.JSONDecodeError("no value", "", 0), "JSONDecodeError: no value: line 1 column 1 (char 0)"),
        (AssertionError(), "AssertionError"),
        (
            RuntimeError("0 active drivers. There should only be one."),
            "RuntimeError: 0 active drivers. There should only be one",
        ),
    ],
)
def test_whatever_is_raised_fails_the_trial(error: Exception, reason: str) -> None:
    assert failure_of(error) == reason


def test_a_compiler_that_fails_has_one_reason_whatever_its_temporary_file() -> None:
    errors = [subprocess.CalledProcessError(1, ["/usr/bin/gcc", f"/tmp/{name}/main.c"]) for name in ("a", "b")]
    assert {failure_of(error) for error in errors} == {"/usr/bin/gcc ended with exit code 1"}


def test_the_keyboard_interrupts_a_trial() -> None:
    with pytest.raises(KeyboardInterrupt):
        failure_of(KeyboardInterrupt())


def test_a_reason_is_reported_once() -> None:
    report_fallback.cache_clear()
    with pytest.warns(PolysemeWarning, match=r"A CRF runs without its Triton kernels, more slowly: no compiler\."):
        report_fallback("A CRF", "no compiler")
    report_fallback("A CRF", "no compiler")  # warnings are errors in tests


# --- modules that cannot be loaded ------------------------------------------------------------------------------------


def test_a_cpu_has_no_kernels_and_nothing_is_reported() -> None:
    assert load_kernels("A CRF", "polyseme.parts.crf_kernels", CPU) is None
    assert KernelModule("A CRF", "polyseme.parts.crf_kernels").try_once(CPU, 3, lambda _: 0.0, 1.0) is None


def test_a_triton_that_cannot_be_loaded(
    gpu: Callable[[tuple[int, int]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "triton.py").write_text("raise RuntimeError('libtriton is of another version')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.delitem(sys.modules, "polyseme.parts.crf_kernels", raising=False)
    gpu((9, 0))
    with pytest.warns(PolysemeWarning, match="Triton cannot be loaded .RuntimeError: libtriton is of another version"):
        assert load_kernels("A CRF", "polyseme.parts.crf_kernels", CPU) is None


# --- all that has kernels ---------------------------------------------------------------------------------------------


def crf_results() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    chain = LinearChain(["O", "B-X", "I-X"], "BIO")
    scores, mask = torch.randn(2, 4, 3, generator=generator), torch.arange(4) < torch.tensor([[4], [2]])
    return [chain.log_partition(scores, mask).detach(), chain.marginals(scores, mask).detach()]


def lstm_results() -> list[Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        reader, x = Reader(6, 4, inner_width=8, cell_clip=0.1), torch.randn(2, 5, 6)
    with torch.no_grad():
        return [reader(x, torch.tensor([5, 3]), None, carried=True)[0]]


def packed_results() -> list[Tensor]:
    encoder = tiny_model("bert").bundle.copied().encoder.bfloat16()
    assert isinstance(encoder, Transformer)
    packed = PackedTransformer(encoder)
    packed.prepare()
    assert packed.kernels is None
    return []


EVERYTHING = {"A CRF": crf_results, "An LSTM": lstm_results, "Packed inference": packed_results}


@pytest.mark.parametrize("subject", EVERYTHING)
@pytest.mark.parametrize(
    ("capability", "reason"),
    [((7, 5), "this GPU has compute capability 7.5, and 8.0 is the least"), ((9, 0), "Triton is not installed")],
)
@pytest.mark.usefixtures("without_triton")
def test_torch_runs_where_kernels_cannot_be_loaded_and_says_so_once(
    subject: str, capability: tuple[int, int], reason: str, gpu: Callable[[tuple[int, int]], None]
) -> None:
    run = EVERYTHING[subject]
    expected = run()
    gpu(capability)
    with pytest.warns(PolysemeWarning) as caught:
        results = [run(), run()]
    assert len(caught) == 1
    assert f"{subject} runs without its Triton kernels, more slowly: {reason}" in str(caught[0].message)
    for result in results:
        for mine, right in zip(result, expected, strict=True):
            assert torch.equal(mine, right)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def forwards(*_): raise RuntimeError('device kernel image is invalid')", "device kernel image is invalid"),
        ("def forwards(scores, *_): return 0 * scores\nbackwards = forwards", "on trial, results differed by"),
    ],
)
def test_torch_runs_where_kernels_fail_their_trial(
    source: str,
    reason: str,
    gpu: Callable[[tuple[int, int]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "failing_kernels.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_kernels", raising=False)
    expected = crf_results()
    gpu((9, 0))
    monkeypatch.setattr(crf, "KERNELS", KernelModule("A CRF", "failing_kernels"))
    with pytest.warns(PolysemeWarning, match=reason) as caught:
        results = [crf_results(), crf_results()]
    assert len(caught) == 1
    assert all(torch.equal(mine, right) for each in results for mine, right in zip(each, expected, strict=True))


@has_triton
def test_torch_runs_where_triton_finds_no_driver_or_no_gpu(gpu: Callable[[tuple[int, int]], None]) -> None:
    """Triton itself fails here: it has no driver, or does not take tensors of a CPU."""
    expected = crf_results()
    gpu((9, 0))
    with pytest.warns(PolysemeWarning, match="A CRF runs without its Triton kernels, more slowly: .*Error") as caught:
        results = [crf_results(), crf_results()]
    assert len(caught) == 1
    assert all(torch.equal(mine, right) for each in results for mine, right in zip(each, expected, strict=True))


def test_kernels_that_pass_are_tried_once(gpu: Callable[[tuple[int, int]], None]) -> None:
    gpu((9, 0))
    tried = []
    kernels = KernelModule("Arithmetic", "math")
    for case in (1, 1, 2):
        module = kernels.try_once(CPU, case, lambda module: tried.append(module) or 0.0, 1.0)  # type: ignore[func-returns-value]
        assert module is sys.modules["math"]
    assert len(tried) == 2
    assert try_kernels("Arithmetic", "math", CPU, lambda _: 1.0, 1.0) is sys.modules["math"]

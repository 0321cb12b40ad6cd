"""Kernels that cannot be used leave the work to torch, and the reason is reported once."""

from __future__ import annotations

import pytest

from polyseme.errors import PolysemeWarning
from polyseme.parts.kernel_trials import report_fallback, trial_failure


def test_a_trial_within_the_bound_passes() -> None:
    assert trial_failure(lambda: 1e-3, 1e-3) is None


@pytest.mark.parametrize("worst", [2e-3, float("inf"), float("nan")])
def test_other_results_fail_the_trial(worst: float) -> None:
    reason = trial_failure(lambda: worst, 1e-3)
    assert f"{worst:.1e}" in str(reason)


def test_what_cannot_be_compiled_fails_the_trial() -> None:
    def trial() -> float:
        raise RuntimeError("no\n compiler")

    assert trial_failure(trial, 1.0) == "RuntimeError: no compiler"


def test_a_mistake_in_a_trial_is_raised() -> None:
    def trial() -> float:
        raise TypeError("a mistake")

    with pytest.raises(TypeError):
        trial_failure(trial, 1.0)


def test_a_reason_is_reported_once() -> None:
    report_fallback.cache_clear()
    with pytest.warns(PolysemeWarning, match=r"A CRF runs without its Triton kernels, more slowly: no compiler\."):
        report_fallback("A CRF", "no compiler")
    report_fallback("A CRF", "no compiler")  # warnings are errors in tests

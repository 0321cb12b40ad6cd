"""Every schedule against its published equation, and what all of them have in common."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import OptionError
from polyseme.training.schedules import Schedule

USES = {
    "constant": frozenset({"warmup"}),
    "linear": frozenset({"warmup", "floor"}),
    "cosine": frozenset({"warmup", "floor"}),
    "noam": frozenset({"warmup"}),
    "slanted-triangular": frozenset({"cut_share", "ratio"}),
    "warmup-stable-decay": frozenset({"warmup", "floor", "decay"}),
}
"""Which settings a kind reads."""
KINDS = sorted(USES)
N = 1000


def close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12)


# --- the equations ---------------------------------------------------------------------------------------------------


def test_linear_is_the_triangle_of_bert_and_its_kin() -> None:
    """Warmup t/W for the t-th step, then (n - s)/(n - W) after s steps, as transformers has it."""
    warmup = 100
    for step in range(N):
        t, s = step + 1, step
        expected = t / warmup if t <= warmup else (N - s) / (N - warmup)
        assert close(Schedule(kind="linear", warmup=0.1).factor(step, N), expected)


def test_cosine_is_sgdr_in_one_cycle() -> None:
    """Loshchilov and Hutter 2017, (5): η = η_min + ½ (η_max - η_min)(1 + cos(T_cur/T_i · π))."""
    for step in range(100, N):
        t_cur, t_i, low = step - 100, N - 100, 0.1
        expected = low + 0.5 * (1 - low) * (1 + math.cos(t_cur / t_i * math.pi))
        assert close(Schedule(kind="cosine", warmup=100, floor=low).factor(step, N), expected)


def test_noam_is_the_transformers_over_its_peak() -> None:
    """Vaswani et al. 2017, (3): d^-0.5 · min(step^-0.5, step · warmup^-1.5)."""
    width, warmup = 512, 250

    def rate(number: int) -> float:
        return float(width**-0.5 * min(number**-0.5, number * warmup**-1.5))

    for step in range(N):
        expected = rate(step + 1) / rate(warmup)
        assert close(Schedule(kind="noam", warmup=warmup).factor(step, N), expected)


@pytest.mark.parametrize(("n_steps", "cut_frac", "ratio"), [(1000, 0.1, 32), (1000, 0.25, 10), (105, 0.1, 32)])
def test_the_slanted_triangle_is_ulmfits(n_steps: int, cut_frac: float, ratio: float) -> None:
    """Howard and Ruder 2018, (3), but never below its lower end."""
    schedule = Schedule(kind="slanted-triangular", cut_share=cut_frac, ratio=ratio)
    cut = math.floor(n_steps * cut_frac)
    for t in range(n_steps):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert close(schedule.factor(t, n_steps), (1 + max(p, 0) * (ratio - 1)) / ratio)


def test_warm_up_stable_decay_is_minicpms_with_a_straight_end() -> None:
    """Hu et al. 2024, (1): s/W · η, then η, then f(s - T) · η; f falls straight, as in Hägele et al. 2024."""
    warmup, stable = 100, 800
    for step in range(N):
        t, s = step + 1, step
        expected = t / warmup if t <= warmup else 1.0 if s <= stable else 1 - (s - stable) / (N - stable)
        assert close(Schedule(kind="warmup-stable-decay", warmup=100, decay=0.2).factor(step, N), expected)


def test_constant_rises_and_stays() -> None:
    found = [Schedule(kind="constant", warmup=4).factor(step, 8) for step in range(8)]
    assert found == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    assert Schedule(kind="constant", warmup=0).factor(0, 8) == 1


# --- what they have in common ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(n_steps=st.integers(20, 3000), warmup=st.floats(0.01, 0.5))
def test_the_peak_is_one_and_no_step_is_lost(kind: str, n_steps: int, warmup: float) -> None:
    schedule = Schedule(kind=kind, warmup=warmup)  # type: ignore[arg-type]
    factors = [schedule.factor(step, n_steps) for step in range(n_steps)]
    assert close(max(factors), 1.0)
    assert min(factors) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_does_not_jump(kind: str) -> None:
    schedule = Schedule(kind=kind, warmup=0.1)  # type: ignore[arg-type]
    factors = [schedule.factor(step, 10_000) for step in range(10_001)]
    assert max(abs(after - before) for before, after in itertools.pairwise(factors)) <= 1.0001 / 1000


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "floor" in USES[kind]])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_decay_ends_at_its_floor(kind: str, floor: float) -> None:
    schedule = Schedule(kind=kind, warmup=0.1, floor=floor)  # type: ignore[arg-type]
    assert close(schedule.factor(N, N), floor)
    assert close(schedule.factor(N + 50, N), floor)
    assert schedule.factor(N - 1, N) > floor


def test_the_slanted_triangle_ends_where_it_began() -> None:
    schedule = Schedule(kind="slanted-triangular")
    assert close(schedule.factor(0, N), 1 / 32)
    assert close(schedule.factor(N, N), 1 / 32)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_does_not_read_does_not_matter(kind: str) -> None:
    base = Schedule(kind=kind)  # type: ignore[arg-type]
    other = {"warmup": 0.4, "floor": 0.3, "decay": 0.6, "cut_share": 0.3, "ratio": 5.0}
    for name, value in other.items():
        changed = base.replace(**{name: value})
        differs = any(base.factor(step, 100) != changed.factor(step, 100) for step in range(100))
        assert differs == (name in USES[base.kind]), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_the_shortest_runs_have_a_rate(kind: str, n_steps: int) -> None:
    for warmup in (0.0, 0.1, 1, 5):
        schedule = Schedule(kind=kind, warmup=warmup)  # type: ignore[arg-type]
        assert all(0 < schedule.factor(step, n_steps) <= 1 for step in range(n_steps))


def test_a_warm_up_is_a_share_or_a_number_of_steps() -> None:
    assert Schedule(warmup=0.06).warmup_steps(1000) == 60
    assert Schedule(warmup=1).warmup_steps(1000) == 1
    assert Schedule(warmup=10_000).warmup_steps(1000) == 1000


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "cosin"}, "cosine"),
        ({"warmup": -1}, "-1"),
        ({"warmup": 1.5}, "1.5"),
        ({"warmup": float("nan")}, "nan"),
        ({"floor": 2}, "floor"),
        ({"decay": -0.1}, "decay"),
        ({"cut_share": 0}, "cut_share"),
        ({"ratio": 0.5}, "ratio"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        Schedule(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_goes_to_json_and_back(kind: str) -> None:
    schedule = Schedule(kind=kind, warmup=500, floor=0.1)  # type: ignore[arg-type]
    assert Schedule.from_json(schedule.to_json()) == schedule

"""The ledger: what a run cost in pieces, operations, seconds, energy, carbon dioxide and money.

Energy comes from a meter (`energy_meter`). Carbon dioxide and money follow from it by stated rates.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from polyseme.config import Config
from polyseme.cost import format_scaled
from polyseme.errors import OptionError, nearest

JOULES_PER_KWH = 3.6e6
LARGEST_SIDE = 8192
SHORTEST_MEASUREMENT = 0.02
"""Seconds that one measurement of the speed of products takes at least: larger products up to a side, then more."""


@dataclass(frozen=True, kw_only=True)
class Rates(Config):
    """How energy becomes carbon dioxide and money, and time becomes energy where nothing measures it."""

    kg_per_kwh: float = 0.481
    """CO₂e of a kWh. The world's mean in 2023 (Ember, 2024); France 0.056, Germany 0.381, India 0.713."""
    price_per_kwh: float = 0.13
    """About what a kWh cost businesses in the United States in 2024 (Energy Information Administration)."""
    price_per_device_hour: float | None = None
    """What an hour of one device costs where it is rented; energy is then in it."""
    currency: str = "USD"
    watts_per_core: float = 10.0
    """Of a busy CPU core, where nothing measures it: large server chips take about 5, those of desktops about 15."""
    watts_per_gpu: float = 400.0
    """Of a busy GPU, where nothing measures it: what an A100 may take; an H200 may take 700, a T4 70."""

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if isinstance(value, float | int) and not 0 <= value < float("inf"):
                raise OptionError(f"The rate {name} must be 0 or more. Got {value} instead.")

    @classmethod
    def of(cls, changes: Mapping[str, Any] | None) -> Rates:
        """The rates with a user's changes."""
        usual = cls().to_json()
        for name, value in (changes or {}).items():
            if name not in usual:
                raise OptionError(f"There is no rate {name!r}. {nearest(name, usual)}")
            if name != "currency" and (isinstance(value, bool) or not isinstance(value, float | int)):
                raise OptionError(f"The rate {name} must be a number. Got {value!r} instead.")
        return cls(**(changes or {}))


UNIGRAM_ENTROPY = "the unigram entropy"


@dataclass(frozen=True, kw_only=True)
class Ledger(Config):
    """What a run has cost so far; sessions of a run that was resumed add up."""

    pieces: int
    flops: float
    """By analysis: what the objective needs, whatever the device did besides."""
    seconds: float
    """Of training, evaluations and checkpoints included."""
    total_seconds: float = 0.0
    """From the start of each command to its end: also set-up, compilation, timing, saving, and building the corpus
    where the command did that; 0: not measured."""
    steps: int
    device: str
    n_devices: int = 1
    """The most that ran at once."""
    device_seconds: float
    available_flops: float = 0.0
    """What the devices could have done in that time, by the products measured on them; 0: not measured."""
    kwh: float
    kwh_estimated: float = 0.0
    """How much of it was not measured."""
    kg_co2e: float
    price: float
    currency: str = "USD"
    n_sessions: int = 1
    held_out: float | None = None
    """What it reached: the loss of predicting pieces of held-out text, in nats; None: it was not evaluated, or predicts
    none."""
    unigram_entropy: float | None = None
    """The same loss for a model that knows how frequent each piece is in the training text, and nothing else."""
    baseline_name: str = UNIGRAM_ENTROPY
    """What that is called for this objective."""

    @classmethod
    def of(
        cls,
        *,
        pieces: int,
        flops: float,
        seconds: float,
        steps: int,
        device: str,
        joules: float,
        measured: bool,
        n_devices: int = 1,
        total_seconds: float = 0.0,
        peak: float = 0.0,
        rates: Rates | None = None,
    ) -> Ledger:
        """The ledger of one session; `peak` is of one device (`measured_peak`), `joules` of all."""
        rates = rates or Rates()
        device_seconds = seconds * n_devices
        kwh = joules / JOULES_PER_KWH
        rent = rates.price_per_device_hour
        return cls(
            pieces=pieces,
            flops=flops,
            seconds=seconds,
            total_seconds=total_seconds,
            steps=steps,
            device=device,
            n_devices=n_devices,
            device_seconds=device_seconds,
            available_flops=peak * device_seconds,
            kwh=kwh,
            kwh_estimated=0.0 if measured else kwh,
            kg_co2e=kwh * rates.kg_per_kwh,
            price=kwh * rates.price_per_kwh if rent is None else rent * device_seconds / 3600,
            currency=rates.currency,
        )

    @property
    def utilization(self) -> float | None:
        """The share of what the devices could have done; None where that was not measured."""
        return self.flops / self.available_flops if self.available_flops else None

    @property
    def measured(self) -> bool:
        """Whether all of the energy was."""
        return self.kwh_estimated == 0

    def add(self, other: Ledger) -> Ledger:
        """This session and a later one of the same run together."""
        if self.currency != other.currency:
            raise OptionError(
                f"The run's costs are in {self.currency} so far, and cannot be continued in {other.currency}. Give the "
                "rates in the currency of the run."
            )
        devices = dict.fromkeys([*self.device.split(", then "), other.device])
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in dataclasses.fields(self)
            if each.name not in ("device", "n_devices", "currency", "held_out", "unigram_entropy", "baseline_name")
        }
        if not (self.available_flops and other.available_flops):
            sums["available_flops"] = 0.0
        return Ledger(
            **sums,
            device=", then ".join(devices),
            n_devices=max(self.n_devices, other.n_devices),
            currency=self.currency,
            held_out=self.held_out if other.held_out is None else other.held_out,
            baseline_name=other.baseline_name,
            unigram_entropy=self.unigram_entropy if other.unigram_entropy is None else other.unigram_entropy,
        )

    def to_json(self) -> dict[str, Any]:
        """Every field, and what follows from them."""
        return {**super().to_json(), "utilization": self.utilization, "measured": self.measured}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Ledger:
        """The ledger of `to_json`."""
        derived = ("utilization", "measured")
        return super().from_json({name: each for name, each in settings.items() if name not in derived})

    def lines(self) -> list[str]:
        """For the terminal.

        >>> bill = Ledger.of(pieces=10**9, flops=3e17, seconds=1200, total_seconds=1320, steps=8000,
        ...                  device="NVIDIA H200", joules=7.2e5, measured=True, peak=7.5e14)
        >>> for line in bill.replace(held_out=2.41, unigram_entropy=6.7).lines():
        ...     print(line)
        held-out loss 2.41 nats, 4.29 below the unigram entropy of 6.70
        8,000 steps, 1,000,000,000 pieces in 20.0 min (22.0 min in total) on NVIDIA H200 (833,333 pieces/s)
        3.0e+17 FLOPs (250.0 TFLOP/s, 33% of the matrix product's speed there)
        0.200 kWh (measured), 0.0962 kg of CO₂e, 0.0260 USD
        """
        seconds = max(self.seconds, 1e-9)
        steps = f"{self.steps:,} step{'' if self.steps == 1 else 's'}, " if self.steps else ""
        devices = self.device if self.n_devices == 1 else f"{self.n_devices} × {self.device}"
        sessions = f" in {self.n_sessions} sessions" if self.n_sessions > 1 else ""
        total = f" ({duration(self.total_seconds)} in total)" if self.total_seconds else ""
        share = "" if self.utilization is None else f", {self.utilization:.0%} of the matrix product's speed there"
        energy = "measured" if self.measured else "estimated" if self.kwh_estimated == self.kwh else "partly estimated"
        return [
            *self._loss_lines(),
            f"{steps}{self.pieces:,} pieces in {duration(self.seconds)}{total}{sessions} on {devices} "
            f"({self.pieces / seconds:,.0f} pieces/s)",
            *([f"{self.flops:.1e} FLOPs ({format_scaled(self.flops / seconds)}FLOP/s{share})"] if self.flops else []),
            f"{_digits(self.kwh)} kWh ({energy}), {_digits(self.kg_co2e)} kg of CO₂e, "
            f"{_digits(self.price)} {self.currency}",
        ]

    def _loss_lines(self) -> list[str]:
        """The loss on held-out text, and how far that is from knowing how frequent pieces are."""
        if self.held_out is None:
            return []
        unit = " nats" if self.baseline_name == UNIGRAM_ENTROPY else ""
        line = f"held-out loss {_loss(self.held_out)}{unit}"
        if self.unigram_entropy is not None:
            gain = self.unigram_entropy - self.held_out
            side = "below" if gain >= 0 else "above"
            line += f", {_loss(abs(gain))} {side} {self.baseline_name} of {_loss(self.unigram_entropy)}"
        return [line]


def measured_peak(device: torch.device | str, dtype: torch.dtype) -> float:
    """The floating-point operations a second of a large matrix product, the best of some tenths of a second.

    Measured once in a process for a device, a type and a number of threads.
    """
    return _measured_peak(torch.device(device), dtype, torch.get_num_threads())


@functools.cache
def _measured_peak(device: torch.device, dtype: torch.dtype, n_threads: int) -> float:
    side, taken = 128, 0.0
    while side < LARGEST_SIDE and taken < SHORTEST_MEASUREMENT:
        side *= 2
        one = torch.rand(side, side, dtype=torch.float32, device=device).to(dtype)
        _seconds_of_product(one, 1)  # the first of a size also chooses how to do it
        taken = _seconds_of_product(one, 1)
    n_products = max(1, round(SHORTEST_MEASUREMENT / taken))
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        taken = min(taken, _seconds_of_product(one, n_products))
    return 2.0 * side**3 / taken


def _seconds_of_product(one: torch.Tensor, n_products: int) -> float:
    _wait(one.device)
    started = time.perf_counter()
    for _ in range(n_products):
        one @ one
    _wait(one.device)
    return max((time.perf_counter() - started) / n_products, 1e-9)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


# --- words -----------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(42), duration(750), duration(90000)
    ('42.0 s', '12.5 min', '25.0 h')
    """
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"


def _loss(number: float) -> str:
    """With two digits behind the point, or two that say something.

    >>> _loss(2.414), _loss(0.01234)
    ('2.41', '0.012')
    """
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def _digits(value: float) -> str:
    """Three digits that count, however small the value.

    >>> _digits(0.000123456), _digits(12.3456), _digits(98765.4)
    ('0.000123', '12.3', '98,765')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if value >= 1e-4 or value == 0 else f"{value:.2e}"

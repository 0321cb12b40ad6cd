"""The budget of a run: a time, an amount of computing, of text, or a number of steps."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, get_args

from polyseme.config import Config
from polyseme.errors import OptionError

BudgetUnit = Literal["seconds", "flops", "pieces", "epochs", "steps"]

EXAMPLES = "90s, 20min, 1.5h, 2d, 3e16flops, 1e9pieces, 5epochs, 1000steps"

MOST = 1e30
"""Of any unit; more is taken for a mistake."""

_UNITS: dict[str, tuple[BudgetUnit, int]] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), ("seconds", 1)),
    **dict.fromkeys(("min", "minute", "minutes"), ("seconds", 60)),
    **dict.fromkeys(("h", "hour", "hours"), ("seconds", 3600)),
    **dict.fromkeys(("d", "day", "days"), ("seconds", 86400)),
    **dict.fromkeys(("flop", "flops"), ("flops", 1)),
    **dict.fromkeys(("piece", "pieces"), ("pieces", 1)),
    **dict.fromkeys(("epoch", "epochs"), ("epochs", 1)),
    **dict.fromkeys(("step", "steps"), ("steps", 1)),
}
"""The units after the number, in small letters, and how much of the budget's own unit it is."""

_BUDGET = re.compile(r"(?P<number>[0-9][0-9_]*(\.[0-9]+)?(e[+]?[0-9]{1,3})?)\s*(?P<unit>[a-z]+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Budget(Config):
    """An amount of one unit; written as `parse_budget` reads it.

    >>> str(Budget(unit="seconds", amount=1200))
    '20min'
    """

    unit: BudgetUnit
    amount: float
    """Whole where steps or pieces are counted."""

    def __post_init__(self) -> None:
        counted = self.unit in ("pieces", "steps")
        if self.unit not in get_args(BudgetUnit) or not 0 < self.amount < MOST:
            raise OptionError(
                f"A budget must be above 0 and below {MOST:g}, as in {EXAMPLES}. Got {self.amount} {self.unit} instead."
            )
        if counted and self.amount != int(self.amount):
            raise OptionError(f"A budget in {self.unit} must be a whole number of them. Got {self.amount} instead.")
        object.__setattr__(self, "amount", int(self.amount) if counted else float(self.amount))

    def n_steps(self, *, seconds: float, flops: float, pieces: float, epochs: float = math.inf) -> int:
        """How many steps fit, at least one, where each takes so much."""
        if self.unit == "steps":
            return int(self.amount)
        each = {"seconds": seconds, "flops": flops, "pieces": pieces, "epochs": epochs}[self.unit]
        if not 0 < each < math.inf:
            raise ValueError(f"A step must take some {self.unit}, and takes {each}.")
        return max(1, int(self.amount / each * (1 + 1e-12)))  # 0.3 s are three steps of 0.1 s

    def __str__(self) -> str:
        if self.unit != "seconds":
            return f"{_format_amount(self.amount)}{self.unit}"
        for name in ("d", "h", "min"):
            size = _UNITS[name][1]
            if self.amount % size == 0:
                return f"{_format_amount(self.amount // size)}{name}"
        return f"{_format_amount(self.amount)}s"


def parse_budget(text: str) -> Budget:
    """A budget as a user writes it; blanks and capitals do not matter.

    >>> parse_budget("1.5 h")
    Budget(unit='seconds', amount=5400.0)
    >>> parse_budget("2_000steps")
    Budget(unit='steps', amount=2000)
    """
    match = _BUDGET.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in _UNITS:
        raise OptionError(
            f"The budget {text!r} cannot be read. It must be a number above 0 and its unit (s, min, h, d, flops, "
            f"pieces, epochs or steps), as in {EXAMPLES}."
        )
    unit, size = _UNITS[match["unit"]]
    amount = Decimal(match["number"].replace("_", "")) * size
    whole = unit in ("pieces", "steps") and amount < MOST and amount == int(amount)
    try:
        return Budget(unit=unit, amount=int(amount) if whole else float(amount))
    except OptionError as error:
        raise OptionError(f"The budget {text!r} is out of range. {error}") from None


def parse_time(text: str, name: str) -> float:
    """A time as a user writes it for the option `name`, in seconds.

    >>> parse_time("9min", "stop_after")
    540.0
    """
    try:
        time = parse_budget(text)
    except OptionError:
        raise OptionError(
            f"The time of {name} {text!r} cannot be read. It must be a number above 0 and its unit (s, min, h or d), "
            "as in 90s, 9min, 1.5h."
        ) from None
    if time.unit != "seconds":
        raise OptionError(f"The option {name} must be a time, as in 90s, 9min, 1.5h. Got {text!r} instead.")
    return time.amount


def _format_amount(amount: float) -> str:
    if amount == int(amount) and amount < 1e15:
        return str(int(amount))
    if isinstance(amount, int):
        return str(amount)
    return f"{Decimal(repr(amount)):f}" if amount < 1 else repr(amount).replace("e+", "e")

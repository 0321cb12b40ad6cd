"""How texts are written: the checked options of `generate`, and which of them contradict each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.errors import OptionError
from polyseme.verb_options.text_options import DecodingOptions, EarlyStopping

MAX_NEW = 20
"""Most pieces that are written, unless another number is set."""
MAX_FROM_SOURCE = 200
"""The same of a model that writes texts of its own from sources, and has learned to end them."""
TEMPERATURE = 0.8
TOP_P = 0.95
"""How texts are sampled unless options say it: from a nucleus (Holtzman et al. 2020), a little cooled."""
CHOICE = ("temperature", "top_k", "top_p", "beam")
"""Options that say how pieces are chosen."""


@dataclass(frozen=True, kw_only=True)
class Decoding(DecodingOptions):
    """What decides which piece follows, and when a text ends; contradictions are refused at once."""

    max_new: int = MAX_NEW
    min_new: int = 0
    beam: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0

    @classmethod
    def of(
        cls,
        options: DecodingOptions,
        max_new: int = MAX_NEW,
        *,
        samples: bool = True,
        defaults: Mapping[str, Any] | None = None,
    ) -> Decoding:
        """The options, then the `defaults` that a model brings; where neither says how pieces are chosen, by sampling.

        Not so with a beam, nor by models that write a text of their own from a source, where one answer is wanted. Once
        an option says how pieces are chosen, the model's defaults for that do not count.
        """
        values = {name: value for name, value in options.values(DecodingOptions).items() if value is not None}
        theirs = dict(defaults or {})
        if options.greedy or any(name in values for name in CHOICE) or options.n > theirs.get("beam", 1):
            theirs = {name: value for name, value in theirs.items() if name not in (*CHOICE, "greedy")}
        if values.get("beam", theirs.get("beam", 1)) == 1:
            theirs = {name: value for name, value in theirs.items() if name not in ("length_penalty", "early_stopping")}
        values["max_new"] = values.get("max_new", theirs.pop("max_new", max_new))
        if "min_new" in theirs:
            theirs["min_new"] = min(theirs["min_new"], values["max_new"])
        greedy = options.greedy or theirs.get("greedy", False)
        values = {**theirs, **values, "greedy": greedy}
        chosen = greedy or any(name in values for name in ("temperature", "top_k", "top_p"))
        if samples and values.get("beam", 1) == 1 and not chosen:
            values |= {"temperature": TEMPERATURE, "top_p": TOP_P}
        return cls(**values)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        for name, least in _WHOLE.items():
            _check_whole(name, getattr(self, name), least)
        for name in ("top_k", "stride"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1)
        for name in ("temperature", "top_p", "length_penalty", "repetition_penalty"):
            _check_number(name, getattr(self, name))
        self._check_ranges()
        self._check_contradictions()

    @property
    def heat(self) -> float:
        """The temperature, or where none is set, what the other options imply."""
        if self.greedy:
            return 0.0
        if self.temperature is not None:
            return float(self.temperature)
        samples = self.top_k is not None or self.top_p is not None or (self.n > 1 and self.beam == 1)
        return 1.0 if samples else 0.0

    @property
    def rows(self) -> int:
        """Rows per prompt."""
        return max(self.beam, self.n)

    def _check_ranges(self) -> None:
        if self.temperature is not None and self.temperature < 0:
            raise OptionError(f"The temperature must be at least 0. Got {self.temperature} instead.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise OptionError(f"'top_p' is a share of the probability, over 0 and at most 1. Got {self.top_p} instead.")
        if self.repetition_penalty <= 0:
            raise OptionError(f"The repetition penalty must be over 0. Got {self.repetition_penalty} instead.")
        if self.early_stopping not in (True, False, "never"):
            raise OptionError(f"Early stopping is True, False or 'never'. Got {self.early_stopping!r} instead.")
        if self.min_new > self.max_new:
            raise OptionError(
                f"A text cannot have at least {self.min_new} and at most {self.max_new} new pieces. Raise 'max_new', "
                "or lower 'min_new'."
            )
        for each in self.stop:
            if not isinstance(each, str) or not each:
                raise OptionError(f"A stop string is a string of at least 1 character. Got {each!r} instead.")

    def _check_contradictions(self) -> None:
        drawing = [name for name in ("temperature", "top_k", "top_p") if getattr(self, name)]
        if self.greedy and (drawing or self.n > 1 or self.beam > 1):
            others = _list_names(drawing) if drawing else "several texts, nor a beam"
            raise OptionError(
                f"Greedy takes the likeliest piece each time, so it has no use for {others}. Leave out one."
            )
        filters = [name for name in ("top_k", "top_p") if getattr(self, name) is not None]
        drawn = [*filters, *(["temperature"] if self.temperature else [])]
        if self.beam > 1 and drawn:
            raise OptionError(
                f"A beam keeps the likeliest texts and draws none, so it has no use for {_list_names(drawn)}. Leave "
                "out either."
            )
        if self.temperature == 0 and filters:
            raise OptionError(
                f"A temperature of 0 takes the likeliest piece, so there is no use for {_list_names(filters)}. Give a "
                f"temperature over 0, or leave out {_list_names(filters)}."
            )
        if self.temperature == 0 and self.n > 1 and self.beam == 1:
            raise OptionError(
                f"A temperature of 0 writes the same text {self.n} times. For several texts per prompt, give a "
                "temperature over 0, or a beam."
            )
        if 1 < self.beam < self.n:
            raise OptionError(f"A beam of {self.beam} has no {self.n} best texts. Widen the beam, or lower 'n'.")
        if self.beam == 1 and (self.length_penalty != 1 or self.early_stopping is not False):
            raise OptionError("A length penalty and early stopping are about a beam. Give a beam of at least 2.")


_WHOLE = {"max_new": 1, "min_new": 0, "beam": 1, "n": 1, "no_repeat_ngram": 0, "seed": None}


def _check_whole(name: str, value: Any, least: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        at_least = "" if least is None else f" of at least {least}"
        raise OptionError(f"{name!r} must be a whole number{at_least}. Got {value!r} instead.")


def _check_number(name: str, value: Any) -> None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    ):
        raise OptionError(f"{name!r} must be a number. Got {value!r} instead.")


def _list_names(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)

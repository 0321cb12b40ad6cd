"""How to write on: the settings of `generate`, and which of them contradict each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polyseme.config import Config
from polyseme.errors import OptionError

EarlyStopping = bool | Literal["never"]
MAX_NEW = 20
"""Pieces that are written at most, where nothing is said."""
MAX_FROM_SOURCE = 200
"""The same of a model that makes texts of its own from sources, and has learned to end them."""


@dataclass(frozen=True, kw_only=True)
class Decoding(Config):
    """What decides which piece follows, and when a text ends; what cannot be meant is refused at once."""

    max_new: int = MAX_NEW
    """Pieces that are written at most."""
    min_new: int = 0
    """Pieces before which a text does not end by itself."""
    temperature: float | None = None
    """What log-probabilities are divided by before a piece is drawn; 0 takes the likeliest. None: 1 where drawing is
    asked for otherwise (`top_k`, `top_p`, or `n` without a beam), else 0."""
    top_k: int | None = None
    """Draw among so many of the likeliest pieces."""
    top_p: float | None = None
    """Draw among the fewest of the likeliest pieces that have this much of the probability."""
    beam: int = 1
    """How many texts a prompt are kept side by side, the likeliest of all their continuations."""
    length_penalty: float = 1.0
    """A text's score in a beam is its log-probability by its length to this power: above 0, longer ones gain."""
    early_stopping: EarlyStopping = False
    """Whether a beam ends once it has as many finished texts as it is wide; False: once it is unlikely, "never": once
    it is impossible, that a better one comes."""
    n: int = 1
    """How many texts a prompt: so many draws, or the best of a beam."""
    repetition_penalty: float = 1.0
    """What the log-probability of a piece is multiplied by if it stands in the text already, prompt included."""
    no_repeat_ngram: int = 0
    """Never write so many pieces that stand in the text in this order already; 0: no bound."""
    stop: Sequence[str] = ()
    """Strings at which a text ends; it is cut before them."""
    seed: int = 0
    stride: int | None = None
    """By how many pieces what is read moves on when it has filled the model's positions; None: that is refused."""

    def __post_init__(self) -> None:
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
        """The temperature, where it is not given as what the other settings ask for."""
        if self.temperature is not None:
            return float(self.temperature)
        asked = self.top_k is not None or self.top_p is not None or (self.n > 1 and self.beam == 1)
        return 1.0 if asked else 0.0

    @property
    def rows(self) -> int:
        """How many rows a prompt takes."""
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
        filters = [name for name in ("top_k", "top_p") if getattr(self, name) is not None]
        drawn = [*filters, *(["temperature"] if self.temperature else [])]
        if self.beam > 1 and drawn:
            raise OptionError(
                f"A beam keeps the likeliest texts and draws none, so it has no use for {_named(drawn)}. Leave out "
                "either."
            )
        if self.temperature == 0 and filters:
            raise OptionError(
                f"A temperature of 0 takes the likeliest piece, so there is no use for {_named(filters)}. Give a "
                f"temperature over 0, or leave out {_named(filters)}."
            )
        if self.temperature == 0 and self.n > 1 and self.beam == 1:
            raise OptionError(
                f"A temperature of 0 writes the same text {self.n} times. For several texts a prompt, give a "
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


def _named(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)

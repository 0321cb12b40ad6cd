"""n-gram models with Kneser–Ney smoothing: recipes that count, and train nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyseme.errors import OptionError, nearest
from polyseme.ngrams.kneser_ney import Smoothing, check_settings


@dataclass(frozen=True, kw_only=True)
class CountedRecipe:
    """How an n-gram model is made of a text."""

    name: str
    system: str
    paper: str
    order: int
    smoothing: Smoothing
    discount: float | None = None
    """One for all counts, of interpolated smoothing; None: derived from the counts."""
    tokenizer: str
    frame: str
    vocabulary: int
    min_count: int = 1
    lowercase: bool = False
    note: str = ""

    def frame_of_rows(self) -> str:
        """The specials of a tokenizer that is trained for it, by name."""
        return self.frame

    def settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Order, smoothing and discount, with a user's changes."""
        usual = {name: getattr(self, name) for name in ("order", "smoothing", "discount")}
        for name in changes:
            if name not in usual:
                raise OptionError(f"The recipe {self.name} has no setting {name!r}. {nearest(name, usual)}")
        settings = {**usual, **changes}
        check_settings(**settings)
        return settings


RECIPES = (
    CountedRecipe(
        name="kneser-ney",
        system="n-gram model",
        paper="Kneser and Ney 1995; Chen and Goodman 1998",
        order=5,
        smoothing="modified",
        tokenizer="words",
        frame="lm",
        vocabulary=200_000,
        note="counted, not trained: order, smoothing (modified, interpolated) and discount are set with --set; for "
        "WikiText: --tokenizer blanks --documents line",
    ),
)

"""What a recipe is to learn from, as a user names it: texts, a corpus, or both sides of texts in pairs."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from polyseme.corpus.corpus import ABOUT
from polyseme.corpus.documents import by_name
from polyseme.errors import OptionError
from polyseme.files.found import AnyPath, Sources
from polyseme.objectives.named import objective_from
from polyseme.recipes.recipe import Recipe


@dataclass(frozen=True)
class Texts:
    """What is to be trained on: texts, a corpus, or both sides of texts in pairs."""

    sources: Sources | None
    source: Sources | None
    target: Sources | None
    held_source: Sources | None
    held_target: Sources | None

    @property
    def named(self) -> list[str]:
        """Which of them were given."""
        return [each.name for each in dataclasses.fields(self) if getattr(self, each.name) is not None]

    @property
    def corpus(self) -> Path | None:
        """The corpus that is named, if one is."""
        if self.sources is None or len(self.named) > 1:
            return None
        listed = _listed(self.sources)
        if len(listed) == 1 and (Path(listed[0]) / ABOUT).is_file():
            return Path(listed[0])
        return None

    @property
    def files(self) -> list[AnyPath]:
        """Everything that is read, as it is named."""
        by_sides = [by_name(getattr(self, name)) for name in self.named]
        return [one for side in by_sides for paths, _ in side.values() for one in _listed(paths)]


def check_sides(texts: Texts, recipe: Recipe) -> None:
    """Refuse plain text where pairs are wanted, and the other way round, before either becomes a corpus."""
    wanted = objective_from(recipe.objective, recipe.objective_settings).needs.layout == "pairs"
    if texts.corpus is not None:
        return
    sides = [name for name in texts.named if name != "sources"]
    if wanted and texts.sources is not None and not sides:
        raise OptionError(
            f"The recipe {recipe.name!r} learns from texts in pairs, and {_told(texts.sources)} is plain text. "
            "Name both sides, a text a line each: --source FILE --target FILE."
        )
    if not wanted and sides and texts.sources is None:
        told = ", ".join(f"{name} {_told(getattr(texts, name))}" for name in sides)
        raise OptionError(
            f"The recipe {recipe.name!r} learns from plain text, and {told} is of texts in pairs. Name texts, or "
            "choose a recipe that translates (transformer-tiny)."
        )


def _listed(sources: Sources) -> list[AnyPath]:
    return [sources] if isinstance(sources, (str, PathLike)) else list(sources)


def _told(sources: Sources) -> str:
    """What the user named, in short."""
    listed = [os.fspath(one) for one in _listed(sources)]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:3])}{' …' if len(listed) > 3 else ''}"

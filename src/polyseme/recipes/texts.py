"""What a recipe is to learn from, as a user names it: texts, a corpus, or both sides of texts in pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from polyseme.corpus.corpus import ABOUT
from polyseme.corpus.documents import by_name
from polyseme.errors import OptionError
from polyseme.files.found import Sources, listed
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
        names = listed(self.sources)
        if len(names) == 1 and (Path(names[0]) / ABOUT).is_file():
            return Path(names[0])
        return None

    @property
    def files(self) -> list[str]:
        """Everything that is read, as it is named."""
        by_sides = [by_name(getattr(self, name)) for name in self.named]
        return [one for side in by_sides for paths, _ in side.values() for one in listed(paths)]


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


def _told(sources: Sources) -> str:
    """What the user named, in short."""
    names = listed(sources)
    return names[0] if len(names) == 1 else f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"

"""Senses that were found before, as `senses -o FILE.json` keeps them, and the sense of new uses by them.

A new use gets the sense whose mean is nearest, once the mean of all uses that the senses were found in is taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyseme.errors import InputError, ModelError, OptionError
from polyseme.files.atomic import AnyPath
from polyseme.json_reading import load_json
from polyseme.text.word_forms import form
from polyseme.word_senses.clustering import Labels
from polyseme.word_senses.gloss_match import NearGloss
from polyseme.word_senses.index import View, view_from_json
from polyseme.word_senses.nearest_neighbors import Floats, unit

DESCRIPTION = ("id", "name", "neighbors", "replacements", "glosses")
"""What stays of a sense where it is applied."""


@dataclass(frozen=True, kw_only=True)
class SavedSenses:
    """The senses of a word, by which other uses get theirs."""

    path: str
    word: str
    source: str
    view: View
    context: int
    center: Floats
    """[D]"""
    means: Floats
    """[senses, D], of length 1."""
    senses: Sequence[dict[str, Any]]
    """The description of each sense."""

    @property
    def explanation(self) -> str:
        count = len(self.senses)
        senses = "The sense is that" if count == 1 else f"The {count} senses are those"
        return f"{senses} of {self.path}, found in {self.source}."

    def check_fits(self, view: View, context: int, name: str) -> None:
        """Refuse vectors of another model, layer, pooling or context than the senses have."""
        differing = self.view.differences(view)
        differing += [f"context ({self.context} there, {context} here)"] * (self.context != context)
        if differing:
            raise ModelError(
                f"The senses in {self.path} do not fit the vectors of {name}: they differ in {', '.join(differing)}. "
                "Apply them with the model and the settings that they were found with."
            )

    def assign(self, vectors: Floats) -> Labels:
        """The sense of each use, counted from 0: [N, D] → [N]."""
        cosines = unit(vectors - self.center) @ self.means.T
        nearest: Labels = cosines.argmax(axis=1).astype(np.int64)
        return nearest


def load_senses(path: AnyPath, word: str) -> SavedSenses:
    """The senses in a JSON file that `senses` wrote; refused if they are of another word."""
    name = str(path)
    try:
        content = load_json(Path(path))
    except FileNotFoundError:
        raise InputError(f"There is no file {name}. Senses are written with: polyseme senses … -o FILE.json") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{name} cannot be read as JSON: {error}. Senses are written with: polyseme senses … -o FILE.json"
        ) from None
    try:
        saved = SavedSenses(
            path=name,
            word=content["word"],
            source=content["source"],
            view=view_from_json(content["view"]),
            context=content["context"],
            center=np.array(content["center"], dtype=np.float32),
            means=np.array([sense["mean"] for sense in content["senses"]], dtype=np.float32),
            senses=[
                {part: sense[part] for part in DESCRIPTION}
                | {"glosses": [NearGloss(**each) for each in sense["glosses"]]}
                for sense in content["senses"]
            ],
        )
        for part in ("word", "source"):
            if not isinstance(content[part], str):
                raise ValueError(f"{part!r} is {content[part]!r}, and not a text")
        if saved.means.ndim != 2 or saved.means.shape[1:] != saved.center.shape:
            raise ValueError("its vectors differ in width")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{name} does not hold senses ({error}). They are written with: polyseme senses … -o FILE.json"
        ) from None
    if form(saved.word) != form(word):
        raise OptionError(f"{name} has the senses of {saved.word!r}, not those of {word!r}. Name the same word.")
    return saved

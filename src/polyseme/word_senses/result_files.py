"""The results of `similar` and `senses` as files: JSON, a page, or a picture, by the extension of the file name."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from polyseme.files.result_formats import Formats, json_text
from polyseme.packaged_models import model_name
from polyseme.plots.sense_plots import SenseLabel, SenseMap, UseList, senses_figure, similar_page
from polyseme.plots.senses_page import senses_page
from polyseme.plots.similarity_heatmaps import figure_bytes
from polyseme.plots.word_uses import format_cosine
from polyseme.word_senses.projection import NAMES
from polyseme.word_senses.sense_groups import Sense, Senses, SenseUse
from polyseme.word_senses.similar_uses import NearUse, Similar


def lists_of(result: Similar) -> list[UseList]:
    """The requested lists of neighbors, each with a heading."""
    lists = []
    two_models = result.against is not None and result.against.model != result.near.model
    for near in filter(None, (result.near, result.against)):
        layer = f"layer {near.layer}"
        if two_models:
            layer = f"{model_name(near.model)}, {layer}"
        elif near is result.against and near.layer == "0":
            layer += ": the word and its place, no context"
        centered = ", without their mean" if near.center else ""
        for words, uses in ((f"of {result.word!r}{centered}", near.same), ("of other words", near.other)):
            if uses is not None:
                sign = " " if any(use.cosine < 0 for use in uses) else ""  # a blank in the place of a minus
                labeled = [(f"{use.cosine:{sign}.3f}  {label_of(use)}", use) for use in uses]
                lists.append(UseList(f"Uses {words}, {layer}", labeled))
    return lists


def label_of(use: NearUse | SenseUse) -> str:
    """The id of the text of a use, and its fields."""
    return "  ".join([use.id, *(f"{name}={value}" for name, value in use.fields.items())])


def notes_of(result: Similar) -> list[str]:
    """Notes about the search for neighbors."""
    notes = [
        f"{result.n_uses:,} uses were compared, {result.n_same:,} of them of {result.word!r}; pooling {result.pool}."
    ]
    if result.n_left_out:
        times = "once" if result.n_left_out == 1 else f"{result.n_left_out:,} times"
        notes.append(f"The marked use itself occurs {times} in the text and is left out.")
    if not result.exact:
        notes.append("There are over a million uses: a graph proposed the neighbors, and some may be missed.")
    return notes


def sense_map(result: Senses) -> SenseMap:
    """The senses as the plots show them."""
    return SenseMap(
        word=result.word,
        headline=result.headline,
        explanation=result.explanation,
        map=NAMES[result.map],
        source=result.source,
        uses=result.uses,
        senses=[each.sense for each in result.uses],
        points=np.array([(each.x, each.y) for each in result.uses]),
        examples=result.examples,
        members=[
            sorted(
                (number for number, use in enumerate(result.uses) if use.sense == sense),
                key=lambda number: -result.uses[number].cosine,
            )
            for sense in range(1, result.n_senses + 1)
        ],
        labels=[SenseLabel(each.name, each.id, description_of(each)) for each in result.senses],
        notes=result.notes,
    )


def page_of(result: Senses) -> str:
    """The senses as a page."""
    return senses_page(sense_map(result), list(map(label_of, result.uses)))


def description_of(sense: Sense) -> list[str]:
    """Lines about a sense: replacements, neighbors, and WordNet's glosses."""
    lines = [
        f"{heading}: {', '.join(words)}."
        for heading, words in (("In its place", sense.replacements), ("Near it", sense.neighbors))
        if words
    ]
    for each in sense.glosses:
        lemmas = f" ({', '.join(each.lemmas)})" if len(each.lemmas) > 1 else ""
        lines.append(f"WordNet {each.sense}, {format_cosine(each.cosine)}{lemmas}: {each.definition}.")
    return lines


SIMILAR_FORMATS: Formats = {
    ".json": lambda result: json_text(asdict(result)),
    ".html": lambda result: similar_page(result.use, lists_of(result), notes_of(result)),
}
SENSES_FORMATS: Formats = {
    ".html": page_of,
    ".json": lambda result: json_text(asdict(result)),
    ".png": lambda result: figure_bytes(senses_figure(sense_map(result)), "png"),
    ".svg": lambda result: figure_bytes(senses_figure(sense_map(result)), "svg"),
}

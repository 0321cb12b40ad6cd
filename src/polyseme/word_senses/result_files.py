"""The results of `similar` and `senses` as files: JSON, a page, or a picture, by the extension of the file name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import numpy as np

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.files.atomic import check_output, whole_file
from polyseme.plots.sense_plots import SenseMap, UseList, senses_figure, senses_page, similar_page
from polyseme.plots.similarity_heatmaps import figure_bytes
from polyseme.word_senses.projection import NAMES
from polyseme.word_senses.sense_groups import Senses
from polyseme.word_senses.similar_uses import Neighbors, Similar

AnyPath = str | PathLike[str]


def check_similar_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output that could not be written. Call this before any work."""
    _check(output, SIMILAR, force=force)


def check_senses_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output that could not be written. Call this before any work."""
    _check(output, SENSES, force=force)
    if _ending(output) in (".png", ".svg"):
        require("matplotlib", extra="plots")


def write_similar(result: Similar, output: AnyPath, *, force: bool = False) -> None:
    """Write neighbors as `.json` or `.html`, atomically."""
    with whole_file(output, force=force) as path:
        path.write_bytes(SIMILAR[_ending(output)](result))


def write_senses(result: Senses, output: AnyPath, *, force: bool = False) -> None:
    """Write senses as `.json`, `.html`, `.png` or `.svg`, atomically."""
    with whole_file(output, force=force) as path:
        path.write_bytes(SENSES[_ending(output)](result))


def lists_of(result: Similar) -> list[UseList]:
    """The requested lists of neighbors, each with a heading."""
    return [
        *_lists(result, result.near, f"layer {result.near.layer}"),
        *([] if result.against is None else _lists(result, result.against, _against(result.against.layer))),
    ]


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


def _lists(result: Similar, near: Neighbors, where: str) -> list[UseList]:
    sides = ((f"of {result.word!r}", near.same), ("of other words", near.other))
    return [
        UseList(f"Uses {words}, {where}", [(use.cosine, use.use) for use in uses])
        for words, uses in sides
        if uses is not None
    ]


def _against(layer: str) -> str:
    return "layer 0: the word and its place, no context" if layer == "0" else f"layer {layer}"


def sense_map(result: Senses) -> SenseMap:
    """The senses as the plots show them."""
    return SenseMap(
        word=result.word,
        headline=result.headline,
        explanation=result.explanation,
        map=NAMES[result.map],
        source=result.source,
        uses=[each.use for each in result.uses],
        senses=[each.sense for each in result.uses],
        points=np.array([(each.x, each.y) for each in result.uses]),
        examples=result.examples,
    )


def _json(result: Similar | Senses) -> bytes:
    return (json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogatepass")


def _similar_html(result: Similar) -> bytes:
    return similar_page(result.use, lists_of(result), notes_of(result)).encode()


def _senses_html(result: Senses) -> bytes:
    return senses_page(sense_map(result), [each.id for each in result.uses]).encode()


SIMILAR: Mapping[str, Callable[[Similar], bytes]] = {".json": _json, ".html": _similar_html}
SENSES: Mapping[str, Callable[[Senses], bytes]] = {
    ".html": _senses_html,
    ".json": _json,
    ".png": lambda result: figure_bytes(senses_figure(sense_map(result)), "png"),
    ".svg": lambda result: figure_bytes(senses_figure(sense_map(result)), "svg"),
}
"""Writers by the extension of the output."""


def _check(output: AnyPath, kinds: Mapping[str, object], *, force: bool) -> None:
    if _ending(output) not in kinds:
        raise OptionError(f"The output must end in {', '.join(kinds)}. Got {str(output)!r} instead.")
    check_output(output, force=force)


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()

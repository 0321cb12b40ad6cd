"""What `similar` and `senses` have found, as a file: JSON, a page, or a picture, by the ending of its name."""

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
from polyseme.plots.sense_figure import SenseMap, senses_figure
from polyseme.plots.sense_pages import UseList, senses_page, similar_page
from polyseme.plots.similarity_heatmaps import figure_bytes
from polyseme.word_senses.projection import NAMES
from polyseme.word_senses.sense_groups import Senses
from polyseme.word_senses.similar_uses import Neighbors, Similar

AnyPath = str | PathLike[str]


def check_similar_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    _check(output, SIMILAR, force=force)


def check_senses_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    _check(output, SENSES, force=force)
    if _ending(output) in (".png", ".svg"):
        require("matplotlib", extra="plots")


def write_similar(found: Similar, output: AnyPath, *, force: bool = False) -> None:
    """Write neighbors as `.json` or `.html`, whole or not at all."""
    with whole_file(output, force=force) as path:
        path.write_bytes(SIMILAR[_ending(output)](found))


def write_senses(found: Senses, output: AnyPath, *, force: bool = False) -> None:
    """Write senses as `.json`, `.html`, `.png` or `.svg`, whole or not at all."""
    with whole_file(output, force=force) as path:
        path.write_bytes(SENSES[_ending(output)](found))


def lists_of(found: Similar) -> list[UseList]:
    """The lists of neighbors that were asked for, each with a heading."""
    return [
        *_lists(found, found.near, f"layer {found.near.layer}"),
        *([] if found.against is None else _lists(found, found.against, _against(found.against.layer))),
    ]


def notes_of(found: Similar) -> list[str]:
    """What is to be said of neighbors, besides them."""
    notes = [f"{found.n_uses:,} uses were looked at, {found.n_same:,} of them of {found.word!r}; pooling {found.pool}."]
    if found.n_left_out:
        times = "once" if found.n_left_out == 1 else f"{found.n_left_out:,} times"
        notes.append(f"The marked use itself stands {times} in the text and is left out.")
    if not found.exact:
        notes.append("There are over a million uses: a graph proposed the neighbors, and some may be missed.")
    return notes


def _lists(found: Similar, near: Neighbors, where: str) -> list[UseList]:
    sides = ((f"of {found.word!r}", near.same), ("of other words", near.other))
    return [
        UseList(f"Uses {whose}, {where}", [(each.cosine, each.use) for each in uses])
        for whose, uses in sides
        if uses is not None
    ]


def _against(layer: str) -> str:
    return "layer 0: the word and its place, no context" if layer == "0" else f"layer {layer}"


def sense_map(found: Senses) -> SenseMap:
    """The senses as they are drawn."""
    return SenseMap(
        word=found.word,
        headline=found.headline,
        how=found.how,
        map=NAMES[found.map],
        source=found.source,
        uses=[each.use for each in found.uses],
        senses=[each.sense for each in found.uses],
        points=np.array([(each.x, each.y) for each in found.uses]),
        examples=found.examples,
    )


def _json(found: Similar | Senses) -> bytes:
    return (json.dumps(asdict(found), ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogatepass")


def _similar_html(found: Similar) -> bytes:
    return similar_page(found.use, lists_of(found), notes_of(found)).encode()


def _senses_html(found: Senses) -> bytes:
    return senses_page(sense_map(found), [each.id for each in found.uses]).encode()


SIMILAR: Mapping[str, Callable[[Similar], bytes]] = {".json": _json, ".html": _similar_html}
SENSES: Mapping[str, Callable[[Senses], bytes]] = {
    ".html": _senses_html,
    ".json": _json,
    ".png": lambda found: figure_bytes(senses_figure(sense_map(found)), "png"),
    ".svg": lambda found: figure_bytes(senses_figure(sense_map(found)), "svg"),
}
"""From the ending of an output to what it holds."""


def _check(output: AnyPath, kinds: Mapping[str, object], *, force: bool) -> None:
    if _ending(output) not in kinds:
        raise OptionError(f"The output must end in {', '.join(kinds)}. Got {str(output)!r} instead.")
    check_output(output, force=force)


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()

"""What `attention` found: the weights of every layer and head, what stands out in each layer, and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from polyseme.analysis.attention_maps import AttentionMap, Floats, LayerAttention, Part
from polyseme.analysis.findings import Findings
from polyseme.plots.attention_page import ATTENTION_SCRIPT, ATTENTION_STYLE, AttentionPicture, attention_body
from polyseme.plots.figures_table import figures_table
from polyseme.result_tables import cell

HEADINGS: dict[Part, str] = {
    "encoder": "Encoder: self-attention",
    "decoder": "Decoder: self-attention",
    "cross": "Decoder: attention to the source",
}
SHARES = ("to_specials", "to_itself", "to_previous", "to_next")
LINK = ("head", "from", "to", "weight")
"""Columns of the summary: where attention goes, and the strongest link."""
ROLLOUT = "rollout"
"""The name that rollout has among a layer's heads."""
MOST_ON_PAGE = 2**25
"""Attention weights of a page, which has a byte of each; further windows are in tables and JSON alone."""
SHADES = (
    "In each picture, rows are what looks, columns what is looked at; the darker a square, the more attention. Layers "
    "are counted from 1, heads from 0."
)
ROLLED = (
    "Rollout follows attention through the layers down to the input: the mean of a layer's heads, half and half with "
    "what is there already, multiplied layer by layer (Abnar and Zuidema 2020)."
)
READ_LAST = (
    "Each row of the decoder is the word that it has just read; what it looks at there decides which word comes next."
)


class Link(NamedTuple):
    """The strongest attention of a layer between two words that are not adjacent, or from a word to the source."""

    head: int
    row: int
    column: int
    weight: float


@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionFindings(Findings):
    """Where the words of a text look, in every layer and head."""

    verb: ClassVar[str] = "attention"
    page_style: ClassVar[str] = ATTENTION_STYLE
    page_script: ClassVar[str] = ATTENTION_SCRIPT

    text: str
    maps: Sequence[AttentionMap]

    def title(self) -> str:
        return f"Attention: {cell(self.text)}"

    def records(self) -> list[dict[str, Any]]:
        """Every weight: part, window, layer and head, from which word to which, with their places in the row."""
        return [
            {
                "part": each.part,
                "window": each.window,
                "layer": layer.layer,
                "head": int(head) if head != ROLLOUT else head,
                "from_place": row,
                "from_word": each.rows[row].text,
                "to_place": column,
                "to_word": each.columns[column].text,
                "weight": weight,
            }
            for each in self.maps
            for layer in each.layers
            for head, weights in _named(layer)
            for row, line in enumerate(weights.tolist())
            for column, weight in enumerate(line)
        ]

    def summary(self) -> list[dict[str, Any]]:
        """What stands out in each layer: shares of the words' attention by where it goes, and the strongest link."""
        return [
            {
                "part": each.part,
                "window": each.window,
                "layer": layer.layer,
                **_shares(each, layer),
                **_link(each, layer),
            }
            for each in self.maps
            for layer in each.layers
        ]

    def header(self) -> Sequence[str]:
        return [name.replace("_", " ") for name in self._columns()]

    def rows(self) -> Sequence[Sequence[str]]:
        columns = self._columns()
        return [[cell(_rounded(row[name])) for name in columns] for row in self.summary()]

    def _columns(self) -> list[str]:
        """Without part and window where there is one."""
        single = {name for name in ("part", "window") if len({getattr(each, name) for each in self.maps}) == 1}
        return [name for name in ("part", "window", "layer", *SHARES, *LINK) if name not in single]

    def content(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "layers": self.summary(),
            "maps": [
                {
                    "part": each.part,
                    "window": each.window,
                    "rows": [unit.text for unit in each.rows],
                    "columns": [unit.text for unit in each.columns],
                    "layers": [
                        {
                            "layer": layer.layer,
                            "heads": {str(head): weights.tolist() for head, weights in _named(layer)},
                        }
                        for layer in each.layers
                    ],
                }
                for each in self.maps
            ],
        }

    def page_body(self) -> str:
        lead = "".join(f'<p class="faint">{sentence}</p>' for sentence in self._lead())
        table = figures_table(self.header(), self.rows())
        return f"{lead}{attention_body(list(self._pictures()))}<h2>What stands out in each layer</h2>{EXPLAINED}{table}"

    def _lead(self) -> Iterator[str]:
        """What the pictures show."""
        yield SHADES
        if any(layer.rollout is not None for each in self.maps for layer in each.layers):
            yield ROLLED
        if any(each.part != "encoder" for each in self.maps):
            yield READ_LAST
        shown, n_windows = self._n_shown(), self._n_windows()
        if shown < n_windows:
            windows = f"Windows 1 to {shown}" if shown > 1 else "Window 1"
            yield f"{windows} of {n_windows} shown: a page of all would be too large. Tables (.tsv) and JSON have all."

    def _n_windows(self) -> int:
        return max((each.window for each in self.maps), default=1)

    def _n_shown(self) -> int:
        """How many windows are on the page: at least one, and more as long as it does not get too large."""
        n_weights = 0
        for each in self.maps:
            n_weights += len(each.rows) * len(each.columns) * sum(1 for layer in each.layers for _ in _named(layer))
            if n_weights > MOST_ON_PAGE and each.window > 1:
                return each.window - 1
        return self._n_windows()

    def page_height(self) -> int:
        return 720

    def _pictures(self) -> Iterator[AttentionPicture]:
        n_windows, n_shown = self._n_windows(), self._n_shown()
        one_stack = all(each.part == "encoder" for each in self.maps)
        for each in (each for each in self.maps if each.window <= n_shown):
            heading = "Self-attention" if one_stack else HEADINGS[each.part]
            links = [(link.weight, layer.layer, link.head) for layer in each.layers if (link := strongest(each, layer))]
            yield AttentionPicture(
                heading=heading + (f", window {each.window} of {n_windows}" if n_windows > 1 else ""),
                rows=each.rows,
                columns=each.columns,
                layers=[
                    (layer.layer, [(str(head), weights) for head, weights in _named(layer)]) for layer in each.layers
                ],
                first=max(links)[1:] if links else None,
            )


EXPLAINED = (
    '<p class="faint">For each layer, averaged over its words and heads: the share of attention that goes to special '
    "pieces, to the word itself, to the word before and to the word after; and the strongest link of any head between "
    "two words that are not adjacent.</p>"
)


def _named(layer: LayerAttention) -> Iterator[tuple[str, Floats]]:
    """The weights of a layer's heads by their numbers, and its rollout."""
    yield from zip(map(str, layer.heads), layer.weights, strict=True)
    if layer.rollout is not None:
        yield ROLLOUT, layer.rollout


def _words(each: AttentionMap) -> tuple[list[int], list[int]]:
    """The rows and the columns that are no special pieces."""
    rows, columns = ([at for at, unit in enumerate(units) if not unit.special] for units in (each.rows, each.columns))
    return rows, columns


def _shares(each: AttentionMap, layer: LayerAttention) -> dict[str, float | None]:
    """Where the attention of words goes, on average."""
    rows, columns = _words(each)
    if not rows or not len(layer.weights):
        return dict.fromkeys(SHARES)
    mean = layer.weights.mean(axis=0)[rows]
    specials = [at for at, unit in enumerate(each.columns) if unit.special]
    values: list[float | None] = [float(mean[:, specials].sum(axis=1).mean()), None, None, None]
    if each.part != "cross":
        among_words = mean[:, columns]
        values[1:] = [float(np.trace(among_words, offset=offset)) / len(rows) for offset in (0, -1, 1)]
    return dict(zip(SHARES, values, strict=True))


def strongest(each: AttentionMap, layer: LayerAttention) -> Link | None:
    """The strongest link of a layer between words; None where there is none.

    Within a text, links of a word to itself and to its neighbors do not count: many heads do nothing else.
    """
    rows, columns = _words(each)
    if not rows or not columns or not len(layer.weights):
        return None
    weights = layer.weights[:, rows][:, :, columns]
    if each.part != "cross":
        places = np.arange(len(rows))
        weights = np.where(np.abs(places[:, None] - places) < 2, 0.0, weights)
    head, row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    weight = float(weights[head, row, column])
    return Link(layer.heads[head], rows[row], columns[column], weight) if weight else None


def _link(each: AttentionMap, layer: LayerAttention) -> dict[str, Any]:
    link = strongest(each, layer)
    if link is None:
        return dict.fromkeys(LINK)
    row, column = each.rows[link.row].text, each.columns[link.column].text
    return dict(zip(LINK, (link.head, row, column, link.weight), strict=True))


def _rounded(value: Any) -> Any:
    return f"{value:.2f}" if isinstance(value, float) else value

"""What each layer would predict, read through the model's own output: the logit lens (nostalgebraist 2020).

States of a layer below the top pass the norm that ends the stack, where there is one, and then the output; those of the
top are what `fill` and `score` read. Layers whose width is not the output's are left out, and reported.

Shapes: P places, V pieces in the vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyseme.analysis.findings import Findings, quoted
from polyseme.analysis.prediction_rows import Half, PredictionRow, prediction_row, row_kind
from polyseme.bundle import Bundle
from polyseme.errors import OptionError
from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.figures_table import ShadedCell, figures_table, shaded_cells
from polyseme.plots.html_page import escaped
from polyseme.text.documents import make_document, string_to_document
from polyseme.text.tokenizer import MASK_TEXT

FEW_PLACES = 3
"""Up to so many places, tables show the likeliest pieces of every layer; of more, the likeliest one."""


@dataclass(frozen=True, kw_only=True)
class LayerPrediction:
    """What one layer predicts at one place."""

    layer: int
    pieces: Sequence[str]
    """The likeliest, best first."""
    probabilities: Sequence[float]
    answer_rank: int
    """Of the piece that the top layer predicts; 1 is the likeliest."""
    answer_probability: float
    entropy: float
    """Of the distribution over all pieces, in nats."""
    divergence: float
    """Kullback–Leibler, from the top layer's distribution to this one, in nats."""


@dataclass(frozen=True, kw_only=True)
class PlacePredictions:
    """What every layer predicts at one place."""

    place: int
    """In the row of pieces, specials included, counted from 0."""
    name: str
    """The piece that is read there, or `mask 1`."""
    target: str | None
    """The piece that the text has where one is predicted."""
    layers: Sequence[LayerPrediction]
    """From the bottom to the top."""

    @property
    def answer(self) -> str:
        """The piece that the top layer predicts."""
        return self.layers[-1].pieces[0]

    @property
    def first_layer(self) -> int:
        """The lowest layer that predicts the answer."""
        return next(each.layer for each in self.layers if each.answer_rank == 1)

    @property
    def stays_from(self) -> int:
        """The layer from which on every layer predicts the answer."""
        lowest = self.layers[-1].layer
        for each in reversed(self.layers):
            if each.answer_rank != 1:
                break
            lowest = each.layer
        return lowest


@dataclass(frozen=True, kw_only=True, repr=False)
class LensFindings(Findings):
    """What each layer would predict, through the model's output."""

    verb: ClassVar[str] = "lens"
    page_style: ClassVar[str] = f"{CHART_STYLE}\n" + (
        ".beside { display: flex; flex-wrap: wrap; gap: 0 2.5rem } .beside > * { max-width: 100% }\n"
        ".beside .chart { width: 30rem }"
    )

    text: str
    places: Sequence[PlacePredictions]
    source: str | None = None
    """What the encoder of a translation model reads."""
    backwards: bool = False
    """Whether the text is read from its end, so that the piece before each place is predicted."""

    def title(self) -> str:
        return "What each layer predicts"

    def records(self) -> list[dict[str, Any]]:
        """One per place and layer."""
        return [
            {
                "place": place.place,
                "piece": place.name,
                "target": place.target,
                "layer": each.layer,
                "answer": place.answer,
                "answer_rank": each.answer_rank,
                "answer_probability": each.answer_probability,
                "entropy": each.entropy,
                "divergence": each.divergence,
                **{f"top_{number}": piece for number, piece in enumerate(each.pieces, start=1)},
                **{f"probability_{number}": value for number, value in enumerate(each.probabilities, start=1)},
            }
            for place in self.places
            for each in place.layers
        ]

    def to_json(self) -> dict[str, Any]:
        places = [
            {
                "place": each.place,
                "piece": each.name,
                "target": each.target,
                "answer": each.answer,
                "first_layer": each.first_layer,
                "stays_from": each.stays_from,
            }
            for each in self.places
        ]
        return {**super().to_json(), "text": self.text, "source": self.source, "places": places}

    @property
    def _few(self) -> bool:
        return len(self.places) <= FEW_PLACES

    def header(self) -> Sequence[str]:
        if self._few:
            return ["place", "layer", "likeliest pieces", "rank of the answer", "its probability", "entropy", "KL"]
        texts = [self._in_the_text] if self._has_targets else []
        return ["place", "piece", *texts, "answer", "probability", "first in layer", "stays from layer"]

    @property
    def _has_targets(self) -> bool:
        """Whether the text has the pieces that are predicted; at masks it does not."""
        return any(place.target is not None for place in self.places)

    @property
    def _in_the_text(self) -> str:
        return "previous in the text" if self.backwards else "next in the text"

    def rows(self) -> Sequence[Sequence[str]]:
        if self._few:
            return [
                [
                    place.name,
                    str(each.layer),
                    ", ".join(
                        f"{visible_piece(piece)} {value:.3f}"
                        for piece, value in zip(each.pieces, each.probabilities, strict=True)
                    ),
                    *_figures(each),
                ]
                for place in self.places
                for each in place.layers
            ]
        return [
            [
                str(each.place),
                visible_piece(each.name),
                *([visible_piece(each.target or "")] if self._has_targets else []),
                visible_piece(each.answer),
                f"{each.layers[-1].probabilities[0]:.4f}",
                str(each.first_layer),
                str(each.stays_from),
            ]
            for each in self.places
        ]

    def page_body(self) -> str:
        parts = [f'<p dir="auto">{escaped(self.text)}</p>']
        if self.source is not None:
            parts.insert(0, f"<p>source: <bdi>{escaped(self.source)}</bdi></p>")
        parts += [self._by_place(each) for each in self.places] if self._few else [self._grid()]
        parts.append("<h2>By layer</h2>")
        every = "" if len(self.places) == 1 else "mean over places, in nats"
        charts = [lines_chart(self._curves(), x="layer", y=every or "nats")]
        ranks = [
            Curve(
                f"{visible_piece(each.name)} → {visible_piece(each.answer)}",
                [(layer.layer, math.log10(layer.answer_rank)) for layer in each.layers],
            )
            for each in self.places
        ]
        if self._few:
            charts.append(lines_chart(ranks, x="layer", y="log₁₀ of the answer's rank (0: the likeliest)"))
        parts.append(f'<div class="beside">{"".join(f"<div>{chart}</div>" for chart in charts)}</div>')
        parts.append(
            '<p class="faint">The answer is the piece that the top layer predicts. KL is the divergence from the top '
            "layer's distribution to that of the layer. The states of lower layers go through the final norm of the "
            "stack, if there is one, and the output, for which they were not trained.</p>"
        )
        return "\n".join(parts)

    def _by_place(self, place: PlacePredictions) -> str:
        """The likeliest pieces of every layer, the top one first."""
        rows = [
            (
                f"layer {each.layer}",
                [
                    ShadedCell(visible_piece(piece), value, f"{value:.4f}", marked=piece == place.answer)
                    for piece, value in zip(each.pieces, each.probabilities, strict=True)
                ],
            )
            for each in reversed(place.layers)
        ]
        n = len(place.layers[-1].pieces)
        figures = [[f"layer {each.layer}", *_figures(each)] for each in reversed(place.layers)]
        header = ["", f"rank of {visible_piece(place.answer)}", "probability", "entropy", "KL"]
        return "\n".join(
            [
                f"<h2>{escaped(visible_piece(place.name))}: {escaped(visible_piece(place.answer))}</h2>",
                f"<p>First predicted in layer {place.first_layer}, and in every layer from {place.stays_from} on.</p>",
                f'<div class="beside">{shaded_cells(["", *map(str, range(1, n + 1))], rows)}',
                f"{figures_table(header, figures)}</div>",
                '<p class="faint">Left: the likeliest pieces of each layer, best first. Darker cells are likelier; '
                "framed cells are the answer. Point at a cell for its probability.</p>",
            ]
        )

    def _grid(self) -> str:
        """Layers × places with the likeliest piece of each, the top layer first."""
        rows = []
        for number in reversed(range(len(self.places[0].layers))):
            cells = []
            for place in self.places:
                each = place.layers[number]
                likeliest = "\n".join(
                    f"{visible_piece(p)} {v:.4f}" for p, v in zip(each.pieces, each.probabilities, strict=True)
                )
                title = f"{likeliest}\n{visible_piece(place.answer)}: rank {each.answer_rank:,}"
                cells.append(
                    ShadedCell(
                        visible_piece(each.pieces[0]), each.probabilities[0], title, marked=each.answer_rank == 1
                    )
                )
            rows.append((f"layer {self.places[0].layers[number].layer}", cells))
        explained = "Each column is a mask, and each cell the piece that a layer predicts there."
        if self._has_targets:
            rows.append(
                (self._in_the_text, [ShadedCell(visible_piece(place.target or ""), 0.0) for place in self.places])
            )
            side = "before" if self.backwards else "after"
            explained = f"Each column is a piece of the text, and each cell the piece that a layer predicts {side} it."
        return shaded_cells(["", *(visible_piece(place.name) for place in self.places)], rows) + (
            f'<p class="faint">{explained} Darker cells are likelier; framed cells agree with the top layer. Point at '
            "a cell for more.</p>"
        )

    def _curves(self) -> list[Curve]:
        numbers = [each.layer for each in self.places[0].layers]

        def mean(name: str) -> list[tuple[float, float]]:
            each = [[getattr(layer, name) for layer in place.layers] for place in self.places]
            means = [sum(values) / len(values) for values in zip(*each, strict=True)]
            return list(zip(numbers, means, strict=True))

        return [Curve("entropy", mean("entropy")), Curve("KL to the top layer", mean("divergence"))]


_BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥"}


def visible_piece(piece: str) -> str:
    """A piece as tables show it: of a character model, a blank is visible.

    >>> visible_piece(" "), visible_piece("Ġthe")
    ('␣', 'Ġthe')
    """
    return _BLANKS.get(piece, piece)


def _figures(layer: LayerPrediction) -> list[str]:
    return [
        f"{layer.answer_rank:,}",
        f"{layer.answer_probability:.4f}",
        f"{layer.entropy:.2f}",
        f"{layer.divergence:.2f}",
    ]


@torch.inference_mode()
def layer_predictions(
    bundle: Bundle, text: str, *, top: int, model: str, half: Half | None = None, source: str | None = None
) -> LensFindings:
    """What every layer predicts at the masks of a text, or after each of its pieces.

    Of a two-way model that is by its forward half, or before each piece by its backward `half`; of a translation model
    it is what its decoder would write after each piece of the text, having read the `source`.
    """
    if top < 1:
        raise OptionError(f"The number of candidates must be at least 1. Got {top} instead.")
    started = time.perf_counter()
    text = string_to_document(text).text
    row = prediction_row(bundle, text, verb=LensFindings.verb, half=half, source=source)
    states = row.states()
    final = row.log_probs(states[-1]).double()
    answers = final.argmax(dim=1)
    width = states[-1].shape[-1]
    unread = [number for number in range(states.depth) if states[number].shape[-1] != width]
    by_place: list[list[LayerPrediction]] = [[] for _ in row.places]
    for number in range(states.depth + 1):
        if number in unread:
            continue
        log_probs = final
        if number < states.depth:
            log_probs = row.log_probs(row.stack.apply_final_norm(states[number])).double()
        for place, each in zip(by_place, _of_layer(row, number, log_probs, final, answers, top), strict=True):
            place.append(each)
    notes = []
    if unread:
        notes.append(
            f"Left out, since their width is not the {width} that the output reads: layers "
            f"{', '.join(map(str, unread))}."
        )
    if row_kind(bundle) == "two-way":
        here, other = ("backward", "forwards") if row.backwards else ("forward", "backwards")
        notes.append(f"Predictions of the {here} half of a two-way model; --half {other} shows the other.")
    tally = row.tally()
    tally.words = len(make_document(text.replace(MASK_TEXT, "x")).words)
    return LensFindings(
        model=model,
        data=quoted(text),
        notes=notes,
        cost=tally.cost(time.perf_counter() - started, bundle.device),
        text=text,
        source=source,
        backwards=row.backwards,
        places=[
            PlacePredictions(
                place=place.at,
                name=place.name,
                target=None if place.target is None else row.spelled([place.target])[0],
                layers=layers,
            )
            for place, layers in zip(row.places, by_place, strict=True)
        ],
    )


def _of_layer(
    row: PredictionRow, number: int, log_probs: Tensor, final: Tensor, answers: Tensor, top: int
) -> list[LayerPrediction]:
    """One layer at all places."""
    probabilities = log_probs.exp()
    best = probabilities.topk(min(top, probabilities.shape[1]), dim=1)
    own = log_probs.gather(1, answers[:, None])
    ranks = (log_probs > own).sum(dim=1) + 1
    entropies = torch.special.entr(probabilities).sum(dim=1)
    divergences = torch.special.xlogy(final.exp(), final.exp()).sum(dim=1) - (final.exp() * log_probs).sum(dim=1)
    columns = (best.indices, best.values, ranks, own.exp()[:, 0], entropies, divergences.clamp(min=0))
    return [
        LayerPrediction(
            layer=number,
            pieces=row.spelled(ids),
            probabilities=values,
            answer_rank=rank,
            answer_probability=answer,
            entropy=entropy,
            divergence=divergence,
        )
        for ids, values, rank, answer, entropy, divergence in zip(*(each.tolist() for each in columns), strict=True)
    ]

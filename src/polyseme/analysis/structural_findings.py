"""What structural probes find in each layer of a model: figures, a chart, and trees drawn beside the gold ones."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.analysis.dependency_trees import Tree, Treebank
from polyseme.analysis.findings import Findings, decimal
from polyseme.analysis.structural_probe import (
    ParsedVectors,
    StructuralKind,
    StructuralSettings,
    predictions_of,
    train_maps,
    tree_depths,
    tree_distances,
)
from polyseme.analysis.tree_metrics import StructuralScores, chain_predictions, score, tree_edges
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.decoder_stack import fresh_bundle
from polyseme.embedding.flow import Embedder
from polyseme.errors import OptionError
from polyseme.metrics.sampling_error import sampling_error
from polyseme.packaged_models import model_name
from polyseme.plots.charts import CHART_STYLE, Curve, lines_chart
from polyseme.plots.dependency_arcs import ARCS_STYLE, arcs_picture, depths_picture
from polyseme.plots.figures_table import figures_table
from polyseme.types import Progress

Weights = Literal["trained", "random", "chain"]
SHARES: dict[StructuralKind, str] = {"distance": "uuas", "depth": "root_accuracy"}
NAMES: dict[StructuralKind, str] = {"distance": "UUAS", "depth": "root accuracy"}
IN_MEMORY = 1 << 29
"""Bytes of vectors that are held in memory; more are in a file that goes when the work is done."""
CHUNK = 256
"""Sentences that are embedded together."""
DRAWN, SHORTEST_DRAWN, LONGEST_DRAWN = 3, 6, 14
"""How many sentences are drawn, and how long they are."""


@dataclass(frozen=True, kw_only=True)
class LayerScores:
    """A layer's figures on the test sentences: means over seeds, and their standard deviation."""

    weights: Weights
    """Of the model, random ones, or none: a chain of words."""
    layer: int | None
    share: float
    """UUAS, or root accuracy."""
    share_sd: float | None
    share_error: float | None
    """The standard error of the share, as of independent arcs or roots."""
    spearman: float
    spearman_sd: float | None
    held_out_loss: float | None
    """On the training sentences that were set aside."""


@dataclass(frozen=True, kw_only=True)
class DrawnTree:
    """A sentence with gold and predicted distances or depths."""

    tree: Tree
    predicted: NDArray[np.float64]
    """[T, T] or [T]"""


@dataclass(frozen=True, kw_only=True, repr=False)
class StructuralFindings(Findings):
    """How well each layer's geometry gives the trees of a treebank."""

    verb: ClassVar[str] = "probe"
    page_style: ClassVar[str] = f"{CHART_STYLE}\n{ARCS_STYLE}"

    kind: StructuralKind
    rank: int
    layers: Sequence[LayerScores]
    drawn: Sequence[DrawnTree]
    drawn_layer: int
    """The layer with the lowest loss on the sentences that were set aside."""

    def title(self) -> str:
        return f"{model_name(self.model)}: tree {self.kind}s in each layer"

    def records(self) -> list[dict[str, Any]]:
        share = SHARES[self.kind]
        return [
            {
                "weights": each.weights,
                "layer": each.layer,
                share: each.share,
                f"{share}_sd": each.share_sd,
                f"{share}_error": each.share_error,
                "spearman": each.spearman,
                "spearman_sd": each.spearman_sd,
                "held_out_loss": each.held_out_loss,
            }
            for each in self.layers
        ]

    def header(self) -> Sequence[str]:
        return ("weights", "layer", NAMES[self.kind], "±", f"{self.kind} Spearman", "held-out loss")

    def rows(self) -> Sequence[Sequence[str]]:
        return [
            (
                each.weights,
                "" if each.layer is None else str(each.layer),
                _spread(100 * each.share, None if each.share_sd is None else 100 * each.share_sd, 1),
                "" if each.share_error is None else f"{100 * each.share_error:.1f}",
                _spread(each.spearman, each.spearman_sd, 3),
                "" if each.held_out_loss is None else f"{each.held_out_loss:.3f}",
            )
            for each in self.layers
        ]

    def page_body(self) -> str:
        name = NAMES[self.kind]
        parts = [
            f"<p>A linear map of rank {self.rank} was trained on each layer so that {_EXPLAINED[self.kind]} In the "
            "chain, a baseline, each word depends on the one before it. ± is the standard error, assuming independent "
            "items; figures in brackets are standard deviations over seeds.</p>",
            figures_table(self.header(), self.rows()),
            lines_chart(self._curves(), x="layer", y=f"{name}, %") if self._n_layers() > 1 else "",
            f"<h2>Sentences in layer {self.drawn_layer}</h2>",
            f"<p>{_LEGEND[self.kind]}</p>",
        ]
        return "\n".join([*parts, *map(self._picture, self.drawn)])

    def _n_layers(self) -> int:
        return len({each.layer for each in self.layers} - {None})

    def _curves(self) -> list[Curve]:
        numbered = [each.layer for each in self.layers if each.layer is not None]
        curves = []
        for weights in ("trained", "random"):
            points = [
                (float(each.layer), 100 * each.share)
                for each in self.layers
                if each.weights == weights and each.layer is not None
            ]
            if points:
                curves.append(Curve(f"{weights} weights", points))
        chain = next(each.share for each in self.layers if each.weights == "chain")
        ends = dict.fromkeys((min(numbered), max(numbered)))
        return [*curves, Curve("chain", [(float(layer), 100 * chain) for layer in ends], dashed=True)]

    def _picture(self, drawn: DrawnTree) -> str:
        tree = drawn.tree
        if self.kind == "depth":
            return depths_picture(tree.words, tree_depths(tree).tolist(), drawn.predicted.tolist())
        gold = tree_edges(tree, tree_distances(tree).astype(np.float64))
        return arcs_picture(tree.words, gold, tree_edges(tree, drawn.predicted), names=("treebank", "predicted"))


_EXPLAINED: dict[StructuralKind, str] = {
    "distance": "squared distances between words match the numbers of arcs between them in the dependency tree (Hewitt "
    "and Manning 2019). UUAS is the share of arcs, ignoring direction, that are in the minimum spanning tree of the "
    "predicted distances, without punctuation. Spearman's correlation compares predicted and gold distances of each "
    "word to all others, averaged over sentences of 5 to 50 words with equal weight for each length.",
    "depth": "squared norms of words match their depths in the dependency tree (Hewitt and Manning 2019). Root "
    "accuracy is how often the word with the lowest predicted depth is the root, without punctuation. Spearman's "
    "correlation compares predicted and gold depths in a sentence, averaged over sentences of 5 to 50 words with equal "
    "weight for each length.",
}
_LEGEND: dict[StructuralKind, str] = {
    "distance": "The arcs above the words are the treebank's. Those below are predicted: blue if the treebank has "
    "them, red if not.",
    "depth": "The treebank's depths are gray, the predicted ones blue; the root is at the top.",
}


def _spread(value: float, deviation: float | None, digits: int) -> str:
    beside = "" if deviation is None or not math.isfinite(value) else f" ({deviation:.{digits}f})"
    return f"{decimal(value, digits)}{beside}"


# --- finding ----------------------------------------------------------------------------------------------------------


def probe_structure(
    bundle: Bundle,
    treebank: Treebank,
    settings: StructuralSettings,
    *,
    model: str,
    layers: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    random: bool = False,
    progress: Progress | None = None,
) -> StructuralFindings:
    """Train structural probes on the layers of a model, and read them on other sentences.

    Args:
        bundle: any encoder whose layers have one width.
        treebank: sentences to train on, and others for the figures.
        settings: how maps are trained.
        model: what the model is called.
        layers: those to probe; None: all.
        seeds: of the maps, and of random weights.
        random: whether models of the same shape with random weights are probed, too, one for each seed.
        progress: called with the epochs done, and all.
    """
    started = time.perf_counter()
    if not seeds:
        raise OptionError("There must be at least one seed. Got none.")
    numbers = list(range(bundle.config.depth + 1)) if layers is None else list(layers)
    tally = Tally()
    n_rounds = len(seeds) * (1 + random)
    rounds: dict[Weights, list[tuple[StructuralScores, Sequence[float]]]] = {"trained": [], "random": []}
    drawn: list[DrawnTree] = []
    drawn_layer, rank = numbers[0], 0

    def after(rounds_done: int) -> Progress:
        def report(done: int, total: int | None) -> None:
            if progress is not None:
                progress(rounds_done * settings.epochs + done, n_rounds * settings.epochs)

        return report

    with embedded(bundle, treebank, numbers, tally) as (train, test):
        for seed in seeds:
            trained = train_maps(
                train, replace(settings, seed=seed), device=str(bundle.device), progress=after(len(rounds["trained"]))
            )
            predictions = predictions_of(trained.maps, test, settings.kind)
            rounds["trained"].append((score(settings.kind, test.trees, predictions), trained.losses))
            if not drawn:
                place, rank = int(np.argmin(trained.losses)), trained.maps.shape[-1]
                drawn_layer, drawn = numbers[place], _drawn(test.trees, [each[place] for each in predictions])
    for seed in seeds if random else ():
        torch.manual_seed(seed)
        fresh = fresh_bundle(bundle).to(bundle.device).eval()
        with embedded(fresh, treebank, numbers, tally) as (train, test):
            done = after(len(seeds) + len(rounds["random"]))
            trained = train_maps(train, replace(settings, seed=seed), device=str(bundle.device), progress=done)
            predictions = predictions_of(trained.maps, test, settings.kind)
            rounds["random"].append((score(settings.kind, test.trees, predictions), trained.losses))
    chain = score(settings.kind, treebank.test, chain_predictions(settings.kind, treebank.test))
    return StructuralFindings(
        model=model,
        data=treebank.description.replace("selected on", "trained on"),
        seeds=tuple(seeds),
        cost=tally.cost(time.perf_counter() - started, bundle.device),
        kind=settings.kind,
        rank=rank,
        layers=[
            _layer_scores("chain", None, [(chain, [])], 0),
            *(
                _layer_scores(weights, number, of_seeds, place)
                for weights, of_seeds in rounds.items()
                if of_seeds
                for place, number in enumerate(numbers)
            ),
        ],
        drawn=drawn,
        drawn_layer=drawn_layer,
    )


def _layer_scores(
    weights: Weights, layer: int | None, seeds: Sequence[tuple[StructuralScores, Sequence[float]]], place: int
) -> LayerScores:
    shares = [float(scores.share[place]) for scores, _ in seeds]
    correlations = [float(scores.spearman[place]) for scores, _ in seeds]
    losses = [each[place] for _, each in seeds if each]
    several = len(seeds) > 1
    return LayerScores(
        weights=weights,
        layer=layer,
        share=float(np.mean(shares)),
        share_sd=float(np.std(shares, ddof=1)) if several else None,
        share_error=sampling_error("accuracy", float(np.mean(shares)), seeds[0][0].n),
        spearman=float(np.mean(correlations)),
        spearman_sd=float(np.std(correlations, ddof=1)) if several else None,
        held_out_loss=float(np.mean(losses)) if losses else None,
    )


def _drawn(trees: Sequence[Tree], predictions: Sequence[NDArray[np.float64]]) -> list[DrawnTree]:
    """Some sentences of a length that can be read; where there are none, the first ones."""
    pairs = [DrawnTree(tree=tree, predicted=each) for tree, each in zip(trees, predictions, strict=True)]
    fitting = [each for each in pairs if SHORTEST_DRAWN <= len(each.tree) <= LONGEST_DRAWN]
    return (fitting or pairs)[:DRAWN]


# --- vectors ----------------------------------------------------------------------------------------------------------


@contextmanager
def embedded(
    bundle: Bundle, treebank: Treebank, layers: Sequence[int], tally: Tally
) -> Iterator[tuple[ParsedVectors, ParsedVectors]]:
    """The training and the test sentences with the vectors of their words in some layers, computed once."""
    embedder = Embedder(bundle, layer="all", pool="mean")
    with tempfile.TemporaryDirectory(prefix="polyseme-") as folder:
        parts = [
            ParsedVectors(trees, _vectors(embedder, trees, layers, Path(folder) / name))
            for name, trees in (("train", treebank.train), ("test", treebank.test))
        ]
        tally.add(embedder.tally)
        yield parts[0], parts[1]


def _vectors(embedder: Embedder, trees: Sequence[Tree], layers: Sequence[int], place: Path) -> NDArray[np.floating]:
    """[N, L, D]"""
    n_words, width = sum(map(len, trees)), embedder.shape[-1]
    shape = (n_words, len(layers), width)
    vectors: NDArray[np.floating]
    if math.prod(shape) * embedder.dtype.itemsize > IN_MEMORY:
        vectors = np.memmap(place, dtype=embedder.dtype, mode="w+", shape=shape)
    else:
        vectors = np.empty(shape, embedder.dtype)
    start = 0
    for first in range(0, len(trees), CHUNK):
        for each in embedder([tree.document() for tree in trees[first : first + CHUNK]]):
            vectors[start : start + len(each.vectors)] = each.vectors[:, list(layers)]
            start += len(each.vectors)
    return vectors

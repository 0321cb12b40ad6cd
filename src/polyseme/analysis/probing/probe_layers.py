"""A run of `probe`: vectors of all layers in one pass, probes of each layer and of their mix, baselines, figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.analysis.probing.baselines import control_labels, majority, n_types, per_type
from polyseme.analysis.probing.code_length import online_code_length, order_by_text, uniform_code_length
from polyseme.analysis.probing.linear_probes import Design, LinearProbes, Standard, fit_linear
from polyseme.analysis.probing.probe_findings import Confusion, LayerFigures, MixFigures, ProbeFindings
from polyseme.analysis.probing.span_designs import PairDesign, SpanDesign
from polyseme.analysis.probing.span_vectors import LayerGroup, SpanVectors, span_vectors
from polyseme.analysis.probing.targets import Targets
from polyseme.analysis.probing.trained_probes import TrainedProbes, center_of_gravity, expected_layer, fit_by_steps
from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.cost import Tally
from polyseme.embedding.decoder_stack import Stack, decoder_of, fresh_bundle
from polyseme.embedding.layer_selection import parse_layers
from polyseme.errors import OptionError
from polyseme.types import Progress

MIX = "mix"
N_CONFUSIONS = 12
FEW_TYPES = 50
"""Word types of which a probe can learn every single one's control label."""


@dataclass(frozen=True, kw_only=True)
class ProbePlan:
    """How layers are probed."""

    layers: str | int = "all"
    probe: Literal["linear", "mlp"] = "linear"
    hidden: int = 256
    l2: float = 10.0
    control: bool = False
    code_length: bool = False
    random: bool = False
    seeds: tuple[int, ...] = (0,)
    split: str = "test"
    pool: str | None = None
    stack: Stack = "encoder"
    cache: Path | None = None

    def config_of(self, bundle: Bundle) -> EncoderConfig:
        """That of the stack that is probed."""
        return decoder_of(bundle).config if self.stack == "decoder" else bundle.config

    def chosen(self, config: EncoderConfig) -> tuple[tuple[int, ...], bool]:
        """The layers that are probed one by one, and whether their mix is."""
        parts = [part.strip() for part in str(self.layers).split(",") if part.strip()]
        if not parts:
            raise OptionError("No layers were named. Layers to probe are all, numbers separated by commas, and mix.")
        mix = MIX in parts
        if mix and len(set(config.widths)) > 1:
            raise OptionError("A mix needs layers of one width, and this encoder's differ. Leave mix out.")
        singles: set[int] = set()
        for part in parts:
            if part == "all":
                singles.update(range(config.depth + 1))
            elif part != MIX:
                if not part.removeprefix("-").isdecimal():
                    raise OptionError(f"Layers to probe are all, numbers, and mix. Got {part!r} among them instead.")
                singles.update(parse_layers(part, config).layers)
        further = [name for name in ("control", "code_length", "random") if getattr(self, name)]
        if further and not singles:
            raise OptionError(f"The option {further[0]!r} is for single layers. Name some beside mix, as in all,mix.")
        return tuple(sorted(singles)), mix


class Probes(Protocol):
    """Fitted probes, whose predictions come part by part."""

    def log_probs(self, design: Design, numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Examples and the log-probabilities of their labels, [K, n, C]."""


@dataclass
class _Scores:
    """What K probes score on a split."""

    accuracy: NDArray[np.float64]
    error: NDArray[np.float64]
    """The standard error, over texts."""
    macro_f1: NDArray[np.float64]
    confusion: NDArray[np.int64]
    """[K, C, C]: gold, predicted."""


@dataclass
class _Prober:
    """Everything about one model's vectors that its probes need."""

    targets: Targets
    plan: ProbePlan
    device: torch.device

    def __post_init__(self) -> None:
        self.labels = torch.from_numpy(self.targets.labels).to(self.device)
        self.train = torch.from_numpy(self.targets.splits["train"]).to(self.device)
        self.judged = torch.from_numpy(self.targets.splits[self.plan.split]).to(self.device)
        self.texts = torch.from_numpy(self.targets.texts).to(self.device)
        self.n_labels = len(self.targets.label_names)

    def design(self, vectors: Tensor) -> Design:
        second = self.targets.second
        if second is None:
            return SpanDesign(vectors, self.device)
        first, other = torch.from_numpy(self.targets.first), torch.from_numpy(second)
        return PairDesign(vectors, first, other, self.train, self.device)

    def fit(self, design: Design, standard: Standard, labels: Tensor, seed: int, *, mix: bool = False) -> Probes:
        """Probes of each layer, or of the mixes, as the plan has them."""
        if self.plan.probe == "linear" and not mix:
            return fit_linear(
                design, labels, self.train, n_labels=self.n_labels, l2=self.plan.l2, standard=standard
            )  # fmt: skip
        hidden = self.plan.hidden if self.plan.probe == "mlp" else None
        return fit_by_steps(
            design, labels, self.train, self.texts, n_labels=self.n_labels, l2=self.plan.l2, standard=standard,
            hidden=hidden, mix=mix, seed=seed,
        )  # fmt: skip

    def scores(self, probes: Probes, design: Design, labels: Tensor) -> _Scores:
        """Judged on the split of the plan; a label that train lacks counts as wrong."""
        size = self.n_labels
        right, answers = [], []
        for part, log_probs in probes.log_probs(design, self.judged):
            answer = log_probs.argmax(-1)
            answers.append(answer.cpu())
            right.append((answer == labels[part]).cpu())
        predicted, correct = torch.cat(answers, 1).numpy(), torch.cat(right, 1).numpy()
        gold = labels[self.judged].cpu().numpy()
        seen = gold >= 0
        confusion = np.stack(
            [
                np.bincount(gold[seen] * size + each[seen], minlength=size * size).reshape(size, size)
                for each in predicted
            ]
        )
        accuracy = correct.mean(axis=1)
        return _Scores(accuracy, self._error(correct, accuracy), _macro_f1(confusion), confusion)

    def _error(self, correct: NDArray[np.bool_], accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Words of one text are not independent: the error is that of the texts' sums."""
        texts = self.targets.texts[self.targets.splits[self.plan.split]]
        _, places = np.unique(texts, return_inverse=True)
        sums = np.stack([np.bincount(places, weights=row - mean) for row, mean in zip(correct, accuracy, strict=True)])
        return np.asarray(np.sqrt(np.square(sums).sum(axis=1)) / correct.shape[1])

    def bits(self, design: Design, seed: int) -> NDArray[np.float64]:
        """The online code length of each layer. Each block's probe begins with the weights of the one before."""
        order = order_by_text(self.targets.texts, self.targets.splits["train"], seed)
        weights: Tensor | None = None

        def loss(learned: Tensor, sent: Tensor) -> Tensor:
            nonlocal weights
            probes = fit_linear(
                design, self.labels, learned.sort().values, n_labels=self.n_labels, l2=self.plan.l2, start=weights
            )
            weights = probes.weights
            return block_loss(probes, design, self.labels, sent)

        ordered = torch.from_numpy(order).to(self.device)
        return online_code_length(ordered, self.n_labels, loss).numpy()


def block_loss(probes: Probes, design: Design, labels: Tensor, numbers: Tensor) -> Tensor:
    """[K]: the summed loss of these examples, in nats."""
    total = torch.zeros(design.shape[0], dtype=torch.float64, device=design.device)
    for part, log_probs in probes.log_probs(design, numbers):
        gold = labels[part][None, :, None].expand(len(log_probs), -1, 1)
        total -= log_probs.gather(2, gold).sum((1, 2)).double()
    return total


def _macro_f1(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean F1 over the labels that occur."""
    hits = np.diagonal(confusion, axis1=1, axis2=2).astype(np.float64)
    gold, predicted = confusion.sum(axis=2), confusion.sum(axis=1)
    f1 = 2 * hits / np.maximum(gold + predicted, 1)
    return np.asarray((f1 * (gold > 0)).sum(axis=1) / np.maximum((gold > 0).sum(axis=1), 1))


def probe_layers(
    bundle: Bundle, targets: Targets, plan: ProbePlan, *, name: str, progress: Progress | None = None
) -> ProbeFindings:
    """Probe a model; `progress` is called with how many steps of work are done: texts, then fits."""
    started = time.perf_counter()
    config = plan.config_of(bundle)
    singles, mix = plan.chosen(config)
    needed = tuple(range(config.depth + 1)) if mix else singles
    work = _Progress(progress, targets, plan, bool(singles), mix)
    prober = _Prober(targets, plan, bundle.device)
    vectors = _vectors(bundle, targets, plan, needed, work)
    figures = {layer: LayerFigures(layer=str(layer)) for layer in singles}
    notes = [*targets.notes, *vectors.notes()]
    confusion: dict[int, NDArray[np.int64]] = {}
    slow: list[float] = []
    for group in _only(vectors.groups, singles):
        design = prober.design(group.vectors)
        standard = Standard.of(design, prober.train)
        for seed in plan.seeds if plan.probe == "mlp" else plan.seeds[:1]:
            probes = prober.fit(design, standard, prober.labels, seed)
            scores = prober.scores(probes, design, prober.labels)
            slow += _unconverged(probes)
            _add(figures, group, scores)
            for place, layer in enumerate(group.layers):
                confusion.setdefault(layer, scores.confusion[place])
            work.fitted()
        for seed in plan.seeds:
            _further(prober, design, standard, group, figures, seed, work)
    tally = vectors.tally
    if plan.random:
        tally.add(_random(bundle, prober, needed, singles, figures, work))
    mixed = _mixed(prober, vectors.groups[0], plan, work) if mix else None
    if slow:
        notes.append(
            f"{len(slow)} probes stopped before they had converged: the largest component of a gradient is "
            f"{max(slow):.1g}."
        )
    if plan.control and n_types(targets.types) <= FEW_TYPES:
        notes.append(
            f"There are only {n_types(targets.types)} word types, so that a probe can learn the control label of each: "
            "the selectivity means little."
        )
    judged = targets.splits[plan.split]
    best = max(figures.values(), key=lambda each: each.mean("accuracy"), default=None)
    return ProbeFindings(
        model=name,
        data=_described(targets, plan),
        seeds=plan.seeds,
        notes=notes,
        cost=tally.cost(time.perf_counter() - started, bundle.device),
        target=targets.name,
        unit=targets.noun,
        probe=plan.probe,
        split=plan.split,
        n_labels=len(targets.label_names),
        uniform_bits=uniform_code_length(len(targets.splits["train"]), len(targets.label_names)),
        figures=list(figures.values()),
        majority=majority(targets, judged),
        per_type=per_type(targets, judged),
        mix=mixed,
        confusions=[] if best is None else _confusions(targets.label_names, confusion[int(best.layer)]),
    )


def _vectors(
    bundle: Bundle, targets: Targets, plan: ProbePlan, layers: Sequence[int], work: _Progress
) -> SpanVectors:  # fmt: skip
    return span_vectors(
        bundle, targets.documents, targets.spans, pool=plan.pool, stack=plan.stack, layers=layers, cache=plan.cache,
        progress=work.read,
    )  # fmt: skip


def _only(groups: Sequence[LayerGroup], layers: Sequence[int]) -> Iterator[LayerGroup]:
    """Of each group the layers that are probed by themselves."""
    for group in groups:
        places = [place for place, layer in enumerate(group.layers) if layer in layers]
        if len(places) == len(group.layers):
            yield group
        elif places:
            yield LayerGroup(tuple(group.layers[place] for place in places), group.vectors[places])


def _add(figures: dict[int, LayerFigures], group: LayerGroup, scores: _Scores, to: str = "") -> None:
    for place, layer in enumerate(group.layers):
        if to:
            figures[layer].values.setdefault(to, []).append(float(scores.accuracy[place]))
            continue
        for name, values in (
            ("accuracy", scores.accuracy), ("standard_error", scores.error), ("macro_f1", scores.macro_f1),
        ):  # fmt: skip
            figures[layer].values.setdefault(name, []).append(float(values[place]))


def _further(
    prober: _Prober, design: Design, standard: Standard, group: LayerGroup, figures: dict[int, LayerFigures], seed: int,
    work: _Progress,
) -> None:  # fmt: skip
    """The control task and the code length of a seed."""
    if prober.plan.control:
        labels = torch.from_numpy(control_labels(prober.targets, seed)).to(prober.device)
        _add(figures, group, prober.scores(prober.fit(design, standard, labels, seed), design, labels), to="control")
        work.fitted()
    if prober.plan.code_length:
        for layer, bits in zip(group.layers, prober.bits(design, seed), strict=True):
            figures[layer].values.setdefault("bits", []).append(float(bits))
        work.fitted()


def _random(
    bundle: Bundle, prober: _Prober, needed: Sequence[int], singles: Sequence[int], figures: dict[int, LayerFigures],
    work: _Progress,
) -> Tally:  # fmt: skip
    """The same architecture with random weights, of each seed its own; pieces and FLOPs of its vectors are returned."""
    tally = Tally()
    for seed in prober.plan.seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = fresh_bundle(bundle)
        fresh.to(bundle.device).eval()
        vectors = _vectors(fresh, prober.targets, prober.plan, needed, work)
        tally.add(Tally(pieces=vectors.tally.pieces, flops=vectors.tally.flops))
        for group in _only(vectors.groups, singles):
            design = prober.design(group.vectors)
            standard = Standard.of(design, prober.train)
            _add(
                figures, group, prober.scores(prober.fit(design, standard, prober.labels, seed), design, prober.labels),
                to="random",
            )  # fmt: skip
        work.fitted()
    return tally


def _mixed(prober: _Prober, group: LayerGroup, plan: ProbePlan, work: _Progress) -> MixFigures:
    design = prober.design(group.vectors)
    standard = Standard.of(design, prober.train)
    mixed = MixFigures()
    for seed in plan.seeds:
        probes = prober.fit(design, standard, prober.labels, seed, mix=True)
        assert isinstance(probes, TrainedProbes)
        scores = prober.scores(probes, design, prober.labels)
        shares = probes.shares()[-1].tolist()
        mixed.shares.append(shares)
        mixed.centers.append(center_of_gravity(shares))
        mixed.cumulative.append([float(each) for each in scores.accuracy])
        expected = expected_layer(mixed.cumulative[-1])
        if expected is not None:
            mixed.expected.append(expected)
        mixed.macro_f1.append(float(scores.macro_f1[-1]))
        mixed.errors.append(float(scores.error[-1]))
        work.fitted()
    return mixed


def _unconverged(probes: Any) -> list[float]:
    if not isinstance(probes, LinearProbes):
        return []
    return [float(each) for each in probes.gradient if each > probes.tolerance]


def _confusions(names: Sequence[str], confusion: NDArray[np.int64]) -> list[Confusion]:
    """The pairs that are most often confused."""
    counts = Counter(
        {
            (gold, answer): int(confusion[gold, answer])
            for gold, answer in zip(*np.nonzero(confusion), strict=True)
            if gold != answer
        }
    )
    totals = confusion.sum(axis=1)
    return [
        Confusion(names[gold], names[answer], count, count / int(totals[gold]))
        for (gold, answer), count in counts.most_common(N_CONFUSIONS)
    ]


def _described(targets: Targets, plan: ProbePlan) -> str:
    train, judged = len(targets.splits["train"]), len(targets.splits[plan.split])
    examples = f"{train:,} {targets.noun} of train and {judged:,} of {plan.split}"
    return f"{targets.name}: {examples}, {len(targets.label_names)} labels"


class _Progress:
    """How much is done: texts read and probes fitted, each fit counted as a fifth of the texts."""

    def __init__(self, progress: Progress | None, targets: Targets, plan: ProbePlan, singles: bool, mix: bool) -> None:
        self.progress = progress
        self.texts = len(targets.documents)
        self.fit = max(self.texts // 5, 1)
        seeds = len(plan.seeds)
        n_fits = (seeds if plan.probe == "mlp" else 1) + seeds * (plan.control + plan.code_length + plan.random)
        self.total = self.texts * (1 + seeds * plan.random) + self.fit * (n_fits * singles + seeds * mix)
        self.done = self.before = 0

    def read(self, done: int, total: int | None) -> None:
        self.done = self.before + done
        self._tell()
        if done == total:
            self.before = self.done

    def fitted(self) -> None:
        self.before = self.done = self.before + self.fit
        self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

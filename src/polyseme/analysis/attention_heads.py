"""Which attention head follows which dependency relation (Clark et al. 2019; Voita et al. 2019), as findings.

The head of a relation is chosen on some sentences and read on others, and compared with the best fixed offset, chosen
and read on the same: a determiner's head word is often the next word, and a head that always attends to the next word
knows nothing of determiners.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyseme.analysis.dependency_trees import Treebank
from polyseme.analysis.findings import Findings
from polyseme.analysis.head_counts import (
    ARC_DIRECTIONS,
    ENTROPY,
    LEFT_OUT,
    NEXT,
    PREVIOUS,
    ArcDirection,
    HabitSums,
    HeadCounts,
    HeadTarget,
    count_heads,
    relation_counts,
)
from polyseme.analysis.word_attention import SentenceAttention
from polyseme.bundle import Bundle
from polyseme.errors import OptionError, nearest
from polyseme.metrics.sampling_error import sampling_error
from polyseme.packaged_models import model_name
from polyseme.plots.figures_table import ShadedCell, figures_table, shaded_cells
from polyseme.plots.html_page import escaped
from polyseme.types import Progress

POSITIONAL = 0.9
"""From which share on a head that attends to the neighbor is positional (Voita et al. 2019)."""
MOSTLY = 0.5
"""The least weight on a special piece of a head that attends to it."""
IMPORTANCE = "importance"
_OPEN = 3
"""Relations whose maps are open on the page."""
_HABITS = {
    PREVIOUS: "Words whose most attended other word is the one before, %",
    NEXT: "Words whose most attended other word is the next one, %",
    "itself": "Weight on the word itself, %",
    "first word": "Weight of the other words on the first word, %",
    ENTROPY: "Entropy of the weights over pieces, in nats",
    IMPORTANCE: "Importance on held-out text (Michel et al. 2019), by layer",
}


@dataclass(frozen=True, kw_only=True)
class RelationHead:
    """The head that follows a relation best, in one direction, and the fixed offset beside it."""

    relation: str
    direction: ArcDirection
    layer: int
    head: int
    accuracy: float
    """On the sentences that it was not chosen on."""
    error: float | None
    """The standard error of the accuracy, as of independent words."""
    train_accuracy: float
    """On the sentences that it was chosen on."""
    n: int
    """Words that have such a dependency, on which the accuracy is read."""
    offset: int
    """Words to the right (or left, if negative), chosen on the same sentences as the head."""
    offset_accuracy: float
    difference_error: float | None
    """The standard error of the difference between the two, which are read on the same words."""

    @property
    def difference(self) -> float:
        return self.accuracy - self.offset_accuracy


@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionHeads(Findings):
    """The best head of each relation, how well every head follows each, and what heads attend to otherwise."""

    verb: ClassVar[str] = "heads"
    page_style: ClassVar[str] = """
.shaded td { min-width: 2.2rem; font-size: .82rem } summary { cursor: pointer } .figures td { white-space: nowrap }
.maps { display: flex; flex-wrap: wrap; gap: 0 2.5rem } .maps div { max-width: 100% } .maps p { margin-bottom: 0 }
""".strip()

    relations: Sequence[RelationHead]
    places: Sequence[tuple[int, int]]
    """Layer (counted from 1) and number (from 0) of every head."""
    accuracies: Mapping[HeadTarget, Sequence[float]]
    """Of every relation and direction the accuracy of each head, in the order of `places`."""
    habits: Mapping[str, Sequence[float]]
    """By name, the share or value of each head."""

    def title(self) -> str:
        n_layers = len({layer for layer, _ in self.places})
        return f"{model_name(self.model)}: what {len(self.places)} heads in {n_layers} layers follow"

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "relation": each.relation,
                "direction": each.direction,
                "layer": each.layer,
                "head": each.head,
                "n": each.n,
                "accuracy": each.accuracy,
                "error": each.error,
                "train_accuracy": each.train_accuracy,
                "offset": each.offset,
                "offset_accuracy": each.offset_accuracy,
                "difference": each.difference,
                "difference_error": each.difference_error,
            }
            for each in self.relations
        ]

    def head_records(self) -> list[dict[str, Any]]:
        """One row per head, for pandas: its habits, and how well it follows each relation in each direction."""
        followed = {f"{key.relation} {key.direction}": values for key, values in self.accuracies.items()}
        return [
            {
                "layer": layer,
                "head": head,
                **{name: float(values[place]) for name, values in self.habits.items()},
                **{name: float(values[place]) for name, values in followed.items()},
            }
            for place, (layer, head) in enumerate(self.places)
        ]

    def header(self) -> Sequence[str]:
        return ("relation", "direction", "head", "n", "accuracy", "offset", "offset accuracy", "difference")

    def rows(self) -> Sequence[Sequence[str]]:
        return [
            (
                each.relation,
                each.direction,
                f"{each.layer}-{each.head}",
                f"{each.n:,}",
                _percent(each.accuracy, each.error),
                f"{each.offset:+d}".replace("-", "−"),
                _percent(each.offset_accuracy),
                _percent(each.difference, each.difference_error, signed=True),
            )
            for each in self.relations
        ]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "heads": self.head_records()}

    def positional(self) -> list[tuple[tuple[int, int], str, float]]:
        """Heads whose most attended word is in most places the one before or the next: place, which, share."""
        return self._at_least(POSITIONAL, (PREVIOUS, NEXT))

    def on_specials(self) -> list[tuple[tuple[int, int], str, float]]:
        """Heads that give most of their weight to one special piece: place, which, share."""
        return self._at_least(MOSTLY, [name for name in self.habits if name not in _HABITS])

    def _at_least(self, least: float, names: Sequence[str]) -> list[tuple[tuple[int, int], str, float]]:
        shares = [
            (self.places[place], name, float(share))
            for name in names
            for place, share in enumerate(self.habits[name])
            if share >= least
        ]
        return sorted(shares, key=lambda each: -each[2])

    # --- the page -----------------------------------------------------------------------------------------------------

    def page_body(self) -> str:
        parts = [
            "<p>For each relation, the attention head that follows it best, named by layer and number (layers count "
            "from 1, heads from 0). Accuracy is the share of words whose most attended word, other than special pieces "
            "and the word itself, is the one that the dependency leads to. It is measured on other sentences than "
            "those on which the head was selected. The best fixed offset is selected in the same way. ± is the "
            "standard error, assuming independent words.</p>",
            figures_table(self.header(), self.rows()),
            "<h2>By layer and head</h2>",
        ]
        shown = list(dict.fromkeys(each.relation for each in self.relations))
        chosen = {HeadTarget(each.relation, each.direction): (each.layer, each.head) for each in self.relations}
        for number, relation in enumerate(shown):
            maps = "".join(
                f"<div><p>{escaped(_title(key))}, %</p>{self._map(values, chosen=chosen[key])}</div>"
                for key, values in self.accuracies.items()
                if key.relation == relation
            )
            is_open = " open" if number < _OPEN else ""
            parts.append(
                f"<details{is_open}><summary>{escaped(relation)}</summary><div class='maps'>{maps}</div></details>"
            )
        parts.append("<h2>Habits</h2>")
        positional = _listed(self.positional())
        specials = _listed(self.on_specials())
        parts.append(
            f"<p>Positional heads, whose most attended word is the one before or the next one for at least "
            f"{POSITIONAL:.0%} of all words: {escaped(positional)}.</p>"
            f"<p>Heads that give at least half of their weight to a special piece: {escaped(specials)}.</p>"
        )
        maps = "".join(
            f"<div><p>{escaped(_HABITS.get(name, f'Weight on {name}, %'))}</p>"
            f"{self._map(values, share=name not in (ENTROPY, IMPORTANCE))}</div>"
            for name, values in self.habits.items()
        )
        parts.append(f'<div class="maps">{maps}</div>')
        return "\n".join(parts)

    def _map(self, values: Sequence[float], *, share: bool = True, chosen: tuple[int, int] | None = None) -> str:
        """Layers from bottom to top, heads across; the chosen head has a frame."""
        heads = sorted({head for _, head in self.places})
        low, high = (0.0, max([0.01, *values])) if share else (min(values), max(values))
        cells = {
            place: ShadedCell(
                f"{100 * value:.0f}" if share else f"{value:.2f}",
                (value - low) / (high - low) if high > low else 0.0,
                marked=place == chosen,
            )
            for place, value in zip(self.places, values, strict=True)
        }
        layers = dict.fromkeys(layer for layer, _ in self.places)
        rows = [(f"layer {layer}", [cells.get((layer, head)) for head in heads]) for layer in layers]
        return shaded_cells(["", *map(str, heads)], rows)


def _percent(share: float, error: float | None = None, *, signed: bool = False) -> str:
    text = f"{100 * share:+.1f}" if signed else f"{100 * share:.1f}"
    return (text if error is None else f"{text} ± {100 * error:.1f}").replace("-", "−")


def _title(key: HeadTarget) -> str:
    source = "dependent" if key.direction == "to head word" else "head word"
    return f"{key.relation}, {source} {key.direction}"


def _listed(heads: Sequence[tuple[tuple[int, int], str, float]]) -> str:
    return ", ".join(f"{layer}-{head} ({name}, {share:.0%})" for (layer, head), name, share in heads) or "none"


# --- finding ----------------------------------------------------------------------------------------------------------


def find_heads(
    bundle: Bundle,
    treebank: Treebank,
    *,
    model: str,
    relations: Sequence[str] = (),
    min_count: int = 50,
    importance: Mapping[tuple[int, int], float] | None = None,
    progress: Progress | None = None,
) -> AttentionHeads:
    """The head of each relation, chosen on the one part of a treebank and read on the other.

    Args:
        bundle: a model whose encoder has attention.
        treebank: the sentences.
        model: what it is called.
        relations: those to look for; a relation stands for its subtypes, too. Empty: all frequent ones.
        min_count: words that a relation must have in each part, where none is named.
        importance: of each head (layer, number), where it is known.
        progress: called with the sentences done, and all.
    """
    started = time.perf_counter()
    reader = SentenceAttention(bundle)
    names = chosen_relations(treebank, relations, min_count)
    keys = [HeadTarget(name, direction) for name in names for direction in ARC_DIRECTIONS]
    n_train, n_all = len(treebank.train), len(treebank.train) + len(treebank.test)

    def after(done_before: int) -> Progress:
        def report(done: int, total: int | None) -> None:
            if progress is not None:
                progress(done_before + done, n_all)

        return report

    train, _ = count_heads(reader, treebank.train, keys, progress=after(0))
    n_left_out = reader.n_too_long
    offsets = [train.best_offset(number) for number in range(len(keys))]
    test, habits = count_heads(reader, treebank.test, keys, offsets=offsets, progress=after(n_train))
    notes = _notes(bundle, reader, n_left_out, len(treebank.test), n_train)
    read_in = [number for number in range(len(keys)) if train.n[number] and test.n[number]]
    accuracies = test.accuracies()
    return AttentionHeads(
        model=model,
        data=treebank.description,
        notes=notes,
        cost=reader.tally.cost(time.perf_counter() - started, bundle.device),
        relations=[_relation_head(number, train, test, offsets[number], reader.heads) for number in read_in],
        places=reader.heads,
        accuracies={keys[number]: accuracies[number].tolist() for number in read_in},
        habits=_habits(habits, reader.heads, importance),
    )


def chosen_relations(treebank: Treebank, relations: Sequence[str], min_count: int) -> list[str]:
    """The relations to look for, the most frequent first; one that does not occur is refused with the nearest."""
    train, test = relation_counts(treebank.train), relation_counts(treebank.test)
    for name in relations:
        if not train[name] or not test[name]:
            raise _no_relation(name, train, test)
    if relations:
        return list(dict.fromkeys(relations))
    frequent = [
        name
        for name, count in test.most_common()
        if ":" not in name and name not in LEFT_OUT and min(count, train[name]) >= min_count
    ]
    if not frequent:
        most = next((f"; the most frequent, {name}, {count:,} times" for name, count in test.most_common()), "")
        raise OptionError(
            f"No relation occurs {min_count:,} times in both parts of the treebank{most}. Use more sentences, or a "
            "lower --min-count (min_count=…)."
        )
    return frequent


def _no_relation(name: str, train: Counter[str], test: Counter[str]) -> OptionError:
    if name in LEFT_OUT[:1]:
        return OptionError(f"The relation {name!r} leads to no word, so that no head can follow it. Leave it out.")
    if name in train or name in test:
        return OptionError(
            f"The relation {name!r} occurs {train[name]:,} times in the sentences for selection and {test[name]:,} "
            "times in those for evaluation; both are needed. Use more sentences, or leave it out."
        )
    known = sorted(each for each in train if test[each])
    return OptionError(f"The relation {name!r} does not occur in the treebank. {nearest(name, known)}")


def _relation_head(
    number: int, train: HeadCounts, test: HeadCounts, offset: int, places: Sequence[tuple[int, int]]
) -> RelationHead:
    best = int(train.right[number].argmax())
    key, n = test.keys[number], int(test.n[number])
    right, by_offset = float(test.right[number, best]), test.offsets[number][offset]
    both = float(test.right_by_both[number, best])
    layer, head = places[best]
    return RelationHead(
        relation=key.relation,
        direction=key.direction,
        layer=layer,
        head=head,
        accuracy=right / n,
        error=sampling_error("accuracy", right / n, n),
        train_accuracy=float(train.right[number, best] / train.n[number]),
        n=n,
        offset=offset,
        offset_accuracy=by_offset / n,
        difference_error=paired_error(right - both, by_offset - both, n),
    )


def paired_error(only_first: float, only_second: float, n: int) -> float | None:
    """The standard error of the difference of two shares of the same n items.

    >>> round(paired_error(30, 10, 100), 4)
    0.06
    """
    if n < 2:
        return None
    difference = (only_first - only_second) / n
    return float(np.sqrt(max((only_first + only_second) / n - difference**2, 0.0) / n))


def _habits(
    sums: HabitSums, places: Sequence[tuple[int, int]], importance: Mapping[tuple[int, int], float] | None
) -> dict[str, list[float]]:
    habits = {name: values.tolist() for name, values in sums.shares().items()}
    if importance is not None:
        habits[IMPORTANCE] = [importance[place] for place in places]
    return habits


def _notes(bundle: Bundle, reader: SentenceAttention, left_out: int, n_test: int, n_train: int) -> list[str]:
    notes = []
    if reader.n_too_long:
        notes.append(
            f"{reader.n_too_long:,} of {n_train + n_test:,} sentences are longer than the {bundle.config.window:,} "
            f"pieces that the model reads at once, and were left out ({left_out:,} of those for selection)."
        )
    if bundle.config.direction == "causal":
        notes.append(
            "The model reads from left to right: no word attends to a later one, so that heads can only follow "
            "dependencies that lead to the left."
        )
    return notes

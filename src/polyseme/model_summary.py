"""What a model is and which verbs work with it, for `show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.bundle import Bundle
from polyseme.extras import later
from polyseme.model_folder import model_folder
from polyseme.result_tables import ShownAsTable, Table

_WHOLE = 1000
"""Characters of a path that are always shown."""
SEES = {
    "both": "both sides of a piece, in every layer",
    "causal": "what is before a piece",
    "two-way": "both sides of a piece, each in a half of its own",
    "any-order": "both sides of a piece; trained on one order after another",
    "none": "the piece alone: no context",
}
"""What a piece's state depends on, by the direction of the encoder."""
MOST_LABELS = 8
"""Labels of a task that are shown."""
TASK_VERBS = ("predict", "evaluate", "tradeoffs")
"""What a task model is for."""
WRITES_WELL = ("causal", "two stacks", "two-way", "any-order")
"""Models that have learned to write on; those that fill masks can only be made to."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelSummary(ShownAsTable):
    """What a model is and what it can do."""

    path: str
    family: str
    direction: str
    layers: int
    width: int
    vocabulary: int
    window: int | None
    parameters: int
    outputs: tuple[str, ...]
    tokenizer: str
    can: tuple[str, ...]
    """The verbs that work with it."""
    settings: dict[str, Any]
    """The encoder's whole config."""
    task: str | None = None
    """What it was fitted to, with the labels, where it is a task model."""
    heads: str | None = None
    """How many attention heads are left, where some were pruned."""

    def description(self) -> list[tuple[str, str]]:
        """Everything except the path and the settings, as pairs of a name and a text."""
        return [
            ("family", self.family),
            ("sees", SEES.get(self.direction, self.direction)),
            self._size(),
            ("window", "no bound" if self.window is None else f"{self.window:,} pieces, specials included"),
            ("parameters", f"{self.parameters:,}"),
            *([("heads left", self.heads)] if self.heads is not None else []),
            ("tokenizer", self.tokenizer),
            ("outputs", ", ".join(self.outputs) or "none"),
            *([("task", self.task)] if self.task is not None else []),
            ("can", ", ".join(self.can)),
        ]

    def _size(self) -> tuple[str, str]:
        """Layers, or what a model without an encoder has instead."""
        if self.width:
            return "layers", f"{self.layers} above layer 0, {self.width} wide"
        if "n_ngrams" in self.settings:
            counts = enumerate(self.settings["n_ngrams"], start=1)
            return "n-grams", ", ".join(f"{n:,} of {order}" for order, n in counts)
        return "weights", ", ".join(f"{weight:.4f}" for weight in self.settings["weights"])

    def table(self) -> Table:
        return Table(title=self.family, rows=[("model", self.path), *self.description()[1:]], width=_WHOLE)


def summarize_bundle(bundle: Bundle, path: str) -> ModelSummary:
    """The card of a model with an encoder."""
    config, tokenizer = bundle.config, bundle.text_tokenizer
    card = later("polyseme.transfer.task_folder").task_card(model_folder(Path(path))) if path else None
    return ModelSummary(
        path=path,
        family=bundle.family.name,
        direction=config.direction,
        layers=config.depth,
        width=config.widths[-1],
        vocabulary=config.n_pieces,
        window=config.window,
        parameters=bundle.n_parameters(),
        outputs=tuple(bundle.outputs),
        tokenizer=f"{tokenizer.n_pieces:,} pieces, fingerprint {tokenizer.fingerprint[:12]}",
        can=tuple(dict.fromkeys([*verbs_of(bundle), *([] if card is None else verbs_of_task(card))])),
        settings=config.to_json(),
        task=None if card is None else _described_task(card),
        heads=_heads_left(bundle),
    )


def _described_task(card: Mapping[str, Any]) -> str:
    """The kind of a task and its labels, or the first of them."""
    kind, labels = card["reading"]["kind"], card["head"].get("labels") or []
    first = ", ".join(labels[:MOST_LABELS])
    more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    return f"{kind}: {first}{more}" if labels else str(kind)


def _heads_left(bundle: Bundle) -> str | None:
    """Of all stacks together; None where all heads are there."""
    kind = later("polyseme.parts.attention").Attention
    n_left = n_all = 0
    for stack in (bundle.encoder, bundle.decoder):
        for attention in () if stack is None else stack.modules():
            if isinstance(attention, kind):
                n_left += attention.n_heads
                n_all += attention.n_heads if attention.heads is None else stack.config.n_heads  # type: ignore[union-attr]
    return None if n_left == n_all else f"{n_left} of {n_all} attention heads"


def verbs_of(bundle: Bundle) -> list[str]:
    """The verbs that work with a model: those of word vectors, and what its outputs allow."""
    can = ["embed", "similar", "senses", "concordance", "compare", "pieces", "convert", "finetune", "benchmark"]
    can += ["probe", "geometry", "uses"]
    can += ["fill"] if later("polyseme.filling.choose_filler").can_fill(bundle) else []
    can += ["next"] if "next" in bundle.outputs else []
    strategy = later("polyseme.generating.language_model").generation_strategy(bundle)
    can += ["generate"] if strategy in WRITES_WELL else []
    can += ["score"] if later("polyseme.scoring.choose_scorer").can_score(bundle) else []
    by_itself = "score" in can and bundle.decoder is None  # not given a source
    can += ["evaluate"] if by_itself or "fill" in can else []
    rows = later("polyseme.analysis.prediction_rows").row_kind(bundle)
    can += ["lens"] if rows is not None else []
    can += ["patch"] if rows is not None and bundle.encoder.halves()[0].layer_modules() else []
    can += ["attention"] if later("polyseme.analysis.attention_maps").shows_attention(bundle) else []
    can += ["heads"] if later("polyseme.analysis.word_attention").has_attentions(bundle) else []
    can += ["cells"] if later("polyseme.analysis.recurrent_cells").has_cells(bundle.encoder) else []
    return can


def verbs_of_task(card: Mapping[str, Any]) -> list[str]:
    """The verbs that work with a task model, by its card."""
    reading = card["reading"]
    kinds = later("polyseme.analysis.attributions").KINDS_ATTRIBUTED
    return [*TASK_VERBS, *(["attribute"] if reading["kind"] in kinds and not reading.get("prompt") else [])]


def short_number(number: int) -> str:
    """A number in thousands or millions.

    >>> short_number(22_713_216), short_number(900)
    ('22.7 M', '900')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)

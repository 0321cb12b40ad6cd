"""A model for a task: an encoder, what is taken from its states, and a head over that.

Shapes: R rows, T pieces, W words, L layers, D width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import Config
from polyseme.errors import ModelError, OptionError
from polyseme.heads.base import Head
from polyseme.heads.config import HeadConfig
from polyseme.heads.features import Features
from polyseme.heads.named import build_head, named_settings
from polyseme.heads.word_inputs import WordInputs, WordInputsConfig
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.transfer.batches import ReadRows, TaskBatch
from polyseme.transfer.readout import READOUTS, check_readout, whole_width
from polyseme.transfer.rows import RowMaker
from polyseme.types import Batch, Predictions
from polyseme.vectors.layers import LayerChoice, parse_layers
from polyseme.vectors.pooling import parse_pooling
from polyseme.vectors.word_rows import laid_out

BY_PLACE = {"first": "begins", "last": "ends"}
"""Poolings that take one piece of a word: which."""
FROM_THE_START = ("first", "pooled")


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """How a task model reads: what is kept beside the head in a model folder."""

    kind: str
    frozen: bool
    layer: str
    pool: str
    readout: str
    most_pieces: int
    stride: int = 128
    apart: bool = False
    """Whether two texts are read in a row each."""
    whole: bool = False
    """Whether the head reads one vector for the row; otherwise, and in span tasks too, it reads words."""
    with_marks: bool = False
    """Whether words come with marks (predicates)."""


class TaskModel(nn.Module):
    """Encoder, readout and head; frozen or not."""

    def __init__(self, bundle: Bundle | None, config: TaskConfig, head: Head, inputs: WordInputs | None = None) -> None:
        super().__init__()
        self.bundle = bundle
        self.config = config
        self.head = head
        self.inputs = inputs
        """Word vectors that are learnt with the head, beside the encoder's or in their place."""
        self.mix: ScalarMix | None = None
        self.row_maker: RowMaker | None = None
        if bundle is None:
            return
        if bundle.tokenizer is None:
            raise ModelError("The model has no tokenizer, so it cannot read a task.")
        self.choice: LayerChoice = parse_layers(config.layer, bundle.config)
        self.pooling = parse_pooling(config.pool, bundle.config.direction)
        if config.layer == "mix":
            self.mix = ScalarMix(len(self.choice.layers))
        self.row_maker = RowMaker(
            bundle.tokenizer, bundle.config, config.most_pieces, stride=config.stride, with_words=self.reads_words
        )
        bundle.requires_grad_(False)
        if not config.frozen:
            bundle.encoder.requires_grad_(True)
            if self.pooler is not None:
                self.pooler.requires_grad_(True)

    @property
    def device(self) -> torch.device:
        return next(self.head.parameters()).device

    @property
    def reads_words(self) -> bool:
        return not self.config.whole or self.config.kind == "span"

    @property
    def pooler(self) -> nn.Module | None:
        """What the readout goes through, where it is `pooled`."""
        if self.bundle is None or self.config.readout != "pooled" or not self.config.whole:
            return None
        return pooler_of(self.bundle)

    def train(self, mode: bool = True) -> TaskModel:
        """As of any module; a frozen encoder stays as in inference, and so do outputs that nothing here runs."""
        super().train(mode)
        if self.config.frozen and self.bundle is not None:
            self.bundle.eval()
        return self

    # --- rows to features ---------------------------------------------------------------------------------------------

    def features(self, batch: TaskBatch) -> Features:
        """What the head reads of a batch."""
        found = self._features(batch)
        if self.inputs is not None and batch.words is not None:
            found = self._with_inputs(found, batch)
        if found is None:
            raise ModelError("A batch has neither rows, nor vectors, nor words.")
        found.marks, found.groups = batch.marks, batch.groups
        return found

    def _features(self, batch: TaskBatch) -> Features | None:
        if batch.features is not None:
            return self._mixed(batch.features)
        if batch.rows is None:
            return None
        found = self._read(batch.rows)
        if batch.second is not None:
            other = self._read(batch.second)
            found.second, found.second_mask = other.words, other.mask
        return found

    def _with_inputs(self, found: Features | None, batch: TaskBatch) -> Features:
        """The words' vectors with those that are learnt here beside them."""
        words, mask = self._inputs(batch.words)
        second, second_mask = self._inputs(batch.second_words)
        if found is None:
            return Features(words=_some(words), mask=_some(mask), second=second, second_mask=second_mask)
        found.words = torch.cat([found.words, _some(words).to(found.words.dtype)], dim=-1)
        if found.second is not None:
            found.second = torch.cat([found.second, _some(second).to(found.second.dtype)], dim=-1)
        return found

    def _inputs(self, words: list[list[str]] | None) -> tuple[Tensor | None, Tensor | None]:
        if words is None or self.inputs is None:
            return None, None
        numbers = self.inputs.read(words).to(self.device)
        return self.inputs(numbers), numbers.mask

    def _read(self, rows: ReadRows) -> Features:
        states = self.states(rows)
        words, mask = states[:, :0], rows.mask[:, :0]
        if self.reads_words:
            words, mask = self.words_of(states, rows), rows.mask
        whole = None
        if self.config.whole:
            whole = READOUTS[self.config.readout](states, rows.whole, rows.lengths)
            if self.pooler is not None:
                whole = self.pooler(whole)
        return Features(words=words, mask=mask, whole=whole)

    def states(self, rows: ReadRows) -> Tensor:
        """[R, T, D]: the layers that were chosen, as one."""
        if self.bundle is None:
            raise ModelError("There is no encoder to read rows with.")
        batch = Batch(rows.pieces, rows.lengths, rows.segments)
        with torch.no_grad() if self.config.frozen else contextlib.nullcontext():
            states = self.bundle.encoder(batch, layers=self.choice.layers)
        layers = [states[number] for number in self.choice.layers]
        if self.mix is not None:
            mixed: Tensor = self.mix(layers)
            return mixed
        flat = self.choice.combine(
            {number: layer.flatten(0, 1) for number, layer in zip(self.choice.layers, layers, strict=True)}
        )
        combined: Tensor = flat.unflatten(0, layers[0].shape[:2])
        return combined

    def words_of(self, states: Tensor, rows: ReadRows) -> Tensor:
        """[R, W, D]: a vector a word, zeros where there is none."""
        flat = states.flatten(0, 1)
        if self.config.pool in BY_PLACE:
            return flat[getattr(rows, BY_PLACE[self.config.pool])] * rows.mask[:, :, None]
        pooled = self.pooling(flat, rows.begins[rows.mask], rows.ends[rows.mask])
        return laid_out(pooled, rows.mask)

    def _mixed(self, given: Features) -> Features:
        """Frozen vectors, [R, W, L, D] where layers are mixed."""

        def mixed(vectors: Tensor | None) -> Tensor | None:
            return vectors if self.mix is None or vectors is None else self.mix(vectors.unbind(-2))

        whole = mixed(given.whole)
        if whole is not None and self.pooler is not None:
            whole = self.pooler(whole)
        return Features(
            words=_some(mixed(given.words)),
            mask=given.mask,
            whole=whole,
            second=mixed(given.second),
            second_mask=given.second_mask,
        )

    # --- what it is for -----------------------------------------------------------------------------------------------

    def forward(self, batch: TaskBatch) -> Tensor:
        """What is minimised: the mean loss of the units."""
        if batch.gold is None:
            raise ModelError("There is no gold to learn from.")
        return self.head.mean_loss(self.features(batch), batch.gold)

    @torch.no_grad()
    def predict(self, batch: TaskBatch) -> Predictions:
        """What the head says."""
        return self.head.predict(self.features(batch))

    # --- parameters ---------------------------------------------------------------------------------------------------

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """The encoder's, from bottom to top; none where it is frozen."""
        return [] if self.config.frozen or self.bundle is None else self.bundle.encoder.layer_groups()

    def learnt(self) -> dict[str, nn.Parameter]:
        """What learns, by name."""
        kept = ("head.", "mix.", "inputs.", *(() if self.config.frozen else ("bundle.encoder.",)))
        pooled = () if self.pooler is None or self.config.frozen else ("bundle.outputs.pooled.",)
        return {name: each for name, each in self.named_parameters() if name.startswith(kept + pooled)}

    def shares(self) -> dict[str, Any] | None:
        """The learnt mix: γ, and the share of each layer."""
        if self.mix is None:
            return None
        shares = torch.softmax(self.mix.weights.detach().double(), 0).tolist()
        return {
            "gamma": float(self.mix.gamma.detach()),
            "shares": dict(zip(map(str, self.choice.layers), shares, strict=True)),
        }


def pooler_of(bundle: Bundle) -> nn.Module | None:
    """A model's pooler, if it has one."""
    return dict(bundle.outputs).get("pooled")


def _some(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def build_task_model(
    bundle: Bundle | None,
    *,
    kind: str,
    head: str,
    layer: str = "-1",
    pool: str = "mean",
    readout: str = "mean",
    frozen: bool = False,
    most_pieces: int = 512,
    stride: int = 128,
    inputs: WordInputsConfig | None = None,
    head_settings: Mapping[str, Any] | None = None,
) -> TaskModel:
    """A new task model around a bundle, which is taken over; what is new is drawn from torch's present seed.

    `head_settings` are fields of `HeadConfig` besides those that `head` stands for: labels, regression, dropout_rate …
    Without a bundle the head reads learnt inputs alone.
    """
    plan = _plan(
        bundle, kind, head, layer, pool, readout, frozen, most_pieces, stride, learnt_inputs=inputs is not None
    )
    width = 0 if bundle is None else parse_layers(layer, bundle.config).width(bundle.config)
    settings = {**named_settings(head), **(head_settings or {})}
    plan = plan.replace(with_marks=bool(settings.get("n_marks")))
    words = readout if readout not in FROM_THE_START else "mean"
    head_config = HeadConfig(
        kind=kind,  # type: ignore[arg-type]
        width=width + (0 if inputs is None else inputs.width),
        whole_width=whole_width(plan.readout, width) if plan.whole else None,
        apart=plan.apart,
        readout=words,  # type: ignore[arg-type]
        **settings,
    )
    return TaskModel(bundle, plan, build_head(head_config), None if inputs is None else WordInputs(inputs))


def _plan(
    bundle: Bundle | None,
    kind: str,
    head: str,
    layer: str,
    pool: str,
    readout: str,
    frozen: bool,
    most_pieces: int,
    stride: int,
    *,
    learnt_inputs: bool,
) -> TaskConfig:
    """How a model of this kind is to read, by what its encoder and its head can take."""
    two = kind in ("pair", "span", "choose")
    plain = {"frozen": frozen, "layer": layer, "pool": pool, "most_pieces": most_pieces, "stride": stride}
    if bundle is None:
        return TaskConfig(kind=kind, readout=readout, apart=two, **{**plain, "frozen": True})  # type: ignore[arg-type]
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a task.")
    if parse_layers(layer, bundle.config).how == "all":
        raise OptionError("A head reads one vector a word; 'all' layers are several. Take mix, concat:a:b or a number.")
    parse_pooling(pool, bundle.config.direction)
    maker = RowMaker(bundle.tokenizer, bundle.config, most_pieces, stride=stride)
    over_whole = named_settings(head)["body"] in ("linear", "mlp") and not learnt_inputs
    from_start = readout in FROM_THE_START
    if from_start:
        check_readout(readout, starts=maker.starts, pooler=pooler_of(bundle))
    if kind == "span":
        whole = not frozen and maker.frames_pairs and maker.starts
        readout = "first" if whole else readout
    else:
        whole = kind != "tag" and over_whole and (not frozen or from_start) and (maker.frames_pairs or not two)
    apart = two and not (maker.frames_pairs and (whole or not frozen))
    return TaskConfig(kind=kind, readout=readout, apart=apart, whole=whole, **plain)  # type: ignore[arg-type]

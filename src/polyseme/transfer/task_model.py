"""A model for a task: an encoder, what is taken from its states, and a head over that.

Of a model with two stacks the states may be the decoder's: it reads the text again, shifted right behind the piece that
it begins with, and sees all of it through the encoder. Or the answer is written (`heads.text_head`).

Shapes: R rows, T pieces, W words, L layers, D width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import Config
from polyseme.cost import decoder_flops, forward_flops
from polyseme.embedding.decoder_stack import check_stack, config_of, decoder_of, fresh_bundle, groups_of, run_stack
from polyseme.embedding.layer_selection import LayerChoice, parse_layers
from polyseme.embedding.pooling import parse_pooling
from polyseme.embedding.word_rows import laid_out
from polyseme.encoders.encoder import Layers
from polyseme.encoders.inference import InferenceEncoder, Precision, build_inference_encoder, padded_layers
from polyseme.errors import ModelError, OptionError
from polyseme.heads.head import Features, Head, read_out
from polyseme.heads.text_head import TextHead
from polyseme.heads.word_inputs import WordInputs, WordNumbers
from polyseme.outputs.labels import NextOutput, ReplacedOutput
from polyseme.outputs.output import Output
from polyseme.parts.recurrence import reverse_rows
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.tasks.encoder_rows import RowMaker
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.chunked_reading import Chunks, chunked_states, read_places
from polyseme.transfer.stacked_inputs import FrozenInput, InputModel, InputVectors
from polyseme.transfer.text_labels import OUTPUT, writer_of
from polyseme.transfer.unit_batches import ReadRows, TaskBatch
from polyseme.types import Batch, Predictions, States

BY_PLACE = {"first": "begins", "last": "ends"}
"""Poolings that take one piece of a word: which."""
COUNTED = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of batch normalization."""
FROM_START = ("first", "pooled")
"""Readouts that take the state of a start special ([CLS]), as it is or through the pooler."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """How a task model reads: what is kept beside the head in a model folder."""

    kind: str
    frozen: bool = False
    layer: str = "-1"
    pool: str = "mean"
    readout: str = "mean"
    max_pieces: int = 512
    stride: int = 128
    separate_rows: bool = False
    """Whether two texts are read in a row each."""
    whole: bool = False
    """Whether the head reads one vector for the row; otherwise, and in span tasks too, it reads words."""
    with_marks: bool = False
    """Whether words come with marks (predicates, spans)."""
    stack: str = "encoder"
    """Whose layers are read, of a model that has two stacks."""
    prompt: tuple[str, ...] = ()
    """What precedes each text where the answer is written; none: the head reads vectors."""
    chunk_length: int | None = None
    """Pieces of the chunks that a row is read in (`transfer.chunked_reading`); None: it is read whole."""
    read_last: int | None = None
    """Of a row in chunks, how many of the last pieces are read out; None: all."""
    standardized: bool = False
    """Whether the numbers of its layers are standardized before they are mixed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))

    @property
    def writes(self) -> bool:
        """Whether the answer is written by the decoder."""
        return bool(self.prompt)


class TaskModel(nn.Module):
    """Encoder, readout and head; frozen or not."""

    def __init__(
        self,
        bundle: Bundle | None,
        config: TaskConfig,
        head: Head,
        inputs: WordInputs | None = None,
        stacked: Sequence[InputModel] = (),
    ) -> None:
        super().__init__()
        self.bundle = bundle
        self.config = config
        self.head = head
        self.inputs = inputs
        """Word vectors that are learned with the head, beside the encoder's or in their place."""
        self.stacked = nn.ModuleList(FrozenInput(each) for each in stacked)
        """Frozen models whose words' vectors are beside those."""
        self.maps: nn.Module | None = None
        """Brings states to the width of a teacher's while they are compared with it; it is not saved."""
        self.on_states: Callable[[States], None] | None = None
        """Called with the states of all layers whenever the encoder reads rows."""
        self.mix: ScalarMix | None = None
        self.row_maker: RowMaker | None = None
        self.inference: InferenceEncoder | None = None
        """The encoder in int8, where predictions are computed in that."""
        if bundle is None:
            return
        if bundle.tokenizer is None:
            raise ModelError("The model has no tokenizer, so it cannot read a task.")
        check_stack(bundle, config.stack)
        read = config_of(bundle, config.stack)
        self.choice: LayerChoice = parse_layers(config.layer, read)
        self.pooling = parse_pooling(config.pool, read, self.choice.side_by_side(read))
        if isinstance(head, TextHead):
            head.writer = writer_of(bundle)
        if config.layer == "mix":
            width = self.choice.width(read) if config.standardized else None
            self.mix = ScalarMix(len(self.choice.layers), standard_width=width)
        self.row_maker = RowMaker(
            bundle.tokenizer,
            read,
            config.max_pieces,
            stride=config.stride,
            with_words=self.reads_words,
            prompt=config.prompt,
        )
        bundle.requires_grad_(False)
        for parameter in self._trained_parameters(bundle):
            parameter.requires_grad_(True)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def precision(self) -> Precision:
        """What the encoder multiplies in, where it predicts."""
        return "own" if self.inference is None else "int8"

    @property
    def reads_words(self) -> bool:
        return not self.config.writes and (not self.config.whole or KINDS[self.config.kind].reads_words)

    @property
    def runs_decoder(self) -> bool:
        return self.config.writes or self.config.stack == "decoder"

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

    def run_in_int8(self) -> None:
        """Have predictions computed in int8: the products of the encoder, on a CPU."""
        if self.bundle is None or self.runs_decoder:
            read = "no encoder" if self.bundle is None else "a decoder, too"
            raise OptionError(f"In int8, an encoder alone is run, and this task model reads {read}. Use fp32.")
        if self.device.type != "cpu":
            raise OptionError(f"int8 runs on a CPU only. On {self.device}, use bf16.")
        self.inference = build_inference_encoder(self.bundle.encoder, "int8")

    # --- rows to features ---------------------------------------------------------------------------------------------

    def features(self, batch: TaskBatch) -> Features:
        """What the head reads of a batch."""
        features = self._features(batch)
        if batch.words is not None or batch.stacked is not None:
            features = self._with_inputs(features, batch)
        if features is None:
            raise ModelError("A batch has neither rows, nor vectors, nor words.")
        features.marks, features.second_marks, features.groups = batch.marks, batch.second_marks, batch.groups
        return features

    def _features(self, batch: TaskBatch) -> Features | None:
        if batch.features is not None:
            return self._mix_layers(batch.features)
        if batch.rows is None:
            return None
        features = self._read(batch.rows)
        if batch.second is not None:
            other = self._read(batch.second)
            features.second, features.second_mask = other.words, other.mask
        return features

    def _with_inputs(self, features: Features | None, batch: TaskBatch) -> Features:
        """The words' vectors with those of other inputs beside them: frozen models', then those that are learned."""
        words, mask = self._inputs(batch.stacked, batch.words)
        second, second_mask = self._inputs(batch.second_stacked, batch.second_words)
        if features is None:
            second_of = torch.cat(second, dim=-1) if second else None
            return Features(
                words=torch.cat(words, dim=-1), mask=_present(mask), second=second_of, second_mask=second_mask
            )
        features.words = torch.cat([features.words, *(each.to(features.words.dtype) for each in words)], dim=-1)
        if features.second is not None:
            features.second = torch.cat([features.second, *(each.to(features.second.dtype) for each in second)], dim=-1)
        return features

    def _inputs(self, frozen: InputVectors | None, learned: WordNumbers | None) -> tuple[list[Tensor], Tensor | None]:
        """The vectors of each input, and which words there are."""
        vectors: list[Tensor] = []
        if frozen is not None:
            members = self.frozen_inputs
            parts = frozen.vectors.split([each.stored_width for each in members], dim=-1)
            there = frozen.mask[:, :, None]
            vectors += [member(part) * there for member, part in zip(members, parts, strict=True)]
        if learned is not None and self.inputs is not None:
            vectors.append(self.inputs(learned))
        mask = None if frozen is None and learned is None else (frozen or learned).mask  # type: ignore[union-attr]
        return vectors, mask

    @property
    def frozen_inputs(self) -> list[FrozenInput]:
        return list(self.stacked)  # type: ignore[arg-type]

    def _read(self, rows: ReadRows) -> Features:
        states = self.states(rows)
        if self.config.writes:
            return Features(words=states, mask=read_places(states, rows.lengths))
        words, mask = states[:, :0], rows.mask[:, :0]
        if self.reads_words:
            words, mask = self.words_of(states, rows), rows.mask
        return Features(words=words, mask=mask, whole=self.whole_of(states, rows))

    def whole_of(self, states: Tensor, rows: ReadRows) -> Tensor | None:
        """[R, D]: what stands for each row, `concat` is [R, 3 D]; None where the head reads no such vector."""
        if not self.config.whole:
            return None
        whole = self._read_out(states, rows)
        return whole if self.pooler is None else self.pooler(whole)

    def _read_out(self, states: Tensor, rows: ReadRows) -> Tensor:
        readout = self.config.readout
        if readout in FROM_START:
            return states.gather(1, rows.whole[:, None, None].expand(-1, -1, states.shape[-1])).squeeze(1)
        if self.bundle is not None and config_of(self.bundle, self.config.stack).reads_backwards:
            states = reverse_rows(states, rows.lengths)  # the last state is the one that has read all
        real = read_places(states, rows.lengths, self.config.read_last)
        return read_out(states, real, readout)  # type: ignore[arg-type]

    def states(self, rows: ReadRows) -> Tensor:
        """[R, T, D]: the layers that were chosen, as one."""
        if self.bundle is None:
            raise ModelError("There is no encoder to read rows with.")
        config, batch = self.config, Batch(rows.pieces, rows.lengths, rows.segments)
        numbers: Layers = self.choice.layers if self.on_states is None else "all"
        with torch.no_grad() if config.frozen else contextlib.nullcontext():
            if config.chunk_length is not None:
                chunks = Chunks(config.chunk_length, config.read_last)
                states = chunked_states(self.bundle.encoder, batch, self.choice.layers, chunks)
            elif self.inference is not None:
                packed = padded_layers(self.inference, batch, numbers)
                states = States(packed, batch.lengths, self.bundle.config.depth)
            else:
                states = run_stack(self.bundle, config.stack, batch, numbers)
        if self.on_states is not None:
            self.on_states(states)
        layers = [states[number] for number in self.choice.layers]
        if self.mix is not None:
            mixed: Tensor = self.mix(layers)
            return mixed
        flat = self.choice.combine(
            {number: layer.flatten(0, 1) for number, layer in zip(self.choice.layers, layers, strict=True)}
        )
        return flat.reshape(*layers[0].shape[:2], *flat.shape[1:])

    def words_of(self, states: Tensor, rows: ReadRows) -> Tensor:
        """[R, W, D]: one vector per word, zeros where there is none."""
        flat = states.flatten(0, 1)
        if self.config.pool in BY_PLACE:
            return flat[getattr(rows, BY_PLACE[self.config.pool])] * rows.mask[:, :, None]
        pooled = self.pooling(flat, rows.begins[rows.mask], rows.ends[rows.mask])
        return laid_out(pooled, rows.mask)

    def _mix_layers(self, features: Features) -> Features:
        """Frozen vectors, [R, W, L, D] where layers are mixed."""

        def mixed(vectors: Tensor | None, mask: Tensor | None) -> Tensor | None:
            if self.mix is None or vectors is None:
                return vectors
            one = self.mix.of_stacked(vectors)
            return one if mask is None else one * mask[:, :, None]

        whole = mixed(features.whole, None)
        if whole is not None and self.pooler is not None:
            whole = self.pooler(whole)
        return Features(
            words=_present(mixed(features.words, features.mask)),
            mask=features.mask,
            whole=whole,
            second=mixed(features.second, features.second_mask),
            second_mask=features.second_mask,
        )

    # --- what it is for -----------------------------------------------------------------------------------------------

    def forward(self, batch: TaskBatch) -> Tensor:
        """What is minimized: the mean loss of the units."""
        if batch.gold is None:
            raise ModelError("There is no gold to learn from.")
        return self.head.mean_loss(self.features(batch), batch.gold)

    @torch.no_grad()
    def predict(self, batch: TaskBatch) -> Predictions:
        """What the head says."""
        return self.head.predict(self.features(batch))

    # --- parameters ---------------------------------------------------------------------------------------------------

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """The encoder's, and the decoder's where it runs, from bottom to top; none where they are frozen."""
        if self.config.frozen or self.bundle is None:
            return []
        return groups_of(self.bundle, with_decoder=self.runs_decoder)

    def fresh_groups(self) -> list[list[nn.Parameter]]:
        """The same groups of a model like this one's, newly initialized from torch's present seed."""
        if self.bundle is None:
            return []
        return groups_of(fresh_bundle(self.bundle), with_decoder=self.runs_decoder)

    def _trained_parameters(self, bundle: Bundle) -> Iterable[nn.Parameter]:
        """The parameters of the model that are trained."""
        return (each for name, each in bundle.named_parameters() if f"bundle.{name}".startswith(self._trained_prefixes))

    @property
    def _trained_prefixes(self) -> tuple[str, ...]:
        """How the names of trained parameters begin, without those of new parts."""
        if self.config.frozen or self.bundle is None:
            return ()
        beside = [
            ("bundle.decoder.", self.runs_decoder),
            ("bundle.outputs.pooled.", self.pooler is not None),
            (f"bundle.outputs.{OUTPUT}.", self.config.writes),
        ]
        return ("bundle.encoder.", *(name for name, there in beside if there))

    def state(self) -> dict[str, Tensor]:
        """What training changes, by name: the trained parameters, what normalization in the head has counted, and the
        means and standard deviations of layers.
        """
        counted = {f"head.{name}": each for name, each in self.head.named_buffers() if name.endswith(COUNTED)}
        return {**self.learned(), **counted, **self.standards()}

    def standards(self) -> dict[str, Tensor]:
        """The means and standard deviations of the layers that are standardized, by name."""
        mixes = self.standard_mixes().items()
        return {f"{place}.{name}": each for place, mix in mixes for name, each in mix.named_buffers()}

    def standard_mixes(self) -> dict[str, ScalarMix]:
        """The mixes of layers that are standardized, by name."""
        mixes = {"mix": self.mix} | {f"stacked.{n}.mix": each.mix for n, each in enumerate(self.frozen_inputs)}
        return {name: mix for name, mix in mixes.items() if mix is not None and mix.center is not None}

    def learned(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name."""
        mixes = [f"stacked.{number}.mix." for number in range(len(self.stacked))]
        prefixes = ("head.", "mix.", "maps.", "inputs.", *mixes, *self._trained_prefixes)
        return {name: each for name, each in self.named_parameters() if name.startswith(prefixes)}

    def forward_flops(self, row_lengths: Iterable[int], *, learning: bool = False) -> float:
        """Floating-point operations of one forward pass over rows of these lengths, without the head's own.

        A model that writes its answers writes one text per row in training, and scores all texts otherwise.
        """
        if self.bundle is None:
            return 0.0
        lengths = list(row_lengths)
        flops = forward_flops(self.bundle.config, lengths)
        if not self.runs_decoder:
            return flops
        config = decoder_of(self.bundle).config
        if not isinstance(self.head, TextHead):
            return flops + sum(decoder_flops(config, length, length) for length in lengths)
        n_written = self.head.texts.shape[1] if learning else self.head.texts.numel()
        output = self.bundle.outputs[OUTPUT]
        matrices = sum(each.numel() for each in output.parameters() if each.dim() > 1)
        flops += 2.0 * matrices * n_written * len(lengths)
        return flops + sum(decoder_flops(config, length, n_written) for length in lengths)

    def shares(self) -> dict[str, Any] | None:
        """The learned mix: γ, and the share of each layer."""
        if self.mix is None:
            return None
        shares = torch.softmax(self.mix.weights.detach().double(), 0).tolist()
        return {
            "gamma": float(self.mix.gamma.detach()),
            "shares": dict(zip(map(str, self.choice.layers), shares, strict=True)),
        }


def check_language_model(bundle: Bundle | None) -> None:
    """Refuse for ULMFiT what has never predicted pieces."""
    outputs = () if bundle is None else bundle.outputs.values()
    if not any(isinstance(each, Output) and not isinstance(each, NextOutput | ReplacedOutput) for each in outputs):
        raise OptionError(
            "ULMFiT (ulmfit, --ulmfit) fits a language model to a task, and this model predicts no words: it has no "
            "such output. Name a model that pretrain has made, such as one of the recipe awd-lstm, or leave ulmfit "
            "out: its steps are options that every model takes."
        )


def pooler_of(bundle: Bundle) -> nn.Module | None:
    """A model's pooler, if it has one."""
    return dict(bundle.outputs).get("pooled")


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor

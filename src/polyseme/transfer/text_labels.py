"""Labels as text: how a task is put to a model that writes, what it may write, and how likely it is to.

As in T5 (Raffel et al. 2020): the source is `sst2 sentence: …`, or `rte sentence1: … sentence2: …`, with the task's
name first; the target is the label, or a number to the nearest 0.2, and the end.

Shapes: R rows, S pieces of the longest row, D width, N texts, K pieces of the longest of them, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import after
from polyseme.encoders.encoder import Encoder
from polyseme.errors import OptionError
from polyseme.outputs.output import Output
from polyseme.parts.masks import SameDocument
from polyseme.scoring.target_rows import NUMBERS_AT_ONCE
from polyseme.tasks.encoder_rows import RowMaker
from polyseme.tasks.items import TaskData
from polyseme.tasks.kinds import KINDS, writable_kinds
from polyseme.types import Batch, States

OUTPUT = "causal"
"""The output that writes."""
TO_ONE = 5
"""Numbers are written to the nearest fifth."""
MOST_NUMBERS = 101
"""That a regression may have to choose from: a scale of 20."""

Answers = Literal["encoder", "decoder", "text"]
"""What a task's answer is read from: the encoder's states, the decoder's, or what the decoder writes."""


@dataclass(frozen=True)
class DecoderWriter:
    """A model's decoder and output, as `heads.text_head.Writer`."""

    decoder: Encoder
    output: Output
    first: int
    """The piece that the decoder reads before any other."""

    def __call__(self, source: Tensor, lengths: Tensor, texts: Tensor) -> Tensor:
        """All texts of a row are in one row of the decoder, and see only themselves: the source is read once.

        A decoder that cannot hide them from each other reads them in rows of their own.
        """
        n_rows, (_, n_texts, n_pieces) = source.shape[0], texts.shape
        texts = texts.expand(n_rows, -1, -1)
        read = after(self.first, texts.flatten(0, 1))  # [R · N, K]
        depth = self.decoder.config.depth
        if not self.decoder.config.follows_masks:
            source, lengths = (each.repeat_interleave(n_texts, dim=0) for each in (source, lengths))
            states = self.decoder(Batch(read, source=States({depth: source}, lengths, depth)), layers=[-1])[-1]
            return self._losses(states.flatten(0, 1), texts.reshape(-1)).view(texts.shape)
        read = read.view(n_rows, -1)  # [R, N · K]
        here = torch.arange(n_texts * n_pieces, device=source.device)[None]
        batch = Batch(
            read,
            positions=here % n_pieces,
            mask=SameDocument(here // n_pieces) if n_texts > 1 else None,
            source=States({depth: source}, lengths, depth),
        )
        states = self.decoder(batch, layers=[-1])[-1]
        return self._losses(states.flatten(0, 1), texts.reshape(-1)).view(texts.shape)

    def _losses(self, states: Tensor, targets: Tensor) -> Tensor:
        """[M, D], [M] → [M]; where nothing is learned, not all scores of the vocabulary need be there at once."""
        if torch.is_grad_enabled():
            return self.output.loss(states, targets)
        n_pieces = max(parameter.shape[0] for parameter in self.output.parameters())
        at_once = max(NUMBERS_AT_ONCE[states.device.type] // n_pieces, 1)
        parts = zip(states.split(at_once), targets.split(at_once), strict=True)
        return torch.cat([self.output.loss(each, theirs) for each, theirs in parts])


def writer_of(bundle: Bundle) -> DecoderWriter:
    """What a model writes with."""
    check_writes(bundle)
    return DecoderWriter(cast(Encoder, bundle.decoder), cast(Output, bundle.outputs[OUTPUT]), bundle.first_written)


def check_writes(bundle: Bundle | None, kind: str = "classify", *, multi: bool = False) -> None:
    """Refuse a model that cannot write, and a task whose answer is no text."""
    if not KINDS[kind].writable or multi:
        task = "with several labels of one text" if multi else f"of kind {kind!r}"
        raise OptionError(
            f"The head 'text' writes one label, or one number, of a text or a pair ({', '.join(writable_kinds())}). "
            f"Got a task {task}. Leave the head out, or take 'linear'."
        )
    if bundle is None or not _writes(bundle):
        reason = "there is no model" if bundle is None else "this one has none, or no output to write with"
        raise OptionError(
            f"The head 'text' writes labels with a model's decoder, and {reason}. Take a model of two stacks, such as "
            "T5 or BART, or another head."
        )


def _writes(bundle: Bundle) -> bool:
    return bundle.decoder is not None and OUTPUT in bundle.outputs and bundle.tokenizer is not None


def answers_of(bundle: Bundle | None, data: TaskData, *, starts: bool) -> Answers:
    """What a task's answer is read from unless the user says otherwise, as the papers did it.

    A model of two stacks whose rows have a start special is read at its decoder's states (BART). One whose rows have
    none writes the answer (T5), where that is a text. All others are read at their encoder's states.
    """
    if bundle is None or bundle.decoder is None:
        return "encoder"
    if starts:
        return "decoder"
    written = KINDS[data.kind].writable and not data.multi and _writes(bundle)
    return "text" if written and len(_numbers(data)) <= MOST_NUMBERS else "encoder"


# --- what is read and written -----------------------------------------------------------------------------------------


def numbers_of(data: TaskData) -> tuple[str, ...]:
    """The numbers that may be written: every fifth from the least to the largest of train; none where labels are."""
    numbers = _numbers(data)
    if len(numbers) > MOST_NUMBERS:
        raise OptionError(
            f"The head 'text' writes numbers to the nearest {1 / TO_ONE:g}. Those of train are from {numbers[0]} to "
            f"{numbers[-1]}: {len(numbers):,} texts to choose from, and {MOST_NUMBERS} are the most. Scale them down, "
            "or take the head 'linear'."
        )
    return numbers


def _numbers(data: TaskData) -> tuple[str, ...]:
    if not data.regression:
        return ()
    scores = [float(item.gold) for item in data.splits["train"] if item.gold is not None]
    least, largest = round(min(scores) * TO_ONE), round(max(scores) * TO_ONE)
    return tuple(f"{number / TO_ONE:.1f}" for number in range(least, largest + 1))


def pieces_of(maker: RowMaker, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The pieces of texts that are to be written, each with its end; all must differ.

    A text of which the tokenizer knows nothing is refused.
    """
    unknown = maker.tokenizer.specials.get("unknown")
    written: dict[tuple[int, ...], str] = {}
    for text in texts:
        own, whole = maker.written(text)
        if not maker.tokenizer.decode([piece for piece in own if piece != unknown]).strip():
            raise OptionError(
                f"The label {text!r} cannot be written: the model's tokenizer has no pieces for it. Rename the label, "
                "or take the head 'linear'."
            )
        if whole in written:
            raise OptionError(
                f"The labels {written[whole]!r} and {text!r} are written alike: the model's tokenizer makes the same "
                "pieces of both. Rename one of them, or take the head 'linear'."
            )
        written[whole] = text
    return tuple(written)

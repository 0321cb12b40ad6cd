"""The bidirectional language model of ELMo (Peters et al. 2018): a forward and a backward one, trained together.

Both halves of a two-way encoder read words by their characters, through one token layer, and predict words with one
softmax: the forward half the next word, the backward half the one before. Neither sees what the other reads.

Each half carries its own memory through its own reading of the streams. The forward half reads a stream from its
beginning, the backward half from its end, so that the memory of each holds the text that it has read before: for the
backward half, what follows. (If both read the same rows, the backward half would begin each row with a memory of the
row *before* it in the text, and its perplexity would be too good to be true. The original read single sentences in
random order, the backward half with the words of each sentence reversed.)

All streams begin at the first step, and are thousands of words old soon after. A model that only sees such states
learns to rely on them, and predicts badly in the first hundreds of words of a text, where it is used: held-out loss
rises while training loss falls. So in a random share of rows (`fresh`) a stream begins without memory.

Between documents the corpus has one separator. As in the original, a half that reads it reads the marker with which a
text begins in its direction, `<S>` forwards and `</S>` backwards, and predicts the one with which it ends.

The softmax has only the most frequent words, the first of the corpus's table; others are predicted as the unknown word,
but read by their characters like all.

Shapes: R rows, T words that a row reads, U different words of all rows, C characters, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.corpus.random_keys import uniform
from polyseme.corpus.stream_rows import Streams
from polyseme.cost import forward_flops
from polyseme.encoders.recurrent import TwoWay, TwoWayState
from polyseme.errors import OptionError
from polyseme.objectives.objective import Arrays, BaseObjective, Nets, Parts, Vocabulary
from polyseme.objectives.streams import Softmax, check_softmax, refuse_sampling, softmax_flops, with_samples
from polyseme.outputs.softmaxes import SAMPLES, TwoWayOutput
from polyseme.parts.memory_and_cache import Memory
from polyseme.text.character_tokenizer import CharacterTokenizer
from polyseme.types import Example, Needs, Rows, States, Tokenizer

ROUND_TO = 256
"""Words of a pass are filled up to a multiple of it, so that there are few shapes."""


@dataclass(frozen=True, kw_only=True)
class Spelling(Vocabulary):
    """The words of a corpus, most frequent first after the specials, and how they are spelled."""

    words: Sequence[str] = field(repr=False)
    max_characters: int

    @cached_property
    def characters(self) -> NDArray[np.int16]:
        """[V, C]: the characters of every word; the specials of a text's ends are the markers."""
        return CharacterTokenizer(self.max_characters).spell(self.words).astype(np.int16)


@dataclass(frozen=True, kw_only=True)
class BiLM(BaseObjective):
    """The mean of the two losses, each over all words of its rows."""

    name: ClassVar[str] = "bilm"

    softmax: Softmax = "full"
    """What a loss sums over in training: all words of the softmax (or what the model's own takes), or a sample."""
    n_samples: int = SAMPLES
    max_characters: int = 50
    """Characters of a word, as the encoder reads it."""
    fresh: float = 0.1
    """The share of rows in which a stream begins without memory. The original had none."""

    def __post_init__(self) -> None:
        check_softmax(self.softmax, self.n_samples)
        check_fresh(self.fresh)

    @property
    def needs(self) -> Needs:
        layout = Streams(both_ways=True)
        return Needs(directions=("two-way",), outputs=("two-way",), layout=layout, units=("word",))

    @property
    def weights(self) -> Mapping[str, float]:
        return {"forward": 0.5, "backward": 0.5}

    @property
    def prediction_parts(self) -> tuple[str, ...]:
        return ("forward", "backward")

    def target_counts(self, nets: nn.Module, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Words that the softmax does not have are predicted as the unknown one."""
        nets = cast(BiLMNets, nets)
        predicted: NDArray[np.int64] = counts.copy()
        predicted[nets.n_words :] = 0
        predicted[nets.unknown] += counts[nets.n_words :].sum()
        return predicted

    def n_read(self, bundle: Bundle) -> int | None:
        """Words are spelled: there may be any number."""
        return None

    def read_vocabulary(self, tokenizer: Tokenizer) -> Spelling:
        words = tokenizer.pieces(range(tokenizer.n_pieces)) if tokenizer.unit == "word" else ()
        return Spelling.of(tokenizer, words=words, max_characters=self.max_characters)

    @property
    def spelling(self) -> Spelling:
        """The words that rows are of."""
        return cast(Spelling, self.vocabulary)

    def refuse(self, bundle: Bundle) -> None:
        config = cast(Any, bundle.config)
        refuse_sampling(self.softmax, cast(TwoWayOutput, bundle.outputs["two-way"]).softmax)
        if not config.spelled or config.max_characters != self.max_characters:
            raise OptionError(
                f"The objective 'bilm' spells words in {self.max_characters} characters, and the encoder reads "
                f"{f'{config.max_characters} of them' if config.spelled else 'no characters'}. Set the same for both "
                "('max_characters')."
            )
        missing = [role for role in ("start", "end", "unknown") if role not in self.vocabulary.specials]
        if missing:
            raise OptionError(
                f"The objective 'bilm' needs markers where texts begin and end and an unknown word, and the corpus has "
                f"none for: {', '.join(missing)}. Build it with the kind 'words' or 'blanks' and the frame 'elmo'."
            )
        if config.n_outputs > self.vocabulary.n_pieces:
            raise OptionError(
                f"The softmax chooses from {config.n_outputs:,} words, and the corpus has only "
                f"{self.vocabulary.n_pieces:,}. Make it smaller ('n_outputs'), or give more text."
            )

    def corrupt(self, rows: Rows) -> Example:
        """Each half's words as numbers into those of this pass, which are spelled once, and its targets."""
        forwards, backwards = np.split(rows.pieces, 2, axis=1)  # [R, T + 1] each
        start, end = (self.vocabulary.specials[role] for role in ("start", "end"))
        read = np.concatenate([_with_marker(forwards[:, :-1], end, start), backwards[:, 1:]], axis=1)
        targets = np.concatenate([forwards[:, 1:], _with_marker(backwards[:, :-1], end, start)], axis=1)
        words, numbers = np.unique(read, return_inverse=True)
        spelled = self.spelling.characters[words]
        room = np.zeros((-len(spelled) % ROUND_TO, spelled.shape[1]), np.int16)
        arrays = {
            "numbers": numbers.reshape(read.shape).astype(np.int32),
            "targets": targets.astype(np.int32),
            "characters": np.concatenate([spelled, room]),
            "fresh": uniform(rows.keys, "fresh", 1)[:, 0] < self.fresh,
        }
        n_targets = float(targets.size // 2)
        return Example(arrays, {"forward": n_targets, "backward": n_targets})

    def nets(self, bundle: Bundle) -> nn.Module:
        unknown = 0 if self.known_vocabulary is None else self.known_vocabulary.specials.get("unknown", 0)
        return BiLMNets(bundle, unknown, self.n_samples if self.softmax == "sampled" else None)

    def flops(self, nets: nn.Module, n_rows: int, length: int) -> float:
        """As if every word were spelled wherever it occurs, though each is spelled once in a pass."""
        nets = cast(BiLMNets, nets)
        forward = forward_flops(nets.encoder.config, [length] * n_rows)
        return 3.0 * (forward + 2 * softmax_flops(nets.output, n_rows * length))

    def result(self, nets: nn.Module) -> dict[str, Bundle]:
        """The model as others know it, with its softmax and the words of that."""
        nets = cast(BiLMNets, nets)
        bundle = nets.bundle
        tokenizer = CharacterTokenizer(self.max_characters, self.spelling.words[: nets.n_words])
        outputs = {"two-way": bundle.outputs["two-way"]}
        return {"model": Bundle(family=bundle.family, encoder=bundle.encoder, outputs=outputs, tokenizer=tokenizer)}


class BiLMNets(Nets):
    """A two-way encoder and the softmax of both its halves."""

    encoder: TwoWay

    def __init__(self, bundle: Bundle, unknown: int, n_samples: int | None) -> None:
        super().__init__(bundle, "two-way")
        self.output = with_samples(cast(TwoWayOutput, bundle.outputs["two-way"]).softmax, n_samples)
        self.n_words = int(cast(Any, bundle.config).n_outputs)
        self.unknown = unknown

    def forward(self, arrays: Arrays, memory: Memory | None = None) -> Parts:
        """`arrays`: numbers and targets [R, 2T], those of the forward half first; characters [U, C]; fresh [R]."""
        vectors = self.encoder.tokens(arrays["characters"].long())  # [U, D]
        tokens = nn.functional.embedding(arrays["numbers"].long(), vectors)  # [R, 2T, D]
        forwards, backwards = tokens.chunk(2, dim=1)
        ahead, behind, after = read_both_ways(self.encoder, forwards, backwards, arrays["fresh"], memory)
        targets = arrays["targets"].long()
        targets = torch.where(targets < self.n_words, targets, self.unknown)
        parts = {
            name: self.output.loss(states[-1].flatten(0, 1), theirs.flatten()).sum()
            for name, states, theirs in zip(
                ("forward", "backward"), (ahead, behind), targets.chunk(2, dim=1), strict=True
            )
        }
        return parts, after


def read_both_ways(
    encoder: TwoWay, forwards: Tensor, backwards: Tensor, fresh: Tensor, memory: Memory | None
) -> tuple[States, States, TwoWayState | None]:
    """The top states of each half over its own tokens [R, T, D], and the memory that both end with.

    Rows that are `fresh` [R] begin without any.
    """
    held = memory if isinstance(memory, TwoWayState) else None
    if held is not None:
        held = held.begun_anew(fresh, cast(TwoWayState, encoder.new_memory(len(held.lengths))))
    ahead = encoder.forwards.over(forwards, None, layers=[-1], memory=None if held is None else held.forwards)
    behind = encoder.backwards.over(backwards, None, layers=[-1], memory=None if held is None else held.backwards)
    if held is None or ahead.memory is None or behind.memory is None:
        return ahead, behind, None
    return ahead, behind, TwoWayState(ahead.memory.lengths, cast(Any, ahead.memory), cast(Any, behind.memory))


def check_fresh(fresh: float) -> None:
    """Refuse what is no share."""
    if not 0 <= fresh <= 1:
        raise OptionError(
            f"The share of rows that begin without memory (fresh) must be from 0 to 1. Got {fresh} instead."
        )


def _with_marker(words: NDArray[np.int64], separator: int, marker: int) -> NDArray[np.int64]:
    return np.where(words == separator, marker, words)

"""Lists of words to a padded tensor, with gradients: any encoder as a layer of a network in PyTorch.

It replaces `Elmo(options, weights, n)` and `batch_to_ids` of AllenNLP. `Model.embed` is faster and has no gradients;
here the encoder's own forward pass runs, so that it can be trained.

Shapes: R texts, W words of the longest, K mixes, B rows (windows of texts), T pieces of a row, N pieces of all texts,
D width.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.flow import warn_unread
from polyseme.embedding.layer_selection import parse_layers
from polyseme.embedding.pooling import parse_pooling
from polyseme.embedding.word_rows import PaddedRows, WordRows, laid_out, real_pieces
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.text.alignment import count_unknown
from polyseme.text.documents import to_document
from polyseme.types import Document, States

Trainable = bool | Literal["mix"]


class WordVectors(NamedTuple):
    """The result of a `WordEncoder`: padded vectors, and a mask of the words."""

    vectors: Tensor
    """[R, W, D], zero after the end of a text; [R, W, layers, D] for all layers; [K, R, W, D] for several mixes."""
    mask: Tensor
    """[R, W]: True for words, False for padding."""


class WordEncoder(nn.Module):
    """A model as an `nn.Module` from lists of words to their vectors and a mask.

        >>> encoder = polyseme.WordEncoder("path/to/elmo", layer="mix", trainable="mix")    # doctest: +SKIP
        >>> vectors, mask = encoder([["Dawn", "broke"], ["The", "vase", "broke"]])          # doctest: +SKIP
        >>> vectors.shape, mask.shape                                                       # doctest: +SKIP
        (torch.Size([2, 3, 1024]), torch.Size([2, 3]))

    A `Model` is copied and not changed; a model named by its path is loaded in fp32 on the CPU. `to_model` returns the
    trained model, to be saved or used.

    `state_dict` has only what is trained: with a frozen encoder, only the mixes. Load it into a `WordEncoder` of the
    same model.

    Args:
        model: a model, or its folder or name as for `polyseme.load`.
        layer: as for `Model.embed`; `mix` is γ · Σ sⱼhⱼ over all layers, with s the softmax of weights. Initially all
            layers have equal weights, and γ is 1.
        pool: how the pieces of a word are pooled, as for `Model.embed`.
        trainable: False: nothing is trained; `mix`: only the mix; True: also the encoder, up to the highest layer
            used. Frozen parts run without gradients, and a frozen encoder without dropout, also after `train()`.
        n_mixes: the number of mixes of the layers, each with its own weights (ELMo's `num_output_representations`);
            with more than one, vectors are [K, R, W, D].
        dropout: the dropout rate of the vectors in training.
        layer_norm: whether a mix first normalizes each layer to mean 0 and variance 1 over the whole batch, as ELMo
            could. A word's vector then depends on the other texts of the batch.
    """

    def __init__(
        self,
        model: Model | AnyPath | None = None,
        *,
        layer: str | int = "mix",
        pool: str | None = None,
        trainable: Trainable = False,
        n_mixes: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self._check(layer, trainable, n_mixes, dropout, layer_norm)
        bundle = _copy_bundle(model.bundle) if isinstance(model, Model) else load(model, device="cpu").bundle
        self.tokenizer = bundle.text_tokenizer
        self.config = bundle.config
        self.choice = parse_layers(layer, bundle.config)
        self.pooling = parse_pooling(bundle.config.usual_pooling if pool is None else pool, bundle.config)
        self.layer = str(layer)
        self.trainable = trainable
        self._warned_unknown = False
        self.bundle = bundle.requires_grad_(False)
        n_mixes = n_mixes if self.layer == "mix" else 0
        self.mixes = nn.ModuleList(ScalarMix(len(self.choice.layers), layer_norm=layer_norm) for _ in range(n_mixes))
        self.dropout = nn.Dropout(dropout)
        like = next(bundle.encoder.parameters())
        self.mixes.to(like.device, like.dtype).requires_grad_(trainable is not False)
        if trainable is True:
            self._unfreeze_encoder()
        self.register_state_dict_post_hook(_leave_out)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_fill_in)  # type: ignore[no-untyped-call]
        self.train()

    def _unfreeze_encoder(self) -> None:
        """Train the parameters that affect the result: no layers above the highest one used, no unread stream."""
        encoder = self.bundle.encoder.requires_grad_(True).eval()
        inner = self.tokenizer.frame(np.zeros(0, np.int64)).ids.shape[1:]
        row = PaddedRows.of([self.tokenizer.frame(np.zeros((1, *inner), np.int64))])
        states: States = encoder(row.batch(self.bundle.device), layers=self.choice.layers)
        run = _leaves([states[number] for number in self.choice.layers])
        for parameter in encoder.parameters():
            parameter.requires_grad_(id(parameter) in run)

    @staticmethod
    def _check(layer: str | int, trainable: Any, n_mixes: Any, dropout: float, layer_norm: bool) -> None:
        mixed = str(layer) == "mix"
        if not isinstance(trainable, bool) and trainable != "mix":
            raise OptionError(f"What learns is False, True or 'mix'. Got {trainable!r} for 'trainable' instead.")
        if trainable == "mix" and not mixed:
            raise OptionError(f"Only the mix was to learn, and layer {layer!r} has none. Take layer 'mix'.")
        if isinstance(n_mixes, bool) or not isinstance(n_mixes, int) or n_mixes < 1:
            raise OptionError(f"The number of mixes must be a whole number from 1 on. Got {n_mixes!r} instead.")
        if n_mixes > 1 and not mixed:
            raise OptionError(f"Several mixes were requested, and layer {layer!r} is none. Take layer 'mix'.")
        if layer_norm and not mixed:
            raise OptionError(f"The layer norm is a mix's own, and layer {layer!r} is none. Take layer 'mix'.")
        if not 0 <= dropout < 1:
            raise OptionError(f"The dropout must be at least 0 and below 1. Got {dropout!r} instead.")

    @property
    def width(self) -> int:
        """D, the width of a vector."""
        return self.choice.width(self.config)

    def to_model(self) -> Model:
        """A copy of the model with the current weights, to save it or to embed files with it."""
        return Model(_copy_bundle(self.bundle).requires_grad_(True).eval())

    def penalty(self) -> Tensor:
        """‖w‖² of all mixes: add it to the loss, times λ, to keep the weights of the layers similar."""
        if not self.mixes:
            raise OptionError(f"Layer {self.layer!r} has no mix whose weights could be held back. Take layer 'mix'.")
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]

    def train(self, mode: bool = True) -> WordEncoder:
        """As for any module, but a frozen encoder and the outputs, which are not used, stay in evaluation mode."""
        super().train(mode)
        self.bundle.eval()
        self.bundle.encoder.train(mode and self.trainable is True)
        return self

    def extra_repr(self) -> str:
        return f"{self.bundle.family.name}, layer={self.layer}, trainable={self.trainable}"

    # --- words to vectors ---------------------------------------------------------------------------------------------

    def forward(self, texts: Sequence[Sequence[str]] | Sequence[Document]) -> WordVectors:
        """One vector per word of lists of words (or documents); a text too long for the encoder is read in windows."""
        encoded = self.tokenizer.encode_many(_documents(texts))
        unknown = 0 if self._warned_unknown else count_unknown(encoded, self.tokenizer)
        n_words = sum(len(pieces.words) for pieces in encoded)
        warn_unread(Tally(words=n_words, vanished=sum(pieces.n_unknown for pieces in encoded), unknown=unknown))
        self._warned_unknown |= bool(unknown)
        rows = WordRows.of(encoded, self.tokenizer, self.config)
        counts = torch.tensor([len(pieces.words) for pieces in encoded], dtype=torch.long, device=self.bundle.device)
        longest = max((len(pieces.words) for pieces in encoded), default=0)
        mask = torch.arange(longest, device=counts.device)[None] < counts[:, None]  # [R, W]
        if rows is None:
            return WordVectors(self._empty_vectors(len(encoded), longest), mask)
        words = self._words(rows)  # [words of all texts, …], or [K, words, …]
        if self._several:
            return WordVectors(torch.stack([laid_out(one, mask) for one in words]), mask)
        return WordVectors(laid_out(words, mask), mask)

    @property
    def _several(self) -> bool:
        return len(self.mixes) > 1

    def _words(self, rows: WordRows) -> Tensor:
        device = self.bundle.device
        with nullcontext() if self.trainable is True else torch.no_grad():
            states: States = self.bundle.encoder(rows.rows.batch(device), layers=self.choice.layers)
        places = torch.from_numpy(rows.places).to(device)
        begins, ends = torch.from_numpy(rows.words).to(device).unbind(1)
        pieces = self._pieces(states, places, rows.rows.lengths)
        words = [self.dropout(self.pooling(each, begins, ends)) for each in pieces]
        return torch.stack(words) if self._several else words[0]

    def _pieces(self, states: States, places: Tensor, lengths: NDArray[np.int64]) -> list[Tensor]:
        """The vectors of the pieces of all texts, [N, …]: one tensor per mix, or one of the chosen layers."""
        layers = {number: states[number] for number in self.choice.layers}  # [B, T, D]
        if not self.mixes:
            return [self.choice.combine({number: layer.flatten(0, 1)[places] for number, layer in layers.items()})]
        real = real_pieces(lengths, next(iter(layers.values())).shape[1], places.device)
        with nullcontext() if self.trainable is not False else torch.no_grad():
            return [mix(list(layers.values()), real).flatten(0, 1)[places] for mix in self.mixes]

    def _empty_vectors(self, n_texts: int, longest: int) -> Tensor:
        """The vectors of texts without words."""
        like = next(self.bundle.encoder.parameters())
        mixes = [len(self.mixes)] * self._several
        layers = [len(self.choice.layers)] * (self.choice.mode == "all")
        return like.new_zeros(*mixes, n_texts, longest, *layers, self.width, requires_grad=False)


class StackedWordEncoder(nn.Module):
    """Several `WordEncoder`s side by side, each with its layer and what learns of it: their vectors concatenated.

    >>> glove = polyseme.WordEncoder("glove.6B.50d.txt", layer=0)                        # doctest: +SKIP
    >>> elmo = polyseme.WordEncoder("path/to/elmo", layer="mix", trainable="mix")        # doctest: +SKIP
    >>> vectors, mask = polyseme.StackedWordEncoder([glove, elmo])([["Dawn", "broke"]])  # doctest: +SKIP
    """

    def __init__(self, encoders: Sequence[WordEncoder]) -> None:
        super().__init__()
        if not encoders:
            raise OptionError("A stack has at least one WordEncoder.")
        for number, each in enumerate(encoders):
            if not isinstance(each, WordEncoder):
                raise OptionError(f"A stack is of WordEncoders. Number {number} is a {type(each).__name__}.")
            if each.choice.mode == "all" or each._several:
                raise OptionError(
                    f"WordEncoder number {number} gives a word several vectors (layer {each.layer!r}, "
                    f"{len(each.mixes)} mixes), which cannot be concatenated with others. Take one mix, concat:a:b or "
                    "a number."
                )
        self.encoders = nn.ModuleList(encoders)

    @property
    def width(self) -> int:
        """D, the width of a vector."""
        return sum(each.width for each in self.encoders)  # type: ignore[misc]

    def forward(self, texts: Sequence[Sequence[str]] | Sequence[Document]) -> WordVectors:
        """One vector per word: [R, W, D], those of the encoders in their order."""
        each = [encoder(texts) for encoder in self.encoders]
        return WordVectors(torch.cat([one.vectors for one in each], dim=-1), each[0].mask)


def _documents(texts: Any) -> list[Document]:
    if isinstance(texts, (str, Document)):
        texts = [texts]
    try:
        each = list(texts)
    except TypeError:
        raise InputError(f"What is read must be lists of words. Got a {type(texts).__name__} instead.") from None
    for position, text in enumerate(each):
        if isinstance(text, str):
            raise InputError(
                f"Text {position} must be a list of words. Got the string {text[:40]!r} instead. For one text, give a "
                "list that holds its list of words; to have texts split into words, use Model.embed."
            )
    return [to_document(text, position) for position, text in enumerate(each)]


def _leaves(tensors: Sequence[Tensor]) -> set[int]:
    """The ids of all parameters from which the tensors were computed."""
    waiting: list[Any] = [each.grad_fn for each in tensors]
    seen: set[Any] = set()
    leaves: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        waiting += [before for before, _ in node.next_functions]
    return leaves


def _copy_bundle(bundle: Bundle) -> Bundle:
    """A copy of a bundle; the tokenizer, which never changes, is shared."""
    copied: Bundle = copy.deepcopy(bundle, {id(bundle.tokenizer): bundle.tokenizer})
    return copied


def _is_saved(module: Any, name: str) -> bool:
    """Whether a tensor of the bundle is in `state_dict`: those of a trained encoder, never those of outputs."""
    return module.trainable is True and name.startswith("encoder.")


def _leave_out(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in module.bundle.state_dict():
        if not _is_saved(module, name):
            state.pop(f"{prefix}bundle.{name}", None)


def _fill_in(module: Any, state: dict[str, Any], prefix: str, *unused: Any) -> None:
    """Tensors that are not saved keep their values; the others are required, as for any module."""
    for name, tensor in module.bundle.state_dict().items():
        if not _is_saved(module, name):
            state.setdefault(f"{prefix}bundle.{name}", tensor)

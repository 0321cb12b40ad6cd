"""Lists of words to a padded tensor, with gradients: any encoder as a layer of somebody's own network in PyTorch.

What `Elmo(options, weights, n)` and `batch_to_ids` were to their users. `Model.embed` is faster and knows no gradients;
here the encoder's own forward pass runs, so that whatever is asked to learn can.

Shapes: R texts, W words of the longest, K mixes, B rows (windows of texts), T pieces of a row, N pieces of all texts,
D width.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.api import AnyPath, Model, load
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.flow import warn_unread
from polyseme.embedding.layer_selection import parse_layers
from polyseme.embedding.pooling import parse_pooling
from polyseme.embedding.word_rows import PaddedRows, WordRows, laid_out, real_pieces
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.text.alignment import count_unknown
from polyseme.text.documents import to_document
from polyseme.types import Document, States

Trainable = bool | Literal["mix"]


class WordVectors(NamedTuple):
    """What a `WordEncoder` returns: vectors, and which of them are of words."""

    vectors: Tensor
    """[R, W, D], zero where a text has ended; [R, W, layers, D] where all layers were asked for; [K, R, W, D] where
    there are several mixes."""
    mask: Tensor
    """[R, W]: whether a word stands there."""


class WordEncoder(nn.Module):
    """A model as an `nn.Module` from lists of words to their vectors and a mask.

        >>> encoder = polyseme.WordEncoder("path/to/elmo", layer="mix", trainable="mix")    # doctest: +SKIP
        >>> vectors, mask = encoder([["Dawn", "broke"], ["The", "vase", "broke"]])          # doctest: +SKIP
        >>> vectors.shape, mask.shape                                                       # doctest: +SKIP
        (torch.Size([2, 3, 1024]), torch.Size([2, 3]))

    A model that is given is copied, and stays as it is; one that is named by its path is loaded, in fp32 and on the
    CPU, and not held twice. `to_model` gives the model with what was learned, to be saved or used when training is
    done.

    What does not learn is not in `state_dict`: of a frozen encoder only the mixes are kept, since its weights are in
    its folder already, and a state is loaded into a `WordEncoder` that was made from the same model.

    Args:
        model: a model, or its folder or name as for `polyseme.load`.
        layer: as for `Model.embed`; `mix` is γ · Σ sⱼhⱼ over all layers, with s the softmax of weights. Both begin
            alike for all layers, with γ at 1, and are learned if that is asked for.
        pool: how the pieces of a word become one, as for `Model.embed`.
        trainable: what learns: nothing, only the `mix`, or (True) the encoder, too, as far up as the layers asked for.
            What does not is run without gradients, and an encoder that does not also without dropout, whatever
            `train` says.
        n_mixes: how many mixes of the layers there are, each with weights of its own (ELMo's
            `num_output_representations`); with more than one, vectors are [K, R, W, D].
        dropout: how often a number of the vectors is dropped in training.
        layer_norm: whether a mix first brings each layer to mean 0 and variance 1 over the whole batch, as ELMo could.
            Then a word's vector depends on the texts beside it.
    """

    def __init__(
        self,
        model: Model | AnyPath | None = None,
        *,
        layer: str | int = "mix",
        pool: str = "mean",
        trainable: Trainable = False,
        n_mixes: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self._check(layer, trainable, n_mixes, dropout, layer_norm)
        bundle = _copied(model.bundle) if isinstance(model, Model) else load(model, device="cpu").bundle
        if bundle.tokenizer is None:
            raise ModelError("The model has no tokenizer, so no words can be read with it.")
        self.tokenizer = bundle.tokenizer
        self.config = bundle.config
        self.choice = parse_layers(layer, bundle.config)
        self.pooling = parse_pooling(pool, bundle.config.direction)
        self.layer = str(layer)
        self.trainable = trainable
        self._said_unknown = False
        self.bundle = bundle.requires_grad_(False)
        mixed = self.layer == "mix"
        self.mixes = nn.ModuleList(
            ScalarMix(len(self.choice.layers), layer_norm=layer_norm) for _ in range(n_mixes if mixed else 0)
        )
        self.dropout = nn.Dropout(dropout)
        like = next(bundle.encoder.parameters())
        self.mixes.to(like.device, like.dtype).requires_grad_(trainable is not False)
        if trainable is True:
            self._let_learn()
        self.register_state_dict_post_hook(_leave_out)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_fill_in)  # type: ignore[no-untyped-call]
        self.train()

    def _let_learn(self) -> None:
        """Let whatever of the encoder runs learn: not layers above those asked for, nor a stream that nothing reads."""
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
            raise OptionError(f"Several mixes were asked for, and layer {layer!r} is none. Take layer 'mix'.")
        if layer_norm and not mixed:
            raise OptionError(f"The layer norm is a mix's own, and layer {layer!r} is none. Take layer 'mix'.")
        if not 0 <= dropout < 1:
            raise OptionError(f"The dropout must be at least 0 and below 1. Got {dropout!r} instead.")

    @property
    def width(self) -> int:
        """D: how many numbers a vector has."""
        return self.choice.width(self.config)

    def to_model(self) -> Model:
        """A copy of the model with its weights as they are now, ready for use: to save it, to embed files with it."""
        return Model(_copied(self.bundle).requires_grad_(True).eval())

    def penalty(self) -> Tensor:
        """‖w‖² of all mixes, which a task may add to its loss, times λ, to keep the layers' shares alike."""
        if not self.mixes:
            raise OptionError(f"Layer {self.layer!r} has no mix whose weights could be held back. Take layer 'mix'.")
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]

    def train(self, mode: bool = True) -> WordEncoder:
        """As of any module; a frozen encoder stays as in inference, and so do outputs, which nothing here runs."""
        super().train(mode)
        self.bundle.eval()
        self.bundle.encoder.train(mode and self.trainable is True)
        return self

    def extra_repr(self) -> str:
        return f"{self.bundle.family.name}, layer={self.layer}, trainable={self.trainable}"

    # --- words to vectors ---------------------------------------------------------------------------------------------

    def forward(self, texts: Sequence[Sequence[str]] | Sequence[Document]) -> WordVectors:
        """Lists of words (or documents) to one vector a word; a text too long for the encoder is read in windows."""
        encoded = self.tokenizer.encode_many(_documents(texts))
        unknown = 0 if self._said_unknown else count_unknown(encoded, self.tokenizer)
        warn_unread(Tally(vanished=sum(pieces.n_unknown for pieces in encoded), unknown=unknown))
        self._said_unknown |= bool(unknown)
        rows = WordRows.of(encoded, self.tokenizer, self.config)
        counts = torch.tensor([len(pieces.words) for pieces in encoded], dtype=torch.long, device=self.bundle.device)
        longest = max((len(pieces.words) for pieces in encoded), default=0)
        mask = torch.arange(longest, device=counts.device)[None] < counts[:, None]  # [R, W]
        if rows is None:
            return WordVectors(self._nothing(len(encoded), longest), mask)
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
        found = [self.dropout(self.pooling(each, begins, ends)) for each in pieces]
        return torch.stack(found) if self._several else found[0]

    def _pieces(self, states: States, places: Tensor, lengths: NDArray[np.int64]) -> list[Tensor]:
        """The vectors of all texts' pieces, [N, …]: of each mix, or of what else was chosen."""
        layers = {number: states[number] for number in self.choice.layers}  # [B, T, D]
        if not self.mixes:
            return [self.choice.combine({number: layer.flatten(0, 1)[places] for number, layer in layers.items()})]
        real = real_pieces(lengths, next(iter(layers.values())).shape[1], places.device)
        with nullcontext() if self.trainable is not False else torch.no_grad():
            return [mix(list(layers.values()), real).flatten(0, 1)[places] for mix in self.mixes]

    def _nothing(self, n_texts: int, longest: int) -> Tensor:
        """What comes of texts without words."""
        like = next(self.bundle.encoder.parameters())
        apart = (len(self.choice.layers),) if self.choice.how == "all" else ()
        several = (len(self.mixes),) if self._several else ()
        return like.new_zeros(*several, n_texts, longest, *apart, self.width, requires_grad=False)


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
    """The ids of all parameters from which some tensors were computed."""
    waiting: list[Any] = [each.grad_fn for each in tensors]
    seen: set[Any] = set()
    found: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [before for before, _ in node.next_functions]
    return found


def _copied(bundle: Bundle) -> Bundle:
    """A bundle of its own; the tokenizer, which nothing changes, is shared."""
    copied: Bundle = copy.deepcopy(bundle, {id(bundle.tokenizer): bundle.tokenizer})
    return copied


_BUNDLE = "bundle."


def _leave_out(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """What does not learn is not kept: the encoder, unless it does, and the outputs, which nothing here runs."""
    learns = f"{prefix}{_BUNDLE}encoder."
    for name in [name for name in state if name.startswith(f"{prefix}{_BUNDLE}")]:
        if not (module.trainable is True and name.startswith(learns)):
            del state[name]


def _fill_in(module: Any, state: dict[str, Any], prefix: str, *unused: Any) -> None:
    """What was not kept stays as it is; what was is asked for, or refused, as of any module."""
    own: Mapping[str, Tensor] = module.bundle.state_dict()
    for name, tensor in own.items():
        if not (module.trainable is True and name.startswith("encoder.")):
            state.setdefault(f"{prefix}{_BUNDLE}{name}", tensor)

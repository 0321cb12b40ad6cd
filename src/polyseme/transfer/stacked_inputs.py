"""Further models as inputs of a head, side by side: static vectors and frozen encoders (flair's stacked embeddings).

`glove.6B.50d.txt,models/elmo@mix,char-cnn` are three inputs: a file of static vectors, a frozen encoder with a mix of
its layers that is learned with the head, and word vectors and a character CNN that are learned, too
(`heads.word_inputs`). A word's vector is their concatenation: the model's own, the inputs' in their order, and last
those of `char-cnn`.

Shapes: R rows, W words of the longest row, L layers, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.convert.hub import find_model
from polyseme.embedding.layer_selection import LayerChoice, parse_layers
from polyseme.errors import ModelError, OptionError
from polyseme.model_folder import load_bundle
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.tasks.encoder_rows import RowTally

CHARACTERS = "char-cnn"
"""The input that is learned with the head."""


@dataclass
class InputVectors:
    """The vectors of an input's words, before layers are mixed."""

    vectors: Tensor
    """[R, W, Σ L · D]: of all inputs side by side, of each the layers one after another."""
    mask: Tensor
    """[R, W]"""

    def to(self, device: torch.device | str) -> InputVectors:
        return InputVectors(self.vectors.to(device), self.mask.to(device))


@dataclass(frozen=True)
class InputModel:
    """A model that is an input, and the layers that are read of it."""

    name: str
    layer: str
    bundle: Bundle
    standardized: bool = False
    """Whether the numbers of its layers are standardized before they are mixed."""

    @property
    def choice(self) -> LayerChoice:
        """The layers by number; what would give a word several vectors is refused."""
        try:
            choice = parse_layers(self.layer, self.bundle.config)
        except OptionError as error:
            raise OptionError(f"The input {self.name}: {error}") from None
        if choice.mode == "all":
            raise OptionError(
                f"The input {self.name}: a head reads one vector per word, and 'all' layers are many. Take "
                f"{self.name}@mix, {self.name}@concat:0:-1 or a number."
            )
        return choice


class FrozenInput(nn.Module):
    """One such model beside a head. Nothing of it learns but the mix of its layers."""

    def __init__(self, model: InputModel) -> None:
        super().__init__()
        if model.bundle.tokenizer is None:
            raise ModelError(f"The input {model.name} has no tokenizer, so it cannot read a task.")
        self.name, self.layer, self.choice = model.name, model.layer, model.choice
        self.bundle = model.bundle.requires_grad_(False)
        self.mix: ScalarMix | None = None
        if self.layer == "mix":
            width = self.width if model.standardized else None
            self.mix = ScalarMix(len(self.choice.layers), standard_width=width)
        self.tally = RowTally()
        """What its tokenizer did not know."""

    @property
    def model(self) -> InputModel:
        return InputModel(self.name, self.layer, self.bundle, self.standardized)

    @property
    def standardized(self) -> bool:
        return self.mix is not None and self.mix.center is not None

    @property
    def width(self) -> int:
        """Of a word's vector."""
        return self.choice.width(self.bundle.config)

    @property
    def stored_width(self) -> int:
        """The same before layers are mixed."""
        return self.width * (1 if self.mix is None else len(self.choice.layers))

    def train(self, mode: bool = True) -> FrozenInput:
        """As of any module; the model itself stays as in inference."""
        super().train(mode)
        self.bundle.eval()
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        """[R, W, L · D] → [R, W, D]"""
        if self.mix is None:
            return vectors
        mixed: Tensor = self.mix.of_stacked(vectors.unflatten(-1, (len(self.choice.layers), self.width)))
        return mixed


def input_names(inputs: str | Sequence[Any] | None) -> tuple[str, ...] | None:
    """Inputs as a list, however they are written; None where there are none. A loaded model goes by its folder.

    >>> input_names("glove.txt, char-cnn"), input_names(["models/elmo@mix"]), input_names(())
    (('glove.txt', 'char-cnn'), ('models/elmo@mix',), None)
    """
    listed = inputs.split(",") if isinstance(inputs, str) else list(inputs or ())
    names = tuple(str(name).strip() if isinstance(name, str | PathLike) else _folder_of(name) for name in listed)
    if not names:
        return None
    for name in names:
        if not name or name.startswith("@") or name.endswith("@"):
            raise OptionError(
                f"The inputs are names with commas between them, each perhaps with its layer: "
                f"glove.txt,models/elmo@mix,{CHARACTERS}. Got {name!r} among them."
            )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionError(f"The input {twice[0]!r} is listed twice. Leave one out.")
    return names


def load_inputs(names: Iterable[str] | None) -> list[InputModel]:
    """The models among the inputs. One without a layer is read as a frozen model is: by a mix of its layers."""
    return [_load(*_parts(name)) for name in names or () if name != CHARACTERS]


def folders_of(names: Iterable[str] | None) -> list[str]:
    """Where the models among the inputs are."""
    return [_parts(name)[0] for name in names or () if name != CHARACTERS]


def _folder_of(model: object) -> str:
    path = getattr(model, "path", None)
    if not isinstance(path, str):
        raise OptionError(
            f"An input is {CHARACTERS}, the name of a model or a loaded Model. Got {type(model).__name__} instead."
        )
    if not path:
        raise OptionError("A loaded model among the inputs comes from no folder. Save it, and give its folder.")
    return path


def _parts(name: str) -> tuple[str, str | None]:
    model, at, layer = name.rpartition("@")
    return (model, layer) if at else (name, None)


def _load(name: str, layer: str | None) -> InputModel:
    try:
        bundle = load_bundle(find_model(name))
    except ModelError as error:
        raise ModelError(f"The input {name!r} is neither {CHARACTERS} nor a model. {error}") from None
    widths = bundle.config.widths
    layer = layer or ("mix" if len(widths) > 1 and len(set(widths)) == 1 else "-1")
    model = InputModel(name, layer, bundle, standardized=layer == "mix" and not bundle.config.has_normed_states)
    _ = model.choice
    return model

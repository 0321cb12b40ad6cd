"""What a family is: a config and a conversion table, and what is needed to test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from polyseme.config import EncoderConfig
from polyseme.convert.conversion_table import Table
from polyseme.convert.model_folder import HUGGING_FACE, Folder

SMALL = {"n_pieces": 99, "width": 32, "n_layers": 3, "n_heads": 4, "inner_width": 64, "max_positions": 40}
"""The shape of the Transformers that tests use."""


def tied_as_said(theirs: Mapping[str, Any], weights: Mapping[str, Tensor]) -> bool:
    """What config.json says of the output; it shares the table of pieces unless that is denied."""
    return bool(theirs.get("tie_word_embeddings", True))


@dataclass(frozen=True, kw_only=True)
class Family:
    """One line of the table of families (`convert.families`)."""

    name: str
    kind: str
    """The kind of encoder (`encoders.kinds`)."""
    detect: Callable[[Path], bool]
    """Whether a folder or file holds a model of this family."""
    read_config: Callable[[Mapping[str, Any], str], EncoderConfig]
    """config.json, and where it stands for messages → our config."""
    write_config: Callable[[Any], dict[str, Any]]
    """Our config → what follows from it in config.json."""
    table: Callable[[Any, bool], Table]
    """Config, and whether the output shares the table of pieces → conversion table."""
    outputs: Mapping[str, Callable[[Any, bool], nn.Module]]
    """Output name → what builds it from the config, and whether it shares the table of pieces."""
    architectures: Sequence[tuple[str, frozenset[str]]]
    """The reference's classes with the outputs each has, the richest first; the last is the bare model."""
    frame: str
    """How rows are framed (`text.framing`)."""
    base: Callable[[], EncoderConfig]
    """The config of the published base size: what recipes differ from, and users pretrain."""
    small: Mapping[str, Any] = field(default_factory=lambda: SMALL)
    """What differs from it in `tiny`."""
    reference: str | None
    """The module of `transformers` that holds the reference, or None."""
    folder: Folder = HUGGING_FACE
    """Which files of a model folder hold what."""
    first: str | None = None
    """The role of the piece that a second stack reads before any other; None where there is none."""
    tied: Callable[[Mapping[str, Any], Mapping[str, Tensor]], bool] = tied_as_said
    """config.json and their tensors by name → whether the output shares the table of pieces."""

    def tiny(self) -> EncoderConfig:
        """A small config with every option in use, for the conformance battery."""
        config: EncoderConfig = self.base().replace(**self.small)
        return config

    def architecture(self, outputs: Sequence[str]) -> str:
        """The reference's class that takes the most of these outputs and asks for no other."""
        fitting = [(name, needs) for name, needs in self.architectures if needs <= set(outputs)]
        return max(fitting, key=lambda each: len(each[1]))[0]

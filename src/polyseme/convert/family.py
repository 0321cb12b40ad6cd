"""What a family is: a config and a conversion table, the files of its model folders, and what tests need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from polyseme.config import EncoderConfig
from polyseme.convert.config_file import model_type, read_json
from polyseme.convert.conversion_table import Table
from polyseme.convert.pruned_heads import read_pruned, unpruned, write_pruned
from polyseme.convert.weight_files import read_weights, write_weights
from polyseme.errors import ModelError
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Tokenizer

SMALL = {"n_pieces": 99, "width": 32, "n_layers": 3, "n_heads": 4, "inner_width": 64, "max_positions": 40}
"""The shape of the Transformers that tests use."""
BASE: Mapping[str, Any] = {"width": 768, "n_layers": 12, "n_heads": 12, "inner_width": 3072, "max_positions": 512}
"""The shape of BERT's base size, which many families share."""


@dataclass(frozen=True, kw_only=True)
class FolderFormat:
    """The files of a model folder, and how each is read and written."""

    settings: Callable[[Path], Path]
    """Folder → the file of settings, a JSON object."""
    described: bool
    """Whether the settings also say what class, output, precision and special pieces go with them."""
    read_weights: Callable[[Path], Mapping[str, Tensor]]
    write_weights: Callable[[Path, Mapping[str, Tensor], int | None], None]
    """Folder, tensors by name, and the most bytes a file may have, or None."""
    tokenizer: Callable[[Path, str, EncoderConfig], Tokenizer]
    """Folder, the family's frame and the config → the tokenizer."""


HUGGING_FACE = FolderFormat(
    settings=lambda folder: folder / "config.json",
    described=True,
    read_weights=read_weights,
    write_weights=lambda folder, tensors, shard_size: write_weights(folder, tensors, shard_size=shard_size),
    tokenizer=lambda folder, frame, config: load_tokenizer(folder, frame=frame),
)
"""config.json, model.safetensors and tokenizer.json, as most have them."""


def is_tied(theirs: Mapping[str, Any], weights: Mapping[str, Tensor]) -> bool:
    """What config.json says of the output; it shares the table of pieces unless that is denied."""
    return bool(theirs.get("tie_word_embeddings", True))


@dataclass(frozen=True)
class ModelFile:
    """A whole model out of a single file."""

    config: EncoderConfig
    weights: Mapping[str, Tensor]
    """By the names that they have in a folder of the family."""
    tokenizer: Tokenizer


@dataclass(frozen=True, kw_only=True)
class Family:
    """One line of the table of families (`convert.families`)."""

    name: str
    kind: str = "transformer"
    """The kind of encoder (`encoders.encoder_kinds`)."""
    has_files: Callable[[Path], bool] | None = None
    """Whether a folder or file holds a model of this family; None: config.json has its name as `model_type`."""
    read_file: Callable[[Path], ModelFile] | None = None
    """What a single file holds, for a family whose models may be one."""
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
    beyond: str | None = None
    """The family of our own whose layout holds what this one's config.json cannot say (`families.family_for`)."""
    reference: str | None
    """The module of `transformers` that holds the reference, or None."""
    folder: FolderFormat = HUGGING_FACE
    """Which files of a model folder hold what."""
    encoder_class: str | None = None
    """The reference's class that is the encoder alone, where there are two stacks and it has one."""
    next_objective: str = "nsp"
    """What published models with the output `next` were trained on: nsp, the next sentence, or sop, their order."""
    special_ids: Sequence[tuple[str, str]] = (
        ("pad", "pad_token_id"),
        ("start", "bos_token_id"),
        ("end", "eos_token_id"),
    )
    """Roles of special pieces, and the settings of config.json that hold their ids."""
    first: str | None = None
    """The role of the piece that a second stack reads before any other; None where there is none."""
    tied: Callable[[Mapping[str, Any], Mapping[str, Tensor]], bool] = is_tied
    """config.json and their tensors by name → whether the output shares the table of pieces."""
    fastai_names: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    """Their tensors → those and all second names that a file of fastai's has; None: fastai has no such model."""

    def config_of(self, theirs: Mapping[str, Any], where: str) -> EncoderConfig:
        """config.json, and where it stands for messages → our config, with the heads that are pruned."""
        return read_pruned(self.read_config(theirs, where), theirs, where)

    def settings_of(self, config: EncoderConfig) -> dict[str, Any]:
        """What follows from our config in config.json; what `config_of` would read otherwise is refused."""
        written = self.unchecked_settings_of(config)
        restored = self.config_of(written, "config.json")
        differences = [
            f"{each.name} {getattr(config, each.name)!r} would become {getattr(restored, each.name)!r}"
            for each in dataclasses.fields(config)
            if getattr(restored, each.name) != getattr(config, each.name)
        ]
        if differences:
            raise ModelError(
                f"A model with these settings could not be saved: the config.json of the family {self.name!r} cannot "
                f"say all of them ({'; '.join(differences)}). Leave what this family fixes as it is."
            )
        return written

    def holds(self, config: EncoderConfig) -> bool:
        """Whether config.json can say all of a config."""
        try:
            self.settings_of(config)
        except ModelError:
            return False
        return True

    def unchecked_settings_of(self, config: EncoderConfig) -> dict[str, Any]:
        """The same, of a config that was read from a file of this family."""
        return {**self.write_config(unpruned(config)), **write_pruned(config)}

    def detect(self, path: Path) -> bool:
        """Whether a folder, or a file where models may be one, holds a model of this family."""
        if self.has_files is not None:
            return self.has_files(path)
        return (path / "config.json").is_file() and model_type(read_json(path / "config.json")) == self.name

    def tiny(self) -> EncoderConfig:
        """A small config with every option in use, for the conformance battery."""
        return self.base().replace(**self.small)

    def architecture(self, outputs: Sequence[str]) -> str:
        """The reference's class that takes the most of these outputs and asks for no other."""
        fitting = [(name, needs) for name, needs in self.architectures if needs <= set(outputs)]
        return max(fitting, key=lambda each: len(each[1]))[0]

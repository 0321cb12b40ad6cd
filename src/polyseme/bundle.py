"""The bundle, the content of a model folder: tokenizer, encoder (and decoder), outputs, head."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from polyseme.config import EncoderConfig
from polyseme.convert.config_file import shorten_value
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.errors import ModelError
from polyseme.outputs.output import Output
from polyseme.parts.initialization import draw_normal, skip_initialization
from polyseme.types import Tokenizer

if TYPE_CHECKING:
    from polyseme.heads.head import Head

NEXT_OBJECTIVE = "next_objective"
"""Setting of config.json for what the output `next` was trained on: nsp or sop."""


class Bundle(nn.Module):
    """A model with everything that belongs to it."""

    def __init__(
        self,
        *,
        family: Family,
        encoder: Encoder,
        outputs: Mapping[str, nn.Module],
        tokenizer: Tokenizer | None,
        decoder: Encoder | None = None,
        head: Head | None = None,
        tied: bool = True,
        foreign: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.family = family
        self.encoder = encoder
        self.decoder = decoder
        self.outputs = nn.ModuleDict(outputs)
        self.head = head
        self.tokenizer = tokenizer
        self.tied = tied
        self.foreign = dict(foreign or {})
        """Other settings of the folder's config.json, saved with the model."""
        self.extra_files: Mapping[str, bytes] = {}
        """Other files of the folder by their paths, saved with the model: its card, and sentence-transformers' own."""
        self.generation: Mapping[str, Any] = {}
        """The settings of the folder's generation_config.json, saved with the model."""
        self.from_int8 = False
        """Whether its weights were read from int8; here they are in fp32, exactly."""
        self.tie()

    @property
    def config(self) -> EncoderConfig:
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer, for what reads text; refused where the model has none."""
        if self.tokenizer is None:
            raise ModelError("The model has no tokenizer, so it cannot read text.")
        return self.tokenizer

    @property
    def first_written(self) -> int:
        """The piece that a decoder reads before any other: the one that config.json names, else the family's."""
        named = self.piece_set("decoder_start_token_id")
        if named is not None:
            return named
        role = self.family.first
        if self.decoder is None or role is None:
            raise ModelError("The model has one stack; it has no decoder that could begin to write.")
        if self.tokenizer is None or role not in self.tokenizer.specials:
            raise ModelError(
                f"The model's decoder begins with the {role} piece, and the tokenizer has none. Name it in "
                "special_tokens_map.json beside the tokenizer's files, or by 'decoder_start_token_id' in config.json."
            )
        return self.tokenizer.specials[role]

    def piece_set(self, setting: str) -> int | None:
        """The piece whose id a setting of config.json or generation_config.json is; None: it is not set."""
        named = self.foreign.get(setting)
        id = named[0] if isinstance(named, list) and len(named) == 1 else named
        if id is None or (isinstance(id, int) and not isinstance(id, bool) and 0 <= id < self.config.n_pieces):
            return id
        raise ModelError(
            f"The model's {setting!r} must be the id of one piece, a whole number below {self.config.n_pieces:,}. Got "
            f"{shorten_value(named)} instead. Correct it in generation_config.json, or in config.json, or remove it."
        )

    @property
    def next_objective(self) -> str:
        """What its output `next` was trained on: nsp, the next sentence, or sop, the order of sentences."""
        return str(self.foreign.get(NEXT_OBJECTIVE) or self.family.next_objective)

    def tie(self) -> None:
        """Share the encoder's table of pieces with the decoder and with tied outputs."""
        table = self.encoder.piece_table()
        if self.decoder is not None and table is not None:
            self.decoder.tie(table)
        clusters = self.encoder.piece_clusters()
        for output in self.outputs.values():
            if isinstance(output, Output) and table is not None:
                output.tie(table)
            if isinstance(output, Output) and clusters is not None:
                output.tie_clusters(clusters)

    def copied(self) -> Bundle:
        """A bundle with weights of its own; the tokenizer, which nothing changes, is shared."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})

    def n_parameters(self) -> int:
        """Parameters, each counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


def new_bundle(
    family: Family,
    config: EncoderConfig,
    outputs: Iterable[str],
    tokenizer: Tokenizer | None = None,
    *,
    tied: bool = True,
) -> Bundle:
    """A bundle with freshly drawn weights. Under `parts.initialization` nothing is allocated."""
    encoder = build_encoder(config)
    decoder = None if config.decoder is None else build_encoder(config.decoder)
    built = {name: family.outputs[name](config, tied) for name in outputs}
    std, cutoff = getattr(config, "init_std", 0.02), getattr(config, "init_cutoff", None)
    for output in built.values():
        for name, parameter in output.named_parameters():
            if parameter.dim() > 1:
                draw_normal(parameter, std * getattr(output, "init_share", 1.0), cutoff)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
    return Bundle(family=family, encoder=encoder, decoder=decoder, outputs=built, tokenizer=tokenizer, tied=tied)


def named_tensors(bundle: Bundle) -> dict[str, Tensor]:
    """Every parameter and buffer by our name; tied ones only once."""
    return {name: tensor.detach() for name, tensor in [*bundle.named_parameters(), *bundle.named_buffers()]}


def count_parameters(family: str, config: EncoderConfig, outputs: Iterable[str]) -> int:
    """How many parameters a model has, counted without allocating any."""
    with skip_initialization():
        return new_bundle(FAMILIES[family], config, outputs).n_parameters()

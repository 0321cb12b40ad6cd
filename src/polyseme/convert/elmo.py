"""ELMo (Peters et al. 2018): `options.json` and `weights.hdf5`, as published and as `bilm-tf` wrote them.

The published files hold the two language models without their softmax; a model that was trained here keeps it, as
`softmax/…` among the weights, with the number of its words in the options (`n_tokens_vocab`, as the original counted
them in training) and the words themselves in `vocabulary.txt`. Which of a word's characters is which, and how the
markers are put around a sentence, is the same in all (`text.character_tokenizer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.config import EncoderConfig
from polyseme.convert.config_file import flag, read_json, whole
from polyseme.convert.conversion_table import Rule, Table
from polyseme.convert.family import Family, FolderFormat
from polyseme.convert.tensor_transforms import TRANSPOSE, Each
from polyseme.encoders.recurrent_config import TwoWayConfig
from polyseme.errors import ModelError, OptionError
from polyseme.extras import later, optional
from polyseme.outputs.softmaxes import AdaptiveOutput, SoftmaxOutput, TwoWayOutput
from polyseme.parts.initialization import skip_initialization
from polyseme.text.character_tokenizer import N_IDS, VOCABULARY, CharacterTokenizer, read_vocabulary
from polyseme.types import Tokenizer

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
ACTIVATIONS = ("relu", "tanh")
FORGET_BIAS = 1.0
"""Added in the cell, not in the files."""


# --- options ----------------------------------------------------------------------------------------------------------


def read_config(theirs: Mapping[str, Any], where: str) -> TwoWayConfig:
    lstm, characters = (_part(theirs, name, where) for name in ("lstm", "char_cnn"))
    embedding = _part(characters, "embedding", where)
    n_characters = whole(characters.get("n_characters", N_IDS), "n_characters", where)
    if n_characters not in (N_IDS - 1, N_IDS):  # a model in training counts no id for padding
        raise ModelError(
            f"In {where}, 'n_characters' must be {N_IDS}: the bytes of UTF-8, five marks and padding. "
            f"Got {n_characters} instead."
        )
    activation = characters.get("activation", "relu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"In {where}, 'activation' must be relu or tanh. Got {activation!r} instead.")
    filters = _filters(characters.get("filters"), where)
    width = whole(lstm.get("projection_dim"), "projection_dim", where)
    dropout = theirs.get("dropout", 0.0)
    n_words, cutoffs = theirs.get("n_tokens_vocab"), theirs.get("softmax_cutoffs", [])
    if not isinstance(cutoffs, list):
        raise ModelError(f"In {where}, 'softmax_cutoffs' must be a list of numbers. Got {cutoffs!r} instead.")
    return TwoWayConfig(
        n_pieces=N_IDS,
        token_width=width,
        width=width,
        n_layers=whole(lstm.get("n_layers"), "n_layers", where),
        inner_width=whole(lstm.get("dim"), "dim", where),
        cell_clip=_clip(lstm, "cell_clip", where),
        projection_clip=_clip(lstm, "proj_clip", where),
        skip=flag(lstm, "use_skip_connections", where),
        forget_bias=FORGET_BIAS,
        character_width=whole(embedding.get("dim"), "dim", where),
        filter_widths=tuple(span for span, _ in filters),
        filter_counts=tuple(count for _, count in filters),
        n_highways=whole(characters.get("n_highway", 0), "n_highway", where, least=0),
        max_characters=whole(characters.get("max_characters_per_token", 50), "max_characters_per_token", where),
        filter_activation=activation,
        n_outputs=None if n_words is None else whole(n_words, "n_tokens_vocab", where),
        output_cutoffs=tuple(cutoffs),
        dropout_rate=dropout,
        embedding_dropout_rate=dropout,
    )


def write_config(config: TwoWayConfig) -> dict[str, Any]:
    """What only training needs is written where it is set: the published options have none of it."""
    trained = {
        "n_tokens_vocab": config.n_outputs,
        "softmax_cutoffs": list(config.output_cutoffs),
        "dropout": config.dropout_rate,
    }
    return {
        **{name: value for name, value in trained.items() if value},
        "lstm": {
            "use_skip_connections": config.skip,
            "projection_dim": config.width,
            "cell_clip": config.cell_clip,
            "proj_clip": config.projection_clip,
            "dim": config.inner_width,
            "n_layers": config.n_layers,
        },
        "char_cnn": {
            "activation": config.filter_activation,
            "filters": [list(each) for each in zip(config.filter_widths, config.filter_counts, strict=True)],
            "n_highway": config.n_highways,
            "embedding": {"dim": config.character_width},
            "n_characters": config.n_pieces,
            "max_characters_per_token": config.max_characters,
        },
    }


def _part(theirs: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = theirs.get(name)
    if not isinstance(part, dict):
        raise ModelError(
            f"{where} has no part {name!r}, so it holds no options of ELMo's. They have 'lstm' and 'char_cnn', the "
            "latter with an 'embedding'."
        )
    return part


def _filters(listed: Any, where: str) -> list[tuple[int, int]]:
    if not isinstance(listed, list) or not listed or not all(isinstance(e, list) and len(e) == 2 for e in listed):
        raise ModelError(f"In {where}, 'filters' must be a list of pairs, width and number. Got {listed!r} instead.")
    return [(whole(span, "filters", where), whole(count, "filters", where)) for span, count in listed]


def _clip(lstm: Mapping[str, Any], name: str, where: str) -> float | None:
    value = lstm.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ModelError(f"In {where}, {name!r} must be a number above 0, or null. Got {value!r} instead.")
    return value


# --- names and layouts ------------------------------------------------------------------------------------------------


FILTER = Each(
    lambda tensor: tensor.squeeze(0).permute(2, 1, 0).contiguous(),
    lambda tensor: tensor.permute(2, 1, 0).contiguous().unsqueeze(0),
)
"""[1, width, in, out] ↔ [out, in, width]"""


@dataclass(frozen=True)
class Gates:
    """[input and recurrent, gates] ↔ [gates, input] and [gates, recurrent]; gates i, j, f, o ↔ i, f, j, o."""

    below: int

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        swapped = _swap_gates(tensors[0].T)
        return [swapped[:, : self.below].contiguous(), swapped[:, self.below :].contiguous()]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [_swap_gates(torch.cat(list(tensors), dim=1)).T.contiguous()]


def _swap_gates(gates: Tensor) -> Tensor:
    """The second and third quarter of the first axis, exchanged: gates i, j, f, o ↔ i, f, j, o."""
    i, j, f, o = gates.chunk(4)
    return torch.cat([i, f, j, o])


def table(config: TwoWayConfig, tied: bool) -> Table:
    rules = [Rule(("char_embed",), ("encoder.forwards.tokens.table",))]
    tokens = "encoder.forwards.tokens"
    for number in range(len(config.filter_widths)):
        ours = f"{tokens}.filters.{number}"
        rules.append(Rule((f"CNN/W_cnn_{number}",), (f"{ours}.weight",), FILTER))
        rules.append(Rule((f"CNN/b_cnn_{number}",), (f"{ours}.bias",)))
    for number in range(config.n_highways):
        for theirs, part in (("carry", "gate"), ("transform", "transform")):
            ours = f"{tokens}.highways.{number}.{part}"
            rules.append(Rule((f"CNN_high_{number}/W_{theirs}",), (f"{ours}.weight",), TRANSPOSE))
            rules.append(Rule((f"CNN_high_{number}/b_{theirs}",), (f"{ours}.bias",)))
    rules.append(Rule(("CNN_proj/W_proj",), (f"{tokens}.projection.weight",), TRANSPOSE))
    rules.append(Rule(("CNN_proj/b_proj",), (f"{tokens}.projection.bias",)))
    for number, half in enumerate(("forwards", "backwards")):
        for layer in range(config.n_layers):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            ours = f"encoder.{half}.layers.{layer}.0"
            below = config.token_width if layer == 0 else config.width
            rules.append(Rule((f"{cell}/W_0",), (f"{ours}.input", f"{ours}.recurrent"), Gates(below)))
            rules.append(Rule((f"{cell}/B",), (f"{ours}.bias",), Each(_swap_gates)))
            rules.append(Rule((f"{cell}/W_P_0",), (f"{ours}.projection",), TRANSPOSE))
    outputs: dict[str, list[Rule]] = {}
    if config.n_outputs is not None:
        with skip_initialization():
            named = [name for name, _ in two_way_output(config, tied).named_parameters()]
        names = {"softmax.table": "softmax/W", "softmax.bias": "softmax/b"}
        outputs["two-way"] = [
            Rule((names.get(name, name.replace(".", "/")),), (f"outputs.two-way.{name}",)) for name in named
        ]
    return Table(prefix="", n_sets=0, body=rules, outputs=outputs)


def two_way_output(config: TwoWayConfig, tied: bool) -> nn.Module:
    """The softmax of both halves; there is no table of words that it could share."""
    if config.n_outputs is None:
        raise ModelError("The softmax of a two-way model needs to know how many words it chooses from ('n_outputs').")
    if not config.n_layers:
        raise ModelError("The softmax of a two-way model reads its layers, and there are none ('n_layers').")
    if config.output_cutoffs:
        return TwoWayOutput(AdaptiveOutput(config.state_widths[-1], config.n_outputs, config.output_cutoffs))
    return TwoWayOutput(SoftmaxOutput(config.state_widths[-1], config.n_outputs))


# --- files ------------------------------------------------------------------------------------------------------------


def has_files(path: Path) -> bool:
    """A folder without config.json and with options of ELMo's, under whatever name they were published."""
    if not path.is_dir() or (path / "config.json").is_file():
        return False
    files = sorted(path.glob(f"*{OPTIONS}"))
    return bool(files) and any({"lstm", "char_cnn"} <= read_json(file).keys() for file in files)


def _the_one(folder: Path, name: str) -> Path:
    """The only file whose name ends so; the name itself where there is none."""
    files = sorted(folder.glob(f"*{name}"))
    if len(files) > 1:
        raise ModelError(
            f"The folder {folder} holds several models of ELMo's: {', '.join(file.name for file in files)}. Put the "
            "options and the weights of one into a folder of its own."
        )
    return files[0] if files else folder / name


def _check_names(options: Path, weights: Path) -> None:
    """Refuse files whose names say that they are of two models; a name that is nothing more says nothing."""
    stems = [options.name.removesuffix(OPTIONS), weights.name.removesuffix(WEIGHTS)]
    if all(stems) and stems[0] != stems[1]:
        raise ModelError(
            f"In the folder {options.parent}, the options {options.name} and the weights {weights.name} are of two "
            "models by their names. Put the options and the weights of one into a folder of its own."
        )


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = _the_one(folder, WEIGHTS)
    if not path.is_file():
        raise ModelError(f"The folder {folder} has options of ELMo's but no weights. Looked for: *{WEIGHTS}.")
    _check_names(_the_one(folder, OPTIONS), path)
    h5py: Any = optional("h5py")  # one of the core's, loaded only where there is such a file
    check_dataset = later("polyseme.files.hdf5_reading").check_dataset
    tensors: dict[str, Tensor] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            check_dataset(item, name)
            if item.dtype.kind != "f":
                raise ModelError(f"In {path}, {name!r} holds {item.dtype}, and weights are floating-point numbers.")
            tensors[name] = torch.from_numpy(item[()])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, MemoryError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"The weights in {path} cannot be read ({reason}). The file is cut short or damaged, or is no HDF5 at all; "
            "fetch it again."
        ) from None
    return tensors


def _write_weights(folder: Path, tensors: Mapping[str, Tensor], shard_size: int | None) -> None:
    if shard_size is not None:
        raise OptionError(f"The weights of ELMo are kept in one file, {WEIGHTS}; they cannot be cut into shards.")
    h5py: Any = optional("h5py")
    with h5py.File(folder / WEIGHTS, "w", libver=("earliest", "v108"), track_order=False) as file:
        for name, tensor in sorted(tensors.items()):
            weight = tensor.detach().cpu()
            file.create_dataset(
                name, data=(weight if weight.dtype == torch.float64 else weight.float()).numpy(), track_times=False
            )


def _tokenizer(folder: Path, frame: str, config: EncoderConfig) -> Tokenizer:
    path = folder / VOCABULARY
    words = read_vocabulary(path) if path.is_file() else None
    if not isinstance(config, TwoWayConfig):
        return CharacterTokenizer(50, words)
    if words is not None and config.n_outputs is not None and len(words) != config.n_outputs:
        raise ModelError(
            f"The vocabulary {path} has {len(words):,} words, and the softmax of the model {config.n_outputs:,}. The "
            "two do not belong together."
        )
    return CharacterTokenizer(config.max_characters, words)


FOLDER = FolderFormat(
    settings=lambda folder: _the_one(folder, OPTIONS),
    described=False,
    read_weights=_read_weights,
    write_weights=_write_weights,
    tokenizer=_tokenizer,
)


# --- sizes ------------------------------------------------------------------------------------------------------------


def _published_config(dim: int, projection: int, n_highways: int) -> TwoWayConfig:
    return TwoWayConfig(
        n_pieces=N_IDS,
        token_width=projection,
        width=projection,
        n_layers=2,
        inner_width=dim,
        cell_clip=3,
        projection_clip=3,
        skip=True,
        forget_bias=FORGET_BIAS,
        filter_widths=(1, 2, 3, 4, 5, 6, 7),
        filter_counts=(32, 32, 64, 128, 256, 512, 1024),
        n_highways=n_highways,
    )


SIZES: Mapping[str, TwoWayConfig] = {
    "elmo-small": _published_config(1024, 128, 1),
    "elmo-medium": _published_config(2048, 256, 1),
    "elmo-original": _published_config(4096, 512, 2),
    "elmo-5.5b": _published_config(4096, 512, 2),
}
"""The four releases."""

FAMILY = Family(
    name="elmo",
    kind="two-way",
    has_files=has_files,
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"two-way": two_way_output},
    architectures=[("ElmoLanguageModel", frozenset({"two-way"})), ("Elmo", frozenset())],
    frame="none",
    base=lambda: SIZES["elmo-original"],
    small={
        "n_pieces": N_IDS,
        "token_width": 12,
        "width": 12,
        "n_layers": 3,
        "inner_width": 20,
        "cell_clip": 0.6,
        "projection_clip": 0.4,
        "character_width": 6,
        "filter_widths": (1, 2, 3),
        "filter_counts": (4, 5, 6),
        "n_highways": 2,
        "n_outputs": N_IDS,
    },
    reference=None,
    folder=FOLDER,
)

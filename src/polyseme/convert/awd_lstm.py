"""AWD-LSTM (Merity et al. 2018): a recurrent language model whose recurrent weights are dropped, as fastai has it.

A folder of ours holds fastai's weights under their names and its settings in config.json, and there, under our names,
what only we have (`reads`). fastai itself writes one file, `NAME.pth`, with the vocabulary in another beside it
(`fastai_files`); its shapes say the rest. An LSTM of fastai's has two biases whose sum counts, and ours has one: it is
written as the first of theirs, and the second is zero. QRNNs are not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from polyseme.convert.config_file import Settings, flag, model_type, read_json
from polyseme.convert.conversion_table import Alias, Rule, Table
from polyseme.convert.family import Family, ModelFile
from polyseme.convert.fastai_files import itos_tokenizer, read_fastai, vocabulary_beside
from polyseme.convert.tensor_transforms import SUM
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.errors import ModelError
from polyseme.outputs.softmaxes import SoftmaxOutput

NAME = "awd-lstm"
SETTINGS = Settings(
    names={
        "n_pieces": "vocab_sz",
        "token_width": "emb_sz",
        "width": "n_hid",
        "n_layers": "n_layers",
        "output_dropout_rate": "output_p",
        "dropout_rate": "hidden_p",
        "embedding_dropout_rate": "input_p",
        "word_dropout_rate": "embed_p",
        "weight_dropout_rate": "weight_p",
    },
    defaults={"output_p": 0.1, "hidden_p": 0.15, "input_p": 0.25, "embed_p": 0.02, "weight_p": 0.2},
    fixed={"locked_dropout": True},
    usual={"out_bias": True},
)
ONLY = {"cells": "lstm", "inner_width": None, "filter_widths": (), "output_cutoffs": (), "decoder_layers": None}
"""What is the same in all of them, since fastai has no weights for anything else."""


# --- settings ---------------------------------------------------------------------------------------------------------


def read_config(theirs: Mapping[str, Any], where: str) -> RecurrentConfig:
    ours = _widths(SETTINGS.read(theirs, where), flag(theirs, "bidir", where))
    own = {each.name for each in dataclasses.fields(RecurrentConfig)} - set(SETTINGS.names.values())
    settings = {name: value for name, value in theirs.items() if name in own}
    return RecurrentConfig.from_json({**ours, **settings})


def write_config(config: RecurrentConfig) -> dict[str, Any]:
    """Fastai's settings, and under our own names what these do not say."""
    both = config.reads == "both"
    written = {**SETTINGS.write(config), "n_hid": config.n_ways * config.width, "bidir": both}
    if config.output_dropout_rate is None:
        written["output_p"] = config.dropout_rate
    usual = RecurrentConfig(**_widths(SETTINGS.read(written, "config.json"), both)).to_json()
    others = {name: value for name, value in config.to_json().items() if value != usual[name]}
    return {**written, **{name: list(value) if isinstance(value, tuple) else value for name, value in others.items()}}


def _widths(ours: Mapping[str, Any], both: bool) -> dict[str, Any]:
    """Fastai counts both directions together; the top layer is as wide as the table."""
    n = 2 if both else 1
    reading = {"reads": "both", "memory": "none"} if both else {}
    return {**ours, "width": ours["width"] // n, "top_width": ours["token_width"] // n, **reading}


def _check(config: RecurrentConfig) -> None:
    for name, value in ONLY.items():
        if getattr(config, name) != value:
            raise ModelError(
                f"A model of the family {NAME!r} has LSTMs without projections over a table of pieces, and one "
                f"softmax. Leave out {name!r}, or take the family 'lstm'."
            )


# --- weights ----------------------------------------------------------------------------------------------------------


def table(config: RecurrentConfig, tied: bool) -> Table:
    _check(config)
    body = [Rule(("{p}encoder.weight",), ("encoder.tokens.table",))]
    for direction, end in enumerate(("", "_reverse")[: config.n_ways]):
        ours, module = f"encoder.layers.{{i}}.{direction}", "{p}rnns.{i}.module."
        # fastai drops weights of the forward direction only
        recurrent = "{p}rnns.{i}.weight_hh_l0_raw" if not direction else f"{module}weight_hh_l0{end}"
        body += [
            Rule((f"{module}weight_ih_l0{end}",), (f"{ours}.input",)),
            Rule((recurrent,), (f"{ours}.recurrent",)),
            Rule((f"{module}bias_ih_l0{end}", f"{module}bias_hh_l0{end}"), (f"{ours}.bias",), SUM),
        ]
    aliases = [Alias("{p}encoder_dp.emb.weight", "{p}encoder.weight")]
    # torch may have saved the weights of the last batch, too, of which some are dropped
    aliases += [Alias(f"{{p}}rnns.{n}.module.weight_hh_l0", f"{{p}}rnns.{n}.weight_hh_l0_raw", checked=False)
                for n in range(config.n_layers)]  # fmt: skip
    foreign, outputs = [r"1\.layers\..*"], {}
    if config.direction == "causal":
        outputs["causal"] = [Rule(("1.decoder.bias",), ("outputs.causal.bias",))]
        if tied:
            aliases.append(Alias("1.decoder.weight", "{p}encoder.weight"))
        else:
            outputs["causal"].insert(0, Rule(("1.decoder.weight",), ("outputs.causal.table",)))
    else:
        foreign.append(r"1\.decoder\..*")
    return Table(prefix="0.", n_sets=config.n_layers, body=body, outputs=outputs, aliases=aliases, foreign=foreign)


def causal_output(config: RecurrentConfig, tied: bool) -> nn.Module:
    _check(config)
    if config.direction != "causal":
        raise ModelError("Only a recurrent encoder that reads one way predicts the next piece; this one reads both.")
    if tied and config.widths[-1] != config.token_width:
        raise ModelError(
            f"The output cannot share the table of pieces: it is {config.token_width} wide and the top layer "
            f"{config.widths[-1]}. Set 'top_width' to {config.token_width}, or give the output a table of its own."
        )
    return SoftmaxOutput(config.widths[-1], config.n_pieces, tied=tied)


# --- fastai's files ---------------------------------------------------------------------------------------------------


def has_files(path: Path) -> bool:
    """A folder of ours, or a file of weights that fastai wrote."""
    if path.is_file():
        return path.suffix == ".pth"
    config = path / "config.json"
    return config.is_file() and model_type(read_json(config)) == NAME


def read_file(path: Path) -> ModelFile:
    """Weights of fastai's and the vocabulary beside them; sizes are those of the tensors, rates of dropout fastai's."""
    weights = read_fastai(path)
    pieces = vocabulary_beside(path)
    config = read_config(_sizes(weights, path), str(path))
    if len(pieces) != config.n_pieces:
        raise ModelError(
            f"The vocabulary beside {path} has {len(pieces):,} pieces and the weights {config.n_pieces:,}. The two do "
            "not belong together."
        )
    return ModelFile(config, weights, itos_tokenizer(pieces))


def _sizes(weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    names = [name for name in weights if name.endswith("weight_hh_l0_raw")]
    encoder = weights.get("0.encoder.weight", weights.get("encoder.weight"))
    if not names or encoder is None:
        raise ModelError(
            f"The file {path} holds no AWD-LSTM of fastai's: those have '0.encoder.weight' and "
            "'0.rnns.0.weight_hh_l0_raw'. QRNNs, which have 'linear' layers instead, are not read."
        )
    both = any(name.endswith("_reverse") for name in weights)
    first = weights[min(names)]
    return {
        "vocab_sz": encoder.shape[0],
        "emb_sz": encoder.shape[1],
        "n_hid": (2 if both else 1) * first.shape[1],
        "n_layers": len(names),
        "bidir": both,
    }


def tied(theirs: Mapping[str, Any], weights: Mapping[str, Tensor]) -> bool:
    """What config.json says; without one, whether the output has the encoder's table."""
    setting = theirs.get("tie_word_embeddings", theirs.get("tie_weights"))
    if setting is not None:
        return bool(setting)
    one, other = weights.get("0.encoder.weight"), weights.get("1.decoder.weight")
    return one is None or other is None or (one.shape == other.shape and bool((one == other).all()))


def fastai_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With the second names of the table, which fastai reads."""
    before = "0." if "0.encoder.weight" in weights else ""
    pieces = weights[f"{before}encoder.weight"]
    second = [f"{before}encoder_dp.emb.weight", *(["1.decoder.weight"] if "1.decoder.bias" in weights else [])]
    return {**dict.fromkeys(second, pieces), **weights}


FAMILY = Family(
    name=NAME,
    kind="recurrent",
    has_files=has_files,
    read_file=read_file,
    read_config=read_config,
    write_config=write_config,
    table=table,
    outputs={"causal": causal_output},
    architectures=[("AWD_LSTM_LanguageModel", frozenset({"causal"})), ("AWD_LSTM", frozenset())],
    frame="none",
    base=lambda: RecurrentConfig(
        n_pieces=33_278,
        token_width=400,
        width=1150,
        top_width=400,
        n_layers=3,
        output_dropout_rate=0.4,
        dropout_rate=0.2,
        embedding_dropout_rate=0.65,
        word_dropout_rate=0.1,
        weight_dropout_rate=0.5,
        locked_dropout=True,
    ),
    small={"n_pieces": 99, "token_width": 16, "width": 24, "top_width": 16},
    reference=None,
    special_ids=(("pad", "pad_token"),),
    tied=tied,
    fastai_names=fastai_names,
)

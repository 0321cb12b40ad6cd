r"""Flair (Akbik et al. 2018): a forward and a backward character language model side by side.

A model folder has config.json with our config under our names, the weights of both under Flair's names (`forward.…`,
`backward.…`), and the characters as tokenizer.json. Flair's own files are pickles, of one language model each or of a
tagger with both in it; they are read without running anything (`convert.inert_pickle`).

Flair reads a text between the end of a line and a blank, from either side: "\n" + text + " ", and "\n" + reversed
text + " ". A row here has two markers instead, which each half reads in its own direction (`edges` of the config).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.convert.config_file import model_type, read_json, read_native_config, whole, write_own
from polyseme.convert.conversion_table import Rule, Table
from polyseme.convert.family import Family, ModelFile
from polyseme.convert.inert_pickle import Record, is_torch_file, read_inertly
from polyseme.convert.named_files import BETWEEN, named_files
from polyseme.encoders.recurrent_config import TwoWayConfig
from polyseme.errors import ModelError
from polyseme.outputs.softmaxes import SoftmaxOutput, TwoWayOutput
from polyseme.text.character_dictionary import dictionary_tokenizer, edges_of

SUFFIXES = (".pt", ".bin")
HALVES = ("forward", "backward")
PAIR = f"forward.pt{BETWEEN}backward.pt"
SETTINGS = ("is_forward_lm", "hidden_size", "nlayers", "embedding_size", "dictionary")
"""What every language model of Flair's has."""


def read_config(theirs: Mapping[str, Any], where: str) -> TwoWayConfig:
    config: TwoWayConfig = read_native_config(TwoWayConfig, theirs, where)
    if config.edges is None or config.cells != "lstm" or config.inner_width is not None:
        raise ModelError("A model of the family 'flair' has LSTMs without projections, and 'edges'.")
    return config


class SummedBiases:
    """PyTorch's two biases of a layer ↔ their sum, which is all that counts; the second one is written as zeros."""

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[0] + tensors[1]]

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensors[0], torch.zeros_like(tensors[0])]


def table(config: TwoWayConfig, tied: bool) -> Table:
    body: list[Rule] = []
    output: list[Rule] = []
    for half, theirs in zip(("forwards", "backwards"), HALVES, strict=True):
        body.append(Rule((f"{theirs}.encoder.weight",), (f"encoder.{half}.tokens.table",)))
        for layer in range(config.n_layers):
            ours = f"encoder.{half}.layers.{layer}.0"
            body.append(Rule((f"{theirs}.rnn.weight_ih_l{layer}",), (f"{ours}.input",)))
            body.append(Rule((f"{theirs}.rnn.weight_hh_l{layer}",), (f"{ours}.recurrent",)))
            biases = f"{theirs}.rnn.bias_ih_l{layer}", f"{theirs}.rnn.bias_hh_l{layer}"
            body.append(Rule(biases, (f"{ours}.bias",), SummedBiases()))
        softmax = "outputs.two-way." + ("softmax" if half == "forwards" else "backwards")
        output.append(Rule((f"{theirs}.decoder.weight",), (f"{softmax}.table",)))
        output.append(Rule((f"{theirs}.decoder.bias",), (f"{softmax}.bias",)))
    return Table(prefix="", n_sets=0, body=body, outputs={"two-way": output})


def two_way_output(config: TwoWayConfig, tied: bool) -> nn.Module:
    """A softmax over characters for each half."""
    width = config.state_widths[-1] if config.n_layers else config.token_width
    return TwoWayOutput(*(SoftmaxOutput(width, config.n_predicted) for _ in HALVES))


# --- Flair's files ----------------------------------------------------------------------------------------------------


def has_files(path: Path) -> bool:
    """A folder of ours, or one with files of PyTorch's and without config.json; or such a file."""
    if path.is_file():
        return path.suffix in SUFFIXES and is_torch_file(path)
    if (path / "config.json").is_file():
        return bool(model_type(read_json(path / "config.json")) == "flair")
    return bool(_files(path))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and has_files(file)) if folder.is_dir() else []


def read_file(path: Path) -> ModelFile:
    """Both language models, from a file that holds both (a tagger's), or from one file each: in a folder, or named."""
    files = [path] if path.is_file() else named_files(path) or _files(path)
    models: dict[str, Mapping[str, Any]] = {}
    for file in files:
        for model in _language_models(read_inertly(file), set()):
            half = HALVES[0 if model["is_forward_lm"] else 1]
            if half in models:
                raise ModelError(
                    f"{path} holds several {half} language models. Put one forward and one backward model into a "
                    f"folder of their own, or name both files: {PAIR}."
                )
            models[half] = model
    missing = [half for half in HALVES if half not in models]
    if missing:
        raise ModelError(
            f"{path} holds no {' and no '.join(missing)} language model of Flair's, and a word's vector takes both. "
            f"Name both files ({PAIR}), or a folder that holds them."
        )
    return _join_models(models, str(path))


def _language_models(content: Any, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """The language models in what a file holds, wherever they are in it."""
    if id(content) in seen:
        return
    seen.add(id(content))
    fields = vars(content) if isinstance(content, Record) else content
    if isinstance(fields, Mapping):
        if all(name in fields for name in SETTINGS):
            yield fields
            return
        parts: Sequence[Any] = list(fields.values())
    else:
        parts = content if isinstance(content, (list, tuple)) else ()
    for part in parts:
        yield from _language_models(part, seen)


def _join_models(models: Mapping[str, Mapping[str, Any]], where: str) -> ModelFile:
    dictionaries = [_characters(model["dictionary"], where) for model in models.values()]
    sizes = [[model[name] for name in ("hidden_size", "nlayers", "embedding_size")] for model in models.values()]
    if dictionaries[0] != dictionaries[1] or sizes[0] != sizes[1]:
        raise ModelError(
            f"The forward and the backward language model in {where} differ in their sizes or characters, so they do "
            "not belong together."
        )
    for model in models.values():
        kind = model.get("recurrent_type", "LSTM")
        if model.get("nout") is not None or str(kind).upper() != "LSTM":
            raise ModelError(
                f"A language model in {where} has cells of kind {kind!r} and the projection {model.get('nout')!r}; "
                "polyseme reads LSTMs without one, as all published models are."
            )
    tokenizer = dictionary_tokenizer(dictionaries[0], where)
    model = models["forward"]
    config = TwoWayConfig(
        n_pieces=tokenizer.n_pieces,
        token_width=whole(model["embedding_size"], "embedding_size", where),
        width=whole(model["hidden_size"], "hidden_size", where),
        n_layers=whole(model["nlayers"], "nlayers", where),
        dropout_rate=float(model.get("dropout", 0.0)),
        embedding_dropout_rate=float(model.get("dropout", 0.0)),
        own_tokens=True,
        edges=edges_of(tokenizer),
    )
    weights = {f"{half}.{name}": tensor for half in models for name, tensor in _weights(models[half]).items()}
    return ModelFile(config, weights, tokenizer)


def _characters(dictionary: Any, where: str) -> list[str]:
    items = getattr(dictionary, "idx2item", None)
    if not isinstance(items, list):
        raise ModelError(f"The dictionary of a language model in {where} has no list of characters ('idx2item').")
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in items]


def _weights(model: Mapping[str, Any]) -> dict[str, Tensor]:
    """By name: from the state dict that Flair saves, or from the modules of a pickled object, as it did at first."""
    if "state_dict" in model:
        return dict(model["state_dict"])
    return {
        f"{name}.{parameter}": tensor.detach()
        for name, module in model.get("_modules", {}).items()
        for parameter, tensor in getattr(module, "_parameters", {}).items()
        if tensor is not None
    }


FAMILY = Family(
    name="flair",
    kind="two-way",
    has_files=has_files,
    read_file=read_file,
    read_config=read_config,
    write_config=write_own,
    table=table,
    outputs={"two-way": two_way_output},
    architectures=[("CharacterLanguageModels", frozenset({"two-way"})), ("CharacterEncoders", frozenset())],
    frame="flair",
    base=lambda: TwoWayConfig(
        n_pieces=277, token_width=100, width=2048, n_layers=1, own_tokens=True, edges=(1, 2), init_std=0.06
    ),
    small={"n_pieces": 99, "token_width": 16, "width": 16, "n_layers": 2},
    reference=None,
)

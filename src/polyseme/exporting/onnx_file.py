"""ONNX files: written through torch's exporter, checked by onnxruntime, and with what a reader must know in them.

The exporter is the one that traces (`dynamo=False`): its graphs hold for any number of rows and pieces, it takes a
second where the other takes ten, and needs no further package. Tracing follows one path through Python, so that the
sample must be longer than any window of attention: rows up to that length take a shorter path.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.errors import ModelError
from polyseme.exporting.onnx_graphs import Graph
from polyseme.extras import require
from polyseme.parts.masks import Local, get_mask

OPSET = 17
"""Of 2022: read by every onnxruntime since 1.12."""
EXTRA = "onnx"
TOLERANCE = 1e-4
"""Of the largest value: what a checked file may differ by. Real models differ by less than 10⁻⁶, and wrong graphs by
far more; random weights may be so that single precision has four digits."""
CHECKED_LENGTHS = ((1,), (2, 9, 5), (13, 1, 30, 2))
"""Lengths of the rows that files are checked with, where the model reads as many pieces."""


def need_packages() -> None:
    """Refuse, before any work, to write a file that could not be checked."""
    require("onnx", extra=EXTRA)
    _onnxruntime()


def _onnxruntime() -> ModuleType:
    """The package onnxruntime, without its telemetry, which sends to a network and leaves a temporary file."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is loaded
    return require("onnxruntime", extra=EXTRA)


def write_onnx(graph: Graph, path: Path, description: Mapping[str, Any]) -> float:
    """Write a graph to a file, checked; returns by how much it differs from polyseme, of the largest value.

    `description` goes into the file, where `get_modelmeta().custom_metadata_map` finds it, each value as JSON.
    """
    need_packages()
    graph = graph.eval()
    axes = {name: {0: "rows", 1: "pieces"} for name in graph.inputs}
    with warnings.catch_warnings(), torch.no_grad(), _norms_written_out(graph):
        warnings.simplefilter("ignore")  # that this exporter is the older one, and what it traces as constant
        try:
            torch.onnx.export(
                graph,
                rows_of(graph, _sample_lengths(graph)),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=graph.inputs,
                output_names=[graph.output],
                dynamic_axes={**axes, graph.output: {0: "rows", **({1: "words"} if graph.reads_words else {})}},
            )
        except torch.onnx.errors.UnsupportedOperatorError as error:
            raise ModelError(f"This model has no form in ONNX: {str(error).splitlines()[0]}") from None
    _describe(path, description)
    return check(graph, path)


def check(graph: Graph, path: Path) -> float:
    """Run a file on ragged rows; each row must come out as polyseme computes it alone, without padding."""
    session = Session(path)
    largest = 0.0
    window = graph.bundle.config.window or math.inf
    for lengths in CHECKED_LENGTHS:
        rows = rows_of(graph, [int(min(length, window)) for length in lengths])
        inputs = dict(zip(graph.inputs, (each.numpy() for each in rows), strict=True))
        try:
            result = session(inputs)
        except Exception:  # noqa: BLE001 - the classes of onnxruntime's errors have no other base
            raise ModelError(
                f"Models of the family {graph.bundle.family.name} have no form in ONNX here: the exporter makes a "
                "graph of them that holds for rows of one length only."
            ) from None
        for number, length in enumerate(rows[1].sum(1).tolist()):
            with torch.no_grad():
                alone = graph(*(each[number : number + 1, :length] for each in rows))[0].numpy()
            ours = result[number, : len(alone)] if graph.reads_words else result[number]
            difference = float(np.abs(ours - alone).max(initial=0.0)) / max(float(np.abs(alone).max(initial=0)), 1e-12)
            largest = max(largest, difference if math.isfinite(difference) else math.inf)
    if largest > TOLERANCE:
        raise ModelError(
            f"onnxruntime computes something else than polyseme from this model: values differ by {largest:.1g} of the "
            "largest. The file is not kept; please report it, with the model's config.json."
        )
    return largest


class Session:
    """A file of ours, run by onnxruntime on a CPU."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised
        if threads is not None:
            options.intra_op_num_threads = threads
        self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    @property
    def inputs(self) -> list[str]:
        return [each.name for each in self.session.get_inputs()]

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        [output] = self.session.run(None, dict(inputs))
        result: NDArray[Any] = output
        return result


def rows_of(graph: Graph, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    """Rows of these lengths, padded; words have one, two and three pieces in turn, after and before a special piece."""
    generator = torch.Generator().manual_seed(0)
    n_rows, longest = len(lengths), max(lengths)
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]
    numbers = torch.tensor([number for word in range(longest) for number in [word] * (1 + word % 3)])[:longest]
    inner = (torch.arange(longest) > 0) & (torch.arange(longest) < torch.tensor(lengths)[:, None] - 1)
    n_pieces = graph.bundle.config.n_pieces
    tensors = {
        "input_ids": torch.randint(n_pieces, (n_rows, longest), generator=generator) * real,
        "attention_mask": real.long(),
        "word_ids": torch.where(inner, numbers.roll(1)[None], -1),
        "token_type_ids": torch.zeros(n_rows, longest, dtype=torch.long),
    }
    tensors["word_ids"][:, 0] = torch.where(torch.tensor(lengths) < 3, 0, -1)  # too short for specials
    return tuple(tensors[name] for name in graph.inputs)


def _sample_lengths(graph: Graph) -> list[int]:
    """Longer than what any layer sees on one side, if the model reads as much."""
    config = graph.bundle.config
    masks = [get_mask(name) for name in dict.fromkeys(getattr(config, "layer_masks", ()))]
    length = 11 + max((mask.width for mask in masks if isinstance(mask, Local)), default=0)
    length = min(length, config.window or length)
    return [length, max(length // 2, 1)]


def _describe(path: Path, description: Mapping[str, Any]) -> None:
    onnx = require("onnx", extra=EXTRA)
    model = onnx.load(str(path), load_external_data=False)
    onnx.helper.set_model_props(
        model, {name: json.dumps(value, ensure_ascii=False) for name, value in description.items()}
    )
    model.producer_name = "polyseme"
    onnx.save(model, str(path))
    onnx.checker.check_model(str(path))


@contextlib.contextmanager
def _norms_written_out(graph: Graph) -> Iterator[None]:
    """Root-mean-square norms in plain operations, since this exporter has no translation of torch's own."""
    norms = [module for module in graph.modules() if isinstance(module, nn.RMSNorm)]
    for norm in norms:
        norm.forward = functools.partial(_rms_norm, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    epsilon = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    normed = x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return normed if norm.weight is None else normed * norm.weight

"""One vector per text from all of its pieces, special ones included, as sentence-transformers computes it.

A model of sentence-transformers says in its files how: which pooling, and what follows it (a dense layer, a norm).
Unlike that library, nothing is truncated: of a long text all windows are pooled together.

Shapes: R rows of a batch, N pieces of all of them, D width; vectors are [N, …, D].
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.convert.sentence_transformers import MODULES, SETTINGS, modules_of
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.json_reading import damage_reported, parse_json
from polyseme.options import check_choice
from polyseme.text.documents import make_document
from polyseme.text.ragged_arrays import places_within
from polyseme.text.windows import Window
from polyseme.types import Tokenizer

WORDS = "words"
OWN = "model"
PIECES: Mapping[str, str] = {"mean": "mean", "first": "cls", "last": "lasttoken", "max": "max"}
"""Our names of poolings over pieces → theirs."""
CHOICES = (OWN, WORDS, *PIECES)
LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Their settings of earlier years → today's names of the poolings, in the order in which several are concatenated."""
IN_WORDS: Mapping[str, str] = {
    "cls": "vector of the first piece",
    "max": "maximum of the pieces",
    "mean": "mean of the pieces",
    "mean_sqrt_len_tokens": "sum of the pieces over the root of their number",
    "weightedmean": "mean of the pieces weighted by position",
    "lasttoken": "vector of the last piece",
}
"""The poolings, for messages and records."""
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Tanh": torch.tanh,
    "Identity": lambda vectors: vectors,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}

Step = Callable[[Tensor], Tensor]
"""What is done to the pooled vectors, [texts, …, D]."""


@dataclass(frozen=True, kw_only=True)
class TextPooling:
    """How the vectors of a text's pieces become one."""

    modes: tuple[str, ...]
    """Several are concatenated."""
    steps: tuple[Step, ...] = ()
    name: str
    """In words, for the record of an output."""
    digest: str = ""
    """Equal for steps that compute the same."""

    def width(self, width: int) -> int:
        """The width of a text's vector; a width that the steps cannot take is refused."""
        try:
            return int(self.finish(torch.zeros(1, width * len(self.modes))).shape[-1])
        except RuntimeError:
            raise OptionError(
                f"The model's own modules for texts ({self.name}) do not take vectors of width {width}. Leave the "
                "layer at -1, or choose another text_pool (--text-pool): words, mean, first, last, max."
            ) from None

    def finish(self, pooled: Tensor) -> Tensor:
        """What follows the pooling."""
        for step in self.steps:
            pooled = step(pooled)
        return pooled


def text_pooling_of(bundle: Bundle, choice: str | None, *, at_top: bool) -> TextPooling | None:
    """What `text_pool` means for a model; None: the mean of a text's words.

    A model's own pooling is for the encoder's top layer; elsewhere (`at_top` is false) it must be requested.
    """
    has_own = MODULES in bundle.extra_files
    if choice is None:
        choice = OWN if has_own and at_top else WORDS
    check_choice("text_pool", choice, CHOICES)
    if choice == WORDS:
        return None
    if choice != OWN:
        return TextPooling(modes=(PIECES[choice],), name=IN_WORDS[PIECES[choice]])
    if not has_own:
        raise OptionError(
            "The model brings no pooling of its own: it is no folder of sentence-transformers (modules.json). Choose a "
            "text_pool (--text-pool): words, mean, first, last, max."
        )
    _warn_of_preparation(bundle)
    return _own_pooling(bundle.extra_files)


# --- what a folder of sentence-transformers says ----------------------------------------------------------------------


def _own_pooling(files: Mapping[str, bytes]) -> TextPooling:
    entries = modules_of(files[MODULES], MODULES)
    kinds = [entry["type"].rpartition(".")[2] for entry in entries]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise _unknown(" and ".join(kinds[:2]) or "nothing")
    modes = _modes(_settings(files, entries[1]["path"]))
    steps: list[Step] = []
    names = [" and ".join(IN_WORDS[mode] for mode in modes)]
    digest = hashlib.sha256()
    for kind, entry in zip(kinds[2:], entries[2:], strict=True):
        if kind not in _STEPS:
            raise _unknown(kind)
        if kind == "Dropout":
            continue
        steps.append(_STEPS[kind](files, entry["path"]))
        names.append("normalized" if kind == "Normalize" else kind.lower())
        for path in sorted(path for path in files if path.startswith(f"{entry['path']}/")):
            digest.update(path.encode() + files[path])
    return TextPooling(modes=modes, steps=tuple(steps), name=", ".join(names), digest=digest.hexdigest())


def _modes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The poolings of a module, as today's files and those of earlier years name them."""
    named = settings.get("pooling_mode")
    if named is None:
        named = [mode for key, mode in LEGACY.items() if settings.get(key)] or ["mean"]
    modes = (named,) if isinstance(named, str) else tuple(named)
    for mode in modes:
        if mode not in IN_WORDS:
            raise _unknown(f"pooling {mode!r}")
    return modes


def _dense(files: Mapping[str, bytes], path: str) -> Step:
    settings, weights = _settings(files, path), _weights(files, path)
    activation = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
    of = settings.get("module_input_name", "sentence_embedding"), settings.get("module_output_name")
    if activation not in ACTIVATIONS or of[0] != "sentence_embedding" or of[1] not in (None, of[0]):
        raise _unknown(f"Dense layer with {activation} over {of[0]}")

    def step(vectors: Tensor) -> Tensor:
        out = ACTIVATIONS[activation](_linear(vectors, weights, "linear"))
        if settings.get("use_residual"):
            out = out + (_linear(vectors, weights, "residual") if "residual.weight" in weights else vectors)
        return out

    return step


def _linear(vectors: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    bias = weights.get(f"{name}.bias")
    return F.linear(vectors, weights[f"{name}.weight"].to(vectors), None if bias is None else bias.to(vectors))


def _layer_norm(files: Mapping[str, bytes], path: str) -> Step:
    weights = _weights(files, path)
    scale, shift = weights["norm.weight"], weights["norm.bias"]
    return lambda vectors: F.layer_norm(vectors, scale.shape, scale.to(vectors), shift.to(vectors))


_STEPS: Mapping[str, Callable[[Mapping[str, bytes], str], Step]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": lambda files, path: lambda vectors: F.normalize(vectors, p=2, dim=-1),
    "Dropout": lambda files, path: lambda vectors: vectors,
}
"""Their modules that may follow a pooling."""


def _settings(files: Mapping[str, bytes], path: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = parse_json(files[f"{path}/config.json"], kind=dict)
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"The file {path}/config.json, which {MODULES} names, cannot be read ({error!r}). Is the model folder "
            "whole?"
        ) from None
    return settings


def _weights(files: Mapping[str, bytes], path: str) -> dict[str, Tensor]:
    try:
        if f"{path}/model.safetensors" in files:
            weights = safetensors.torch.load(files[f"{path}/model.safetensors"])
        else:
            weights = torch.load(io.BytesIO(files[f"{path}/pytorch_model.bin"]), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - the libraries raise many kinds
        raise ModelError(f"The weights in {path}/ cannot be read ({error!r}). Is the model folder whole?") from None
    return {name: tensor.float() for name, tensor in weights.items()}


def _unknown(module: str) -> ModelError:
    return ModelError(
        f"The model's {MODULES} asks for what polyseme does not compute for texts: {module}. Choose another text_pool "
        "(--text-pool): words, mean, first, last, max."
    )


def _object(name: str, content: bytes) -> dict[str, Any]:
    with damage_reported(f"The model's {name}", "Is the model folder whole?", ModelError):
        settings: dict[str, Any] = parse_json(content, kind=dict)
    return settings


def _warn_of_preparation(bundle: Bundle) -> None:
    """Report what sentence-transformers would do to a text before it is read, and polyseme does not."""
    files = {name: content for name, content in bundle.extra_files.items() if name.endswith("_config.json")}
    lengths = [_object(name, content) for name, content in files.items()]
    advice = []
    if any(each.get("do_lower_case") for each in lengths) and not _ignores_case(bundle.tokenizer):
        advice.append("lowercases texts (do_lower_case)")
    settings = _object(SETTINGS, bundle.extra_files.get(SETTINGS, b"{}"))
    prompts = settings.get("prompts")
    prompt = prompts.get(str(settings.get("default_prompt_name"))) if isinstance(prompts, dict) else None
    if prompt:
        advice.append(f"puts the prompt {prompt!r} before each text")
    if advice:
        warnings.warn(
            f"For this model sentence-transformers {' and '.join(advice)}; polyseme reads texts as they are. Prepare "
            "them so yourself for equal vectors.",
            PolysemeWarning,
            stacklevel=5,
        )


def _ignores_case(tokenizer: Tokenizer | None) -> bool:
    if tokenizer is None:
        return True
    upper, lower = (tokenizer.encode(make_document(text)).ids for text in ("The VASE Broke", "the vase broke"))
    return bool(np.array_equal(upper, lower))


# --- pooling, row by row ----------------------------------------------------------------------------------------------


class PooledRow(NamedTuple):
    """A row of a batch: whose it is, its window, how many pieces the document has, and where its pieces begin."""

    document: int
    window: Window
    n_pieces: int
    offset: int
    length: int


class TextSums:
    """The pooled vectors of texts whose rows come in any order; of a long text several."""

    def __init__(self, pooling: TextPooling, n_texts: int, n_specials: int) -> None:
        self._pooling = pooling
        self._n_specials = n_specials
        self._parts: list[list[NDArray[Any]]] = [[] for _ in range(n_texts)]
        """Of each text and mode what was summed so far; nothing before its first row."""
        self._lengths = np.zeros(n_texts, dtype=np.int64)

    def take(self, rows: Sequence[PooledRow], vectors: Tensor) -> None:
        """Add what a batch's rows keep: of their windows, and the specials at the text's two ends."""
        vectors = vectors if vectors.dtype == torch.float64 else vectors.float()
        starts = np.cumsum([0, *(row.length for row in rows)])[:-1]
        lows = np.array([0 if row.window.keep_start == 0 else _place(row, row.window.keep_start) for row in rows])
        highs = np.array(
            [row.length if row.window.keep_end == row.n_pieces else _place(row, row.window.keep_end) for row in rows]
        )
        counts = highs - lows
        owner = np.repeat(np.arange(len(rows)), counts)
        within = places_within(counts) + lows[owner]
        states = vectors[torch.from_numpy(within + starts[owner]).to(vectors.device)]
        owners = torch.from_numpy(owner).to(vectors.device)
        # from the first piece of the text's first row, counted from 1
        places = within + np.array([row.window.start for row in rows])[owner] + 1
        ends = np.cumsum(counts)
        parts = []
        for mode in self._pooling.modes:
            room = states.new_zeros(len(rows), *states.shape[1:])
            if mode == "max":
                index = owners.view(-1, *[1] * (states.dim() - 1)).expand_as(states)
                part = room.fill_(float("-inf")).scatter_reduce_(0, index, states, "amax")
            elif mode == "cls":
                part = _where(states[torch.from_numpy(ends - counts)], lows == 0)
            elif mode == "lasttoken":
                part = _where(states[torch.from_numpy(ends - 1)], [row.window.keep_end == row.n_pieces for row in rows])
            elif mode == "weightedmean":
                weights = torch.from_numpy(places).to(states).view(-1, *[1] * (states.dim() - 1))
                part = room.index_add_(0, owners, states * weights)
            else:
                part = room.index_add_(0, owners, states)
            parts.append(part.cpu().numpy())
        for number, row in enumerate(rows):
            self._add(row, [part[number] for part in parts])

    def _add(self, row: PooledRow, parts: list[NDArray[Any]]) -> None:
        before = self._parts[row.document]
        self._lengths[row.document] = row.n_pieces + self._n_specials
        self._parts[row.document] = [
            part if not before else np.maximum(before[place], part) if mode == "max" else before[place] + part
            for place, (mode, part) in enumerate(zip(self._pooling.modes, parts, strict=True))
        ]

    def finish(self, room: Sequence[NDArray[Any]]) -> None:
        """Write each text's vector into its place, [1, …, D]; a text without any row gets zeros."""
        there = [number for number, parts in enumerate(self._parts) if parts]
        for number, place in enumerate(room):
            if not self._parts[number]:
                place[:] = 0
        if not there:
            return
        pooled = [
            np.concatenate(
                [
                    part / _divisor(mode, int(self._lengths[number]))
                    for mode, part in zip(self._pooling.modes, self._parts[number], strict=True)
                ],
                axis=-1,
            )
            for number in there
        ]
        finished = self._pooling.finish(torch.from_numpy(np.stack(pooled))).numpy()
        for number, vector in zip(there, finished, strict=True):
            room[number][0] = vector


def _place(row: PooledRow, piece: int) -> int:
    """Where a piece of the document is in its row."""
    return row.offset + piece - row.window.start


def _where(vectors: Tensor, true: Any) -> Tensor:
    """The vectors of some rows, and zeros for the others."""
    mask = torch.from_numpy(np.asarray(true)).to(vectors.device)
    return vectors * mask.view(-1, *[1] * (vectors.dim() - 1))


def _divisor(mode: str, length: int) -> float:
    divisors = {"mean": length, "mean_sqrt_len_tokens": length**0.5, "weightedmean": length * (length + 1) / 2}
    return float(divisors.get(mode, 1))

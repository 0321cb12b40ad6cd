"""Weights in int8, as `--dtype int8` computes with them: whole numbers and the scale of each row of a matrix.

In a file, a matrix has the name and layout that it has in fp32, and the scales of its rows are beside it under our name
of the layer. Everything that does not run in int8 (embeddings, norms, biases, outputs) is as in any other file.
`quantization_config` in config.json says so. The file has a name of its own (`weight_files.IN_INT8`): `transformers`
would read it under the usual one, with a warning, and compute nonsense.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from polyseme.errors import ModelError
from polyseme.parts.quantized_linear import from_int8, to_int8

SETTING = "quantization_config"
METHOD = "polyseme-int8"
QUANTIZED: Mapping[str, Any] = {
    "quant_method": METHOD,
    "weights": "int8, with one scale for each row of a matrix",
    "read_by": "polyseme only; polyseme convert --dtype fp32 writes a folder for transformers",
}
SCALES = "int8_scales."


def holds_int8(config: Mapping[str, Any]) -> bool:
    """Whether the weights of a folder with this config.json are in int8."""
    setting = config.get(SETTING)
    return isinstance(setting, Mapping) and setting.get("quant_method") == METHOD


def round_to_int8(tensors: Mapping[str, Tensor], layers: Iterable[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Our tensors by name, with the matrices of these layers in int8; and their scales, as they are named in a file."""
    result, scales = dict(tensors), {}
    for layer in layers:
        result[f"{layer}.weight"], scales[f"{SCALES}{layer}"] = to_int8(tensors[f"{layer}.weight"])
    return result, scales


def take_scales(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The scales among the tensors of a file, by our name of their layer; they are removed there."""
    return {name.removeprefix(SCALES): weights.pop(name) for name in list(weights) if name.startswith(SCALES)}


def restore(tensors: dict[str, Tensor], scales: Mapping[str, Tensor], where: str) -> None:
    """Put the matrices that are in int8 back into fp32, exactly."""
    if not scales:
        raise ModelError(
            f"{SETTING} in {where} says that weights are in int8 ({METHOD}), and the file has no scales for any. Take "
            "the setting out of config.json if the weights are whole, or convert the full model again."
        )
    whole = {name.removesuffix(".weight") for name, each in tensors.items() if not each.is_floating_point()}
    wrong = sorted(whole ^ set(scales)) or [
        name for name, scale in scales.items() if scale.shape != tensors[f"{name}.weight"].shape[:1]
    ]
    if wrong:
        raise ModelError(
            f"The weights of {where} are in int8, and the matrix and the scales of {wrong[0]} do not belong together. "
            "The file is damaged; convert the full model again."
        )
    for name, scale in scales.items():
        tensors[f"{name}.weight"] = from_int8(tensors[f"{name}.weight"], scale)

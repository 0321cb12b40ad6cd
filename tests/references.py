"""Reference models of `transformers`, tiny, redrawn so that a wrong mask shows; and ours with the same weights."""

from __future__ import annotations

import dataclasses
import importlib
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import XLNetModel
from transformers.models.modernbert import modeling_modernbert
from transformers.models.t5.modeling_t5 import T5LayerNorm

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.conversion_table import CheckpointTensors, read
from polyseme.convert.family import Family
from polyseme.model_folder import put_weights
from polyseme.types import Batch, States
from spread import SPREAD


@dataclass
class Pair:
    """A reference and ours, with equal weights."""

    reference: Any
    ours: Bundle
    found: CheckpointTensors


def reference_class(family: Family, architecture: str) -> Any:
    """A class of the reference library."""
    return getattr(importlib.import_module(f"transformers.models.{family.reference}"), architecture)


def make_reference(
    family: Family, architecture: str, config: Any = None, *, spread: float = SPREAD, **options: Any
) -> Any:
    """A reference model with random weights of this spread, eager attention, in float64, ready for inference."""
    config = family.tiny() if config is None else config
    chosen = reference_class(family, architecture)
    settings = chosen.config_class(**{**family.write_config(config), **options}, attn_implementation="eager")
    torch.manual_seed(7)
    model = chosen(settings).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=spread)
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":  # zeros would hide it
            nn.init.normal_(buffer, std=spread)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.LayerNorm, T5LayerNorm)):  # around 0 it would all but switch the layer off
                module.weight += 1
        if settings.is_encoder_decoder:  # where the output is not tied, BART's stacks are not either
            for stack in (model.get_encoder(), model.get_decoder()):
                stack.embed_tokens.weight.copy_(model.get_input_embeddings().weight)
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():  # the same weights in both precisions: rounding them is no part of a run
                tensor.copy_(tensor.float())
    in_its_own_precision(model)
    return model


def in_its_own_precision(model: nn.Module) -> None:
    """Where a reference computes states in float32 whatever it is in, which would hide everything below 1e-7."""
    for module in model.modules():
        if isinstance(module, T5LayerNorm):
            module.forward = types.MethodType(_rms_norm, module)
        if isinstance(module, XLNetModel):
            module.relative_positional_encoding = types.MethodType(_cast_sinusoids, module)


def _turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, ...]:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return tuple(x * cos + modeling_modernbert.rotate_half(x) * sin for x in (q, k))


def _attended(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **options: Any
) -> tuple[Tensor, Tensor]:
    scores = q @ k.transpose(2, 3) * scaling
    weights = (scores if mask is None else scores + mask).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).contiguous(), weights


modeling_modernbert.apply_rotary_pos_emb = _turned  # both compute in float32 whatever the model is in
modeling_modernbert.eager_attention_forward = _attended


def _rms_norm(self: T5LayerNorm, x: Tensor) -> Tensor:
    normed: Tensor = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))
    return normed


def _cast_sinusoids(self: XLNetModel, *places: Any, **options: Any) -> Tensor:
    made: Tensor = XLNetModel.relative_positional_encoding(self, *places, **options)
    return made.to(self.word_embedding.weight.dtype)


def make_pair(family: Family, architecture: str, config: Any = None, **options: Any) -> Pair:
    """The reference and ours with its weights, both in float64."""
    config = family.tiny() if config is None else config
    reference = make_reference(family, architecture, config, **options)
    found = read(family.table(config, True), reference.state_dict(), "the reference")
    with torch.device("meta"):
        ours = new_bundle(family, config, found.outputs)
    own = {name: tensor.clone() for name, tensor in found.tensors.items()}
    put_weights(ours, own, Path("reference"), torch.float64, "cpu")
    return Pair(reference, ours.eval(), found)


def ragged_batch(config: Any, *, seed: int = 0, lengths: tuple[int, ...] = (11, 4, 1, 8)) -> Batch:
    """Rows of different lengths, padded on the right with pieces that mean something, and two segments."""
    generator = torch.Generator().manual_seed(seed)
    n_rows, longest = len(lengths), max(lengths)
    spelled = (config.max_characters,) if getattr(config, "spelled", False) else ()
    pieces = torch.randint(5, config.n_pieces, (n_rows, longest, *spelled), generator=generator)
    segments = None
    if getattr(config, "n_segments", 0):
        segments = torch.randint(0, config.n_segments, (n_rows, longest), generator=generator)
    return Batch(pieces, torch.tensor(lengths), segments)


def reference_inputs(batch: Batch) -> dict[str, Any]:
    """A batch as the reference library takes it."""
    assert batch.lengths is not None
    mask = torch.arange(batch.pieces.shape[1])[None] < batch.lengths[:, None]
    inputs = {"input_ids": batch.pieces, "attention_mask": mask.long()}
    if batch.segments is not None:
        inputs["token_type_ids"] = batch.segments
    return inputs


def ask(reference: Any, batch: Batch, **options: Any) -> Any:
    """What a reference says of a batch; a decoder reads the same pieces as its encoder."""
    inputs = reference_inputs(batch)
    if reference.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": inputs["input_ids"], "decoder_attention_mask": inputs["attention_mask"]}
    return reference(**inputs, **options)


def by_stack(result: Any, what: str) -> list[Any]:
    """`hidden_states` or `attentions` of a reference: those of its one stack, or of the encoder and of the decoder."""
    if getattr(result, f"encoder_{what}", None) is None:
        return [getattr(result, what)]
    return [getattr(result, f"{stack}_{what}") for stack in ("encoder", "decoder")]


def our_stacks(bundle: Bundle, batch: Batch, **options: Any) -> list[States]:
    """The same of ours: the states of each stack; outputs read the last one's."""
    read: States = bundle.encoder(batch, **options)
    if bundle.decoder is None:
        return [read]
    return [read, bundle.decoder(dataclasses.replace(batch, source=read), **options)]


def real(batch: Batch) -> torch.Tensor:
    """[R, T]: which pieces are real."""
    assert batch.lengths is not None
    return torch.arange(batch.pieces.shape[1])[None] < batch.lengths[:, None]


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float, largest: float | None = None) -> None:
    """Equal up to `tolerance` × the largest value of the tensor compared."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    size = float(theirs.abs().max()) if largest is None else largest
    difference = float((ours - theirs).abs().max())
    assert difference <= tolerance * size, f"differs by {difference:.2e}, largest value {size:.2e}"

"""The Transformer encoder: one class under many configs.

Encoders, decoders (they read `batch.source` and keep a cache) and XLNet's two streams run through the same loop; what
differs is in the slots of `TransformerConfig`. Bounds come from shapes, never from data, so that
`torch.compile(fullgraph=True)` takes the whole forward pass.

Shapes: R rows, T pieces, K targets, S keys, M remembered pieces, D width, H heads.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from polyseme.encoders.encoder import Encoder, Layers, check_rows, wanted_layers
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.encoders.transformer_layer import Reading, TransformerLayer, View
from polyseme.errors import ModelError
from polyseme.parts.attention import Attention
from polyseme.parts.bucketed_positions import BucketBias
from polyseme.parts.embeddings import Clusters, Embeddings
from polyseme.parts.initialization import draw_normal
from polyseme.parts.masks import AllKeys, Places, VisibleKeys, get_mask, visible_keys
from polyseme.parts.memory_and_cache import Cache, Memory, Segments, keep_last
from polyseme.parts.norms import norm
from polyseme.parts.positions import Terms
from polyseme.types import Batch, States, Stream


class Transformer(Encoder):
    """Embeddings, a stack of layers, and a final norm where there is one."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.eager = False
        """Whether attention is written out (the specification) instead of fused; attentions always are."""
        kind = config.position_kind
        self.embeddings = Embeddings(config)
        self.positions = None if kind.shared is None else kind.shared(config)
        """What all layers share of the positions, where they are not added below."""
        self.query = nn.Parameter(torch.zeros(config.width)) if config.query_stream else None
        self.layers = nn.ModuleList(TransformerLayer(config, number) for number in range(1, config.n_sets + 1))
        self.norm = norm(config.norm_kind if config.final_norm else "none", config.width, config.norm_epsilon)
        self.initialize()

    def initialize(self) -> None:
        """Draw weights as the references do: normal with `init_std`, biases zero, norms one."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                draw_normal(module.weight, self.config.init_std, self.config.init_cutoff)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.config.spread_by_width:
            self._narrow_by_width()
        if self.config.spread_by_depth:
            spread = self.config.init_std / math.sqrt(2 * max(self.config.n_layers, 1))
            for layer in self.layers:
                for added in cast(TransformerLayer, layer).added():
                    draw_normal(added.weight, spread, self.config.init_cutoff)
        for name, parameter in self.named_parameters():
            if name == "query" or "relative." in name or name.endswith("_bias"):
                nn.init.normal_(parameter, std=self.config.init_std)

    def _narrow_by_width(self) -> None:
        """Each matrix by 1 / √(width it reads), and queries by 1 / √(head width) more, where scores are not scaled."""
        narrow = self.config.init_std
        if isinstance(self.positions, BucketBias):
            nn.init.normal_(self.positions.table.weight, std=narrow / math.sqrt(self.config.width))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=narrow / math.sqrt(max(module.in_features, 1)))
        for module in self.modules():
            if isinstance(module, Attention):
                queries = module.project.weight.detach()[: module.inner_width]
                nn.init.normal_(queries, std=narrow / math.sqrt(self.config.width * self.config.width_of_heads))

    # --- the forward pass ---------------------------------------------------------------------------------------------

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        config = self.config
        numbers = wanted_layers(layers, config.n_layers)
        self._check(batch, memory)
        content = self.view(batch, memory, "self")
        query = self.view(batch, memory, "query") if batch.targets is not None else None
        both = None if query is None else content.before(query)
        cache = memory if isinstance(memory, Cache) else None
        segments = memory if isinstance(memory, Segments) else None

        x = self.embeddings(batch.pieces, self._positions(batch, cache), batch.segments)
        g = self._first_queries(batch, x)
        states: dict[int, Tensor] = {0: x} if 0 in numbers else {}
        queries: dict[int, Tensor] = {0: g} if g is not None and 0 in numbers else {}
        weights: dict[str, list[Tensor]] = {"self": [], "cross": [], "query": []}
        inputs: list[Tensor] = []
        source_keys: list[Tensor] = []
        source_values: list[Tensor] = []

        n_run = config.n_layers if memory is not None or attentions else max(numbers, default=0)
        for index in range(n_run):
            layer = cast(TransformerLayer, self.layers[config.weight_sets[index]])
            mask = config.layer_masks[index]
            reading = Reading(
                seen=content.seen[mask],
                terms=content.terms[mask],
                earlier=None if segments is None else segments.states[index],
                eager=self.eager or attentions,
            )
            if cache is not None:
                reading.slots = content.places.q
                reading.held = (cache.keys[index], cache.values[index])
            if config.cross:
                reading.source, reading.source_seen = self._source(batch, content.places.q, cache, layer, index)
                if cache is not None:
                    source_keys.append(reading.source[0])
                    source_values.append(reading.source[1])
            if segments is not None:
                inputs.append(x)
            if g is None or query is None or both is None:
                x, seen_by_x, seen_across = layer(x, reading)
                seen_by = {"self": seen_by_x, "cross": seen_across}
            elif index < config.n_layers - 1:
                x, g, seen_by = _run_both_streams(layer, x, g, reading.beside(both, mask))
            else:
                x, g, seen_by = _separately(layer, x, g, reading, reading.beside(query, mask))
            for name, each in seen_by.items():
                if each is not None:
                    weights[name].append(each)
            if index == config.n_layers - 1:
                x = self.norm(x)
                g = None if g is None else self.norm(g)
            if index + 1 in numbers:
                states[index + 1] = x
                if g is not None:
                    queries[index + 1] = g

        return States(
            layers=states,
            lengths=batch.lengths,
            depth=config.n_layers,
            queries=queries,
            attentions={name: each for name, each in weights.items() if each} if attentions else {},
            memory=self._next_memory(batch, memory, inputs, source_keys, source_values),
        )

    def _check(self, batch: Batch, memory: Memory | None) -> None:
        if batch.targets is not None and self.query is None:
            raise ModelError("The batch has targets, but this encoder has no query stream.")
        if self.config.cross and batch.source is None and not (isinstance(memory, Cache) and memory.source_keys):
            raise ModelError("This encoder reads a source, and the batch has none.")
        if batch.source is not None and not self.config.cross:
            raise ModelError("The batch has a source, but this encoder has no cross-attention to read it with.")
        if memory is not None:
            check_rows(memory, batch.pieces.shape[0])

    def _positions(self, batch: Batch, cache: Cache | None) -> Tensor:
        """Where the pieces stand: as given, else counted from the start of the row, a cache's pieces included."""
        if batch.positions is not None:
            return batch.positions
        counted = torch.arange(batch.pieces.shape[1], device=batch.pieces.device)[None]
        return counted if cache is None else counted + cache.lengths[:, None]

    def _first_queries(self, batch: Batch, x: Tensor) -> Tensor | None:
        """The query stream's layer 0: one vector for all, since it must not know which piece is there."""
        if self.query is None or batch.targets is None:
            return None
        first: Tensor = self.embeddings.dropout(self.query.expand(*batch.targets.shape, -1).to(x.dtype))
        return first

    def view(self, batch: Batch, memory: Memory | None = None, stream: Stream = "self") -> View:
        """Places, masks and positions of a stream, as its layers read them."""
        places = self._places(batch, memory, stream)
        masks = {
            name: visible_keys(get_mask(name), batch.mask, places, stream, itself=self.config.sees_itself)
            for name in dict.fromkeys(self.config.layer_masks)
        }
        if stream == "query" and batch.targets is not None:
            real = (batch.targets >= 0)[:, None, :, None]
            masks = {
                name: VisibleKeys(real if each.allowed is None else each.allowed & real) for name, each in masks.items()
            }
        return View(places, masks, self.terms(batch, places, stream))

    def terms(self, batch: Batch, places: Places, stream: Stream = "self") -> dict[str, Terms | None]:
        """What positions do in layers of each mask."""
        names = dict.fromkeys(self.config.layer_masks)
        if self.positions is None or not names:
            return dict.fromkeys(names)
        if self.positions.by_mask:
            return {name: self.positions.terms(places, batch, stream, name) for name in names}
        return dict.fromkeys(names, self.positions.terms(places, batch, stream, next(iter(names))))

    def _places(self, batch: Batch, memory: Memory | None, stream: Stream) -> Places:
        n_rows, n_pieces = batch.pieces.shape[:2]
        device = batch.pieces.device
        here = torch.arange(n_pieces, device=device)[None]
        if isinstance(memory, Cache):
            slots = torch.arange(memory.keys[0].shape[2], device=device)[None]
            new = n_pieces if batch.lengths is None else batch.lengths
            filled = slots < (memory.lengths + new)[:, None]
            written = here + memory.lengths[:, None]
            return Places(written, slots, filled, counted=False, projected=written)
        exists = None if batch.lengths is None else here < batch.lengths[:, None]
        k = here
        if isinstance(memory, Segments):
            n_held = memory.states[0].shape[1]
            held = torch.arange(-n_held, 0, device=device)[None]
            k = torch.cat([held, here], dim=1)
            there = torch.ones(n_rows, n_pieces, dtype=torch.bool, device=device) if exists is None else exists
            exists = torch.cat([held >= -memory.lengths[:, None], there], dim=1)
        if stream == "query" and batch.targets is not None:
            return Places(batch.targets.clamp(min=0), k, exists, counted=False)
        return Places(here, k, exists, counted=memory is None)

    def _source(
        self, batch: Batch, places: Tensor, cache: Cache | None, layer: TransformerLayer, index: int
    ) -> tuple[tuple[Tensor, Tensor], VisibleKeys]:
        """The source's keys and values in a layer, from the cache where it has them, and which of them are seen."""
        if cache is not None and cache.source_keys:
            keys_and_values = (cache.source_keys[index], cache.source_values[index])
            lengths = cache.source_lengths
        elif batch.source is not None and layer.cross is not None:
            keys_and_values = layer.cross.keys_and_values(batch.source[-1])
            lengths = batch.source.lengths
        else:
            raise ModelError("This encoder reads a source, and the batch has none.")
        if lengths is None and batch.source_mask is None:
            return keys_and_values, VisibleKeys(None)
        k = torch.arange(keys_and_values[0].shape[2], device=places.device)[None]
        exists = None if lengths is None else k < lengths[:, None]
        return keys_and_values, visible_keys(AllKeys(), batch.source_mask, Places(places, k, exists, counted=False))

    # --- memory -------------------------------------------------------------------------------------------------------

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        config = self.config
        like = next(self.embeddings.parameters())
        lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        if config.memory == "cache":
            n_slots = capacity if capacity is not None else config.max_positions
            if n_slots is None:
                raise ModelError("An encoder without a bound on positions needs the capacity of its cache named.")
            layers = [cast(TransformerLayer, self.layers[number]) for number in config.weight_sets]
            shapes = [(rows, layer.attention.n_heads, n_slots, config.width_of_heads) for layer in layers]
            empty = [tuple(map(like.new_zeros, shapes)) for _ in range(2)]
            return Cache(lengths, empty[0], empty[1])
        if config.memory == "segment":
            n_held = (config.memory_length or 0) if config.first_memory == "zeros" else 0
            states = tuple(like.new_zeros(rows, n_held, config.width) for _ in range(config.n_layers))
            return Segments(lengths + n_held, states)
        return super().new_memory(rows, capacity)

    def _next_memory(
        self,
        batch: Batch,
        memory: Memory | None,
        inputs: list[Tensor],
        source_keys: list[Tensor],
        source_values: list[Tensor],
    ) -> Memory | None:
        n_pieces = batch.pieces.shape[1]
        if isinstance(memory, Cache):
            new = n_pieces if batch.lengths is None else batch.lengths
            source_lengths = memory.source_lengths
            if batch.source is not None and not memory.source_keys:
                source_lengths = batch.source.lengths
            return Cache(
                memory.lengths + new,
                memory.keys,
                memory.values,
                tuple(source_keys),
                tuple(source_values),
                source_lengths,
            )
        if isinstance(memory, Segments):
            if self.config.reuse is not None:
                inputs = [each[:, : self.config.reuse] for each in inputs]
                n_pieces = min(n_pieces, self.config.reuse)
            lengths = None if batch.lengths is None else batch.lengths.clamp(max=n_pieces)
            keep = memory.states[0].shape[1] + n_pieces
            if self.config.memory_length is not None:
                keep = min(keep, self.config.memory_length)
            states = tuple(
                keep_last(earlier, current, lengths, keep).detach()
                for earlier, current in zip(memory.states, inputs, strict=True)
            )
            new_lengths = memory.lengths + (n_pieces if lengths is None else lengths)
            return Segments(new_lengths.clamp(max=keep), states)
        return None

    # --- parameters ---------------------------------------------------------------------------------------------------

    def apply_final_norm(self, states: Tensor) -> Tensor:
        normed: Tensor = self.norm(states)
        return normed

    def layer_modules(self) -> list[nn.Module]:
        return [self.embeddings, *(self.layers[number] for number in self.config.weight_sets)]

    def token_modules(self) -> list[nn.Module]:
        return [self.embeddings.pieces]

    def piece_table(self) -> nn.Parameter | None:
        pieces = self.embeddings.pieces
        return None if isinstance(pieces, Clusters) else cast(nn.Parameter, pieces.weight)

    def piece_clusters(self) -> Clusters | None:
        pieces = self.embeddings.pieces
        return pieces if isinstance(pieces, Clusters) else None

    def tie(self, table: nn.Parameter) -> None:
        self.embeddings.pieces.weight = table

    def layer_groups(self) -> list[list[nn.Parameter]]:
        below = list(self.embeddings.parameters())
        if self.positions is not None:
            below += self.positions.parameters()
        if self.query is not None:
            below.append(self.query)
        groups = [below, *(list(layer.parameters()) for layer in self.layers)]
        groups[-1] += self.norm.parameters()
        return groups

    def repeated_parts(self) -> list[nn.Module]:
        return list(self.layers)


_SeenBy = dict[str, Tensor | None]
"""The weights of attention by the name of the stream, on the eager path."""


def _run_both_streams(
    layer: TransformerLayer, x: Tensor, g: Tensor, reading: Reading
) -> tuple[Tensor, Tensor, _SeenBy]:
    """Content and query stream through a layer at once: they meet the same keys."""
    sizes = [x.shape[1], g.shape[1]]
    joined, seen_by_both, _ = layer(torch.cat([x, g], dim=1), reading, keys_from=x)
    seen_by: _SeenBy = {}
    if seen_by_both is not None:
        seen_by = dict(zip(("self", "query"), seen_by_both.split(sizes, dim=2), strict=True))
    x, g = joined.split(sizes, dim=1)
    return x, g, seen_by


def _separately(
    layer: TransformerLayer, x: Tensor, g: Tensor, reading: Reading, aside: Reading
) -> tuple[Tensor, Tensor, _SeenBy]:
    """The same one after the other, for the top layer.

    Who trains reads only the queries of it: then nothing goes back through the content, and a compiler leaves it out.
    """
    g, seen_by_g, _ = layer(g, aside, keys_from=x)
    x, seen_by_x, _ = layer(x, reading)
    return x, g, {"self": seen_by_x, "query": seen_by_g}

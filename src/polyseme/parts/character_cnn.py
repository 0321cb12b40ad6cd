"""Words spelled in characters: the token layer of ELMo (Kim et al. 2015, Jozefowicz et al. 2016).

Filters of several widths run over a word's characters; the largest value of each makes the word's vector, which goes
through highways and a projection. A word has the same vector wherever it stands.

Shapes: N words (any leading axes), K characters of a word, C width of a character, F filters, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.parts.feed_forward import ACTIVATIONS


class Highway(nn.Module):
    """gate · relu(transform) + (1 − gate) · input: a gate of one takes the transform (Srivastava et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class CharacterTokens(nn.Module):
    """[…, K] character ids → […, D]. Id 0 is no character: its vector is zero, and it has no row in the table."""

    def __init__(
        self,
        n_characters: int,
        character_width: int,
        *,
        filter_widths: Sequence[int],
        filter_counts: Sequence[int],
        n_highways: int,
        width: int,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        n_filters = sum(filter_counts)
        self.table = nn.Parameter(torch.empty(n_characters - 1, character_width))
        self.filters = nn.ModuleList(
            nn.Conv1d(character_width, count, span) for span, count in zip(filter_widths, filter_counts, strict=True)
        )
        self.highways = nn.ModuleList(Highway(n_filters) for _ in range(n_highways))
        self.projection = nn.Linear(n_filters, width)
        self.activation = ACTIVATIONS[activation]
        self.initialize()

    def initialize(self) -> None:
        """Draw weights as ELMo's authors did; highways begin by letting their input through."""
        nn.init.uniform_(self.table, -1.0, 1.0)
        for module in self.modules():
            if isinstance(module, nn.Conv1d):
                nn.init.uniform_(module.weight, -0.05, 0.05)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=math.sqrt(1 / module.in_features))
            if isinstance(module, (nn.Conv1d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for highway in self.highways:
            nn.init.constant_(highway.gate.bias, -2.0)  # type: ignore[union-attr, arg-type]

    def forward(self, ids: Tensor) -> Tensor:
        words = ids.flatten(0, -2)  # [N, K]
        characters = F.embedding(words, F.pad(self.table, (0, 0, 1, 0))).transpose(1, 2)  # [N, C, K]
        pooled = [self.activation(each(characters).amax(dim=-1)) for each in self.filters]
        x = torch.cat(pooled, dim=-1)  # [N, F]
        for highway in self.highways:
            x = highway(x)
        projected: Tensor = self.projection(x).unflatten(0, ids.shape[:-1])
        return projected

"""What the heads over whole texts share: rows of words into one vector each, and the scores of that.

Shapes: R rows, W words, D width, L labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyseme.heads.bodies import Scores, TextBody
from polyseme.heads.config import HeadConfig
from polyseme.heads.features import Features
from polyseme.heads.readout import N_VECTORS, read_out


class WholeText(nn.Module):
    """Features → [R, L].

    A linear or mlp body reads the vector that stands for the whole row, where the encoder gives one; otherwise the
    words are read out. Two texts read apart meet as [u; v; |u − v|; u ∘ v] (Conneau et al. 2017; GLUE's baselines).
    """

    def __init__(self, config: HeadConfig, n_labels: int) -> None:
        super().__init__()
        self.config = config
        plain = config.body in ("linear", "mlp")
        self.reads_whole = config.whole_width is not None and plain and not config.apart
        if self.reads_whole and config.whole_width is not None:
            self.body, below = None, config.whole_width
        else:
            self.body = TextBody(config)
            below = self.body.width * N_VECTORS[config.readout] * (4 if config.apart else 1)
        layer = config.body in ("mlp", "bilstm-attention")
        self.scores = Scores(config, below, n_labels, layer=layer, dropout_rate=config.dropout_rate)

    def forward(self, features: Features) -> Tensor:
        if self.body is None:
            return self.scores(features.whole)  # type: ignore[no-any-return]
        first, second = self.body(features.words, features.mask, features.second, features.second_mask)
        vector = self._read_out(first, features.mask)
        if second is not None and features.second_mask is not None:
            other = self._read_out(second, features.second_mask)
            vector = torch.cat([vector, other, (vector - other).abs(), vector * other], dim=-1)
        return self.scores(vector)  # type: ignore[no-any-return]

    def _read_out(self, words: Tensor, mask: Tensor) -> Tensor:
        """States of the body and, where they are read again, the words themselves: each read out in its own way."""
        assert self.body is not None
        how, states = self.config.readout, self.body.two_way_width
        parts = [read_out(words[..., :states], mask, how, two_way=True)] if states else []
        if words.shape[-1] > states:
            parts.append(read_out(words[..., states:], mask, how))
        return torch.cat(parts, dim=-1)

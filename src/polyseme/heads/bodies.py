"""What a head computes over words before it scores labels: nothing, attention, a BiLSTM, or BiLSTMs with attention.

The biattentive network also makes one vector of a text in ways of its own (`Pools`).

Shapes: R rows, W and V words of the first and second text, D width, H cells of a BiLSTM in one direction.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyseme.heads.head_config import HeadConfig
from polyseme.parts.recurrence import Reader

BLOCK_WIDTH = 50
"""Of the layer between ULMFiT's two blocks."""
SECOND_DROPOUT = 0.25
"""Of the dropout rate of a head with two blocks, what the second has: 0.4 and 0.1 in fastai."""
CELLS = 200
"""Of a BiLSTM in one direction, unless a config says otherwise (as in ELMo's taggers)."""

Texts = tuple[Tensor, Tensor | None]


class BiLSTM(nn.Module):
    """[R, W, D] → [R, W, 2 H], forward and backward states side by side; zeros at padding, which changes nothing.

    Vectors of `late_width` may come in between the first layer and the second, which reads [forward; backward; late]
    (TagLM, Peters et al. 2017).
    """

    def __init__(
        self, below: int, width: int, *, n_layers: int = 1, dropout_rate: float = 0.0, late_width: int = 0
    ) -> None:
        super().__init__()
        belows = [below, *[2 * width] * (n_layers - 1)]
        if late_width:
            belows[1] += late_width
        self.forwards = nn.ModuleList(Reader(each, width, forget_bias=1.0) for each in belows)
        self.backwards = nn.ModuleList(Reader(each, width, forget_bias=1.0, backwards=True) for each in belows)
        self.dropout = nn.Dropout(dropout_rate)
        self.width = 2 * width
        for reader in [*self.forwards, *self.backwards]:
            for gate in range(4):
                rows = slice(gate * width, (gate + 1) * width)
                nn.init.xavier_uniform_(reader.input.data[rows])
                nn.init.orthogonal_(reader.recurrent.data[rows])

    def forward(self, x: Tensor, mask: Tensor, late: Tensor | None = None) -> Tensor:
        lengths = mask.sum(1)
        for number, (onwards, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            if number == 1 and late is not None:
                x = torch.cat([x, late.to(x.dtype)], dim=-1)
            x = x if number == 0 else self.dropout(x)
            halves = [reader(x, lengths, None, carried=False)[0] for reader in (onwards, back)]
            x = torch.cat(halves, dim=-1) * mask[:, :, None]
        return x


class IdentityBody(nn.Module):
    """No body: words as they are."""

    two_way_width = 0

    def __init__(self, config: HeadConfig, below: int) -> None:
        super().__init__()
        self.width = below

    def forward(self, words: Tensor, mask: Tensor, second: Tensor | None, second_mask: Tensor | None) -> Texts:
        return words, second


class Attentive(nn.Module):
    """Every word h beside what it attends to: h̃ = tanh(W [κ; h]), with κ = Σ αⱼ hⱼ and α the softmax of the products
    h · hⱼ (the global attention of Luong et al. 2015).

    A word of one text attends to its other words, a word of two texts to those of the other text.
    """

    two_way_width = 0

    def __init__(self, config: HeadConfig, below: int) -> None:
        super().__init__()
        self.width = config.inner_width or below
        self.combine = nn.Linear(2 * below, self.width, bias=False)
        nn.init.xavier_uniform_(self.combine.weight)

    def forward(self, words: Tensor, mask: Tensor, second: Tensor | None, second_mask: Tensor | None) -> Texts:
        if second is None or second_mask is None:
            return self._combine(words, words, _mask_of_others(mask)), None
        return (
            self._combine(words, second, second_mask[:, None, :]),
            self._combine(second, words, mask[:, None, :]),
        )

    def _combine(self, words: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
        context = attended(words, keys, seen)
        return torch.tanh(self.combine(torch.cat([context, words], dim=-1)))


class Recurrent(nn.Module):
    """A BiLSTM over each text. The first part of a word's vector may be read late: between the first layer and the
    second, or beside the states of the last.
    """

    def __init__(self, config: HeadConfig, below: int) -> None:
        super().__init__()
        cells = config.inner_width or CELLS
        self.late_width, self.late_at = config.late_width, config.late_at
        between = config.late_width if config.late_at == "between" else 0
        self.dropout = nn.Dropout(config.dropout_rate)
        self.reader = BiLSTM(
            below - config.late_width,
            cells,
            n_layers=config.n_layers,
            dropout_rate=config.dropout_rate,
            late_width=between,
        )
        self.width = 2 * cells + config.late_width - between
        self.two_way_width = 2 * cells

    def forward(self, words: Tensor, mask: Tensor, second: Tensor | None, second_mask: Tensor | None) -> Texts:
        first = self._read(words, mask)
        if second is None or second_mask is None:
            return first, None
        return first, self._read(second, second_mask)

    def _read(self, words: Tensor, mask: Tensor) -> Tensor:
        late, early = words[..., : self.late_width], words[..., self.late_width :]
        between = late if self.late_width and self.late_at == "between" else None
        states: Tensor = self.reader(self.dropout(early), mask, between)
        return states if not self.late_width or between is not None else torch.cat([states, late.to(states)], dim=-1)


class Aligned(nn.Module):
    """A BiLSTM over each text, every word beside what it attends to in the other, and a second BiLSTM over that.

    As Chen et al. (2017) infer entailment, and GLUE's BiLSTM with attention: attention is the softmax of plain products
    of states; a word h and what it attends to, a, are concatenated as [h; a; h − a; h ∘ a]. A single text
    attends to itself, each word to the others.
    """

    def __init__(self, config: HeadConfig, below: int) -> None:
        super().__init__()
        cells = config.inner_width or CELLS
        self.dropout = nn.Dropout(config.dropout_rate)
        self.reader = BiLSTM(below, cells, n_layers=config.n_layers, dropout_rate=config.dropout_rate)
        self.compare = nn.Linear(8 * cells, cells)
        self.compose = BiLSTM(cells, cells)
        self.width = self.two_way_width = 2 * cells
        nn.init.xavier_uniform_(self.compare.weight)
        nn.init.zeros_(self.compare.bias)

    def forward(self, words: Tensor, mask: Tensor, second: Tensor | None, second_mask: Tensor | None) -> Texts:
        first = self.reader(self.dropout(words), mask)
        if second is None or second_mask is None:
            return self._compose(first, attended(first, first, _mask_of_others(mask)), mask), None
        other = self.reader(self.dropout(second), second_mask)
        return (
            self._compose(first, attended(first, other, second_mask[:, None, :]), mask),
            self._compose(other, attended(other, first, mask[:, None, :]), second_mask),
        )

    def _compose(self, states: Tensor, seen: Tensor, mask: Tensor) -> Tensor:
        both = torch.cat([states, seen, states - seen, states * seen], dim=-1)
        composed: Tensor = self.compose(self.dropout(torch.relu(self.compare(both))), mask)
        return composed


class Biattentive(nn.Module):
    """The biattentive classification network (McCann et al. 2017), the body of CoVe.

    A layer and a BiLSTM over each text; every word h has as its context c what it attends to in the other text, by the
    softmax of plain products; a second BiLSTM reads [h; h − c; h ∘ c]. A single text is both.
    """

    def __init__(self, config: HeadConfig, below: int) -> None:
        super().__init__()
        cells = config.inner_width or CELLS
        self.dropout = nn.Dropout(config.dropout_rate)
        self.layer = nn.Linear(below, cells)
        self.reader = BiLSTM(cells, cells, n_layers=config.n_layers, dropout_rate=config.dropout_rate)
        self.integrate = BiLSTM(6 * cells, cells)
        self.width = self.two_way_width = 2 * cells
        nn.init.xavier_uniform_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, words: Tensor, mask: Tensor, second: Tensor | None, second_mask: Tensor | None) -> Texts:
        first = self._read(words, mask)
        if second is None or second_mask is None:
            return self._integrate(first, attended(first, first, mask[:, None, :]), mask), None
        other = self._read(second, second_mask)
        return (
            self._integrate(first, attended(first, other, second_mask[:, None, :]), mask),
            self._integrate(other, attended(other, first, mask[:, None, :]), second_mask),
        )

    def _read(self, words: Tensor, mask: Tensor) -> Tensor:
        read: Tensor = self.reader(self.dropout(torch.relu(self.layer(self.dropout(words)))), mask)
        return read

    def _integrate(self, states: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        both = torch.cat([states, states - context, states * context], dim=-1)
        integrated: Tensor = self.integrate(self.dropout(both), mask)
        return integrated


class Pools(nn.Module):
    """[R, W, D] → [R, 4 D]: the maximum, the mean, the minimum, and the mean by weights that are learned."""

    n_vectors = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(width, 1)
        nn.init.xavier_uniform_(self.weigh.weight)
        nn.init.zeros_(self.weigh.bias)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        if not states.shape[1]:
            return states.new_zeros(states.shape[0], self.n_vectors * states.shape[2])
        lowest, real = torch.finfo(states.dtype).min, mask[:, :, None]
        weights = torch.softmax(self.weigh(states).masked_fill(~real, lowest), dim=1) * real
        pools = [
            states.masked_fill(~real, lowest).amax(1),
            (states * real).sum(1) / real.sum(1).clamp(min=1),
            states.masked_fill(~real, -lowest).amin(1),
            (weights * states).sum(1),
        ]
        return torch.cat(pools, dim=-1) * mask.any(1)[:, None]


class Maxout(nn.Module):
    """The largest of several linear functions for each number that comes out (Goodfellow et al. 2013)."""

    n_functions = 4

    def __init__(self, below: int, width: int) -> None:
        super().__init__()
        self.all = nn.Linear(below, self.n_functions * width)

    def forward(self, x: Tensor) -> Tensor:
        largest: Tensor = self.all(x).unflatten(-1, (self.n_functions, -1)).amax(-2)
        return largest


def attended(queries: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
    """Σ softmax(q · k) k over the keys that are seen: [R, W, D], [R, V, D], [R, 1 or W, V] → [R, W, D].

    Zeros where a query sees nothing.
    """
    if not keys.shape[1]:
        return torch.zeros_like(queries)
    products = torch.matmul(queries, keys.transpose(1, 2))  # [R, W, V]
    products = products.float() if products.dtype in (torch.float16, torch.bfloat16) else products
    shares = torch.softmax(products.masked_fill(~seen, torch.finfo(products.dtype).min), dim=-1) * seen
    return torch.matmul(shares.to(keys.dtype), keys)


def _mask_of_others(mask: Tensor) -> Tensor:
    """[R, W] → [R, W, W]: the words of a text that each of them sees: all but itself."""
    itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    return mask[:, None, :] & ~itself


BODIES: dict[str, type[IdentityBody] | type[Attentive] | type[Recurrent] | type[Aligned] | type[Biattentive]] = {
    "linear": IdentityBody,
    "mlp": IdentityBody,
    "mlp-batchnorm": IdentityBody,
    "cosine": IdentityBody,
    "attention": Attentive,
    "bilstm": Recurrent,
    "bilstm-attention": Aligned,
    "bcn": Biattentive,
}
"""By the config's `body`; the layer of an mlp is above the readout, in `Scores`."""
PLAIN = ("linear", "mlp", "mlp-batchnorm")
"""The bodies that compute nothing over words."""
ATTENTIVE = ("attention", "bilstm-attention", "bcn")
"""The bodies in which two texts attend to each other."""


class TextBody(nn.Module):
    """The body of a config, with the words' vectors once more beside its output where they are read again."""

    def __init__(self, config: HeadConfig, *, below: int | None = None) -> None:
        super().__init__()
        below = config.width if below is None else below
        self.body = BODIES[config.body](config, below)
        self.reread_inputs = config.reread_inputs
        self.two_way_width = self.body.two_way_width
        """How many of the output's numbers are [forward; backward] states; the rest are the words' own."""
        self.width = self.body.width + (below if config.reread_inputs else 0)

    def forward(
        self, words: Tensor, mask: Tensor, second: Tensor | None = None, second_mask: Tensor | None = None
    ) -> Texts:
        first, other = self.body(words, mask, second, second_mask)
        if self.reread_inputs:
            first = torch.cat([first, words], dim=-1)
            other = None if other is None or second is None else torch.cat([other, second], dim=-1)
        return first, other


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization that takes a batch of one row as in inference, since one row has no variance."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] > 1:
            return super().forward(x)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class Scores(nn.Sequential):
    """From a vector to the scores of labels: dropout and a linear layer; below it an mlp has a tanh layer, and the
    biattentive network a maxout layer.

    ULMFiT's has two blocks of batch normalization, dropout and a linear layer, with a ReLU between them.
    """

    def __init__(self, config: HeadConfig, below: int, n_labels: int, *, layer: bool, dropout_rate: float) -> None:
        inner = config.inner_width or {"bcn": CELLS, "mlp-batchnorm": BLOCK_WIDTH}.get(config.body, below)
        parts: list[nn.Module] = [nn.Dropout(dropout_rate)]
        if config.body == "mlp-batchnorm":
            parts = [BatchNorm(below), *parts, nn.Linear(below, inner), nn.ReLU(), BatchNorm(inner)]
            parts.append(nn.Dropout(SECOND_DROPOUT * dropout_rate))
        elif layer:
            maxout = config.body == "bcn"
            parts += [Maxout(below, inner)] if maxout else [nn.Linear(below, inner), nn.Tanh()]
            parts.append(nn.Dropout(dropout_rate))
        parts.append(nn.Linear(inner if layer else below, n_labels))
        super().__init__(*parts)
        for part in parts:
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=config.init_std)
                nn.init.zeros_(part.bias)

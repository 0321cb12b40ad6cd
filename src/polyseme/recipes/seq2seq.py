"""Sequence to sequence with recurrent stacks: through one vector, and with attention.

Without attention the decoder gets the source's last state and nothing else (Sutskever et al. 2014); with it, it looks
at all of them for each piece that it writes (Bahdanau et al. 2015; Luong et al. 2015). The encoder reads both ways, and
its states are word vectors (CoVe, McCann et al. 2017).
"""

from __future__ import annotations

from polyseme.recipes.recipe import Recipe
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, TrainingSettings

_OURS = "a size and settings of our own, for small budgets and few pairs; pieces of words instead of words"

_ATTENTION = Recipe(
    name="seq2seq-attention",
    system="Sequence to sequence",
    paper="Bahdanau et al. 2015; Luong et al. 2015",
    family="seq2seq",
    shape={
        "n_layers": 2,
        "token_width": 512,
        "width": 256,
        "decoder_layers": 2,
        "decoder_width": None,
        "decoder_attention": "general",
        "decoder_feeding": "none",
        "dropout_rate": 0.3,
        "embedding_dropout_rate": 0.3,
    },
    objective="translation",
    objective_settings={"smoothing": 0.1, "packed": False},
    tokenizer="byte-bpe",
    vocabulary=8192,
    training=TrainingSettings(
        phases=(Phase(length=128, batch_size=128),),
        optimizer=OptimizerSettings(kind="adamw", lr=2e-3, betas=(0.9, 0.98), epsilon=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="cosine", warmup=0.05, floor=0.02),
        max_grad_norm=1.0,
    ),
    compiled=False,
    note=f"{_OURS}; other attentions, input feeding and GRUs: --set decoder_attention=additive, decoder_feeding, cells",
)

_TINY_ATTENTION = _ATTENTION.but(
    "seq2seq-attn-tiny",
    shape={"n_layers": 1, "token_width": 128, "width": 96, "decoder_layers": 1},
    vocabulary=3000,
    training={"phases": (Phase(length=128, batch_size=32),)},
)


def _through_one_vector(name: str, attention: Recipe) -> Recipe:
    return attention.but(
        name,
        paper="Sutskever et al. 2014",
        shape={"decoder_attention": "none"},
        note=f"{_OURS}; the source is read both ways instead of backwards",
    )


RECIPES = (
    _through_one_vector("seq2seq-tiny", _TINY_ATTENTION),
    _through_one_vector("seq2seq", _ATTENTION),
    _TINY_ATTENTION,
    _ATTENTION,
)

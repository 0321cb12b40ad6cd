"""The claims, in the order in which lists show them, and those that cannot be tried here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyseme.claims import (
    all_pieces,
    anisotropy,
    attention_beats_bottleneck,
    bilstm_on_top,
    cache_helps,
    distilled_student,
    dynamic_masking,
    elmo_in_six_tasks,
    frozen_or_tuned,
    generator_size,
    heads_can_go,
    heads_follow_relations,
    input_formats,
    joint_prediction,
    layers_and_tasks,
    layers_that_move,
    lm_vectors_in_taggers,
    mask_mismatch,
    mask_rate,
    mask_rate_low,
    masked_beats_causal,
    mix_of_layers,
    next_sentence,
    nnlm_with_kn5,
    objective_ablations,
    positions,
    power_of_compute,
    replaced_beats_masked,
    scaled_attention,
    sentence_encoders,
    sentence_order,
    shared_layers,
    transformer_or_lstm,
    ulmfit_steps,
)
from polyseme.claims.claim import Claim, ClaimNotTestable

_FILES: Sequence[Any] = (
    nnlm_with_kn5,
    cache_helps,
    attention_beats_bottleneck,
    sentence_encoders,
    lm_vectors_in_taggers,
    mix_of_layers,
    layers_and_tasks,
    elmo_in_six_tasks,
    ulmfit_steps,
    masked_beats_causal,
    bilstm_on_top,
    frozen_or_tuned,
    dynamic_masking,
    power_of_compute,
    replaced_beats_masked,
    all_pieces,
    generator_size,
    objective_ablations,
    shared_layers,
    sentence_order,
    next_sentence,
    input_formats,
    mask_rate,
    mask_rate_low,
    mask_mismatch,
    distilled_student,
    heads_can_go,
    heads_follow_relations,
    layers_that_move,
    joint_prediction,
    scaled_attention,
    positions,
    transformer_or_lstm,
    anisotropy,
)
CLAIMS: Mapping[str, Claim] = {
    claim.name: claim for file in _FILES for claim in (file.CLAIMS if hasattr(file, "CLAIMS") else (file.CLAIM,))
}
"""By name."""
NOT_SHOWN = (
    ClaimNotTestable(
        text="Batches of 8,000 rows train better than batches of 256.",
        source="Liu et al. 2019, Table 3",
        reason="A batch of 8,000 rows of 512 is a sixth of all text there is here, and six of them are an epoch.",
    ),
    ClaimNotTestable(
        text="Ten times the text, 160 GB instead of 16, makes a better model.",
        source="Liu et al. 2019, Table 4",
        reason="There are 100 MB of text here; a share of it against all of it is another claim, about small texts.",
    ),
    ClaimNotTestable(
        text="BERT-xlarge is worse than BERT-large, and ALBERT-xxlarge is better than both.",
        source="Lan et al. 2020, Tables 2 and 3",
        reason="Models of a billion parameters take days of many devices, and degrade only after long training.",
    ),
    ClaimNotTestable(
        text="A biLM is better than a forward LM by 0.2 F1 in named entities, and a better one by 0.3.",
        source="Peters et al. 2017",
        reason="Test sets of named entities have sampling errors of 1.2 to 1.8 points; CoNLL-2003 is not free.",
    ),
    ClaimNotTestable(
        text="Models of 175 billion parameters learn from a few examples in the prompt.",
        source="Brown et al. 2020",
        reason="What is to be shown appears at sizes that are thousands of times those of an hour of one GPU.",
    ),
    ClaimNotTestable(
        text="One model of a hundred languages transfers to languages that it was not fitted to.",
        source="Conneau et al. 2020",
        reason="All text here is English.",
    ),
)
"""Listed with the reason."""

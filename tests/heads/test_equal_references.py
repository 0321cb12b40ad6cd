"""Heads equal those of the reference library, given equal features; and recurrence equals torch's packed one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from polyseme.heads.bodies import BiLSTM
from polyseme.heads.head import Features, Head
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.kinds import build_head

SIZES = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 40,
}  # fmt: skip
IDS = torch.arange(3 * 7).view(3, 7) % 28 + 2
LABELS = tuple("abcd")


def reference(kind: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    made = kind(BertConfig(**SIZES, **settings)).double().eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def with_weights(config: HeadConfig, *layers: nn.Linear) -> Head:
    """Ours with theirs' linear layers, in order."""
    head = build_head(config).double().eval()
    ours = [part for part in head.modules() if isinstance(part, nn.Linear)]
    for mine, theirs in zip(ours, layers, strict=True):
        mine.load_state_dict(theirs.state_dict())
    return head


def states(model: Any, ids: Tensor = IDS) -> tuple[Tensor, Tensor]:
    out = model(input_ids=ids)
    return out.last_hidden_state.detach(), None if out.pooler_output is None else out.pooler_output.detach()


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


MASK = torch.ones(IDS.shape, dtype=torch.bool)


@pytest.mark.parametrize("problem", ["single", "several", "number"])
def test_classification(problem: str) -> None:
    n_labels = 1 if problem == "number" else 4
    problem_type = {"single": "single_label_classification", "several": "multi_label_classification"}
    theirs = reference(
        BertForSequenceClassification, num_labels=n_labels, problem_type=problem_type.get(problem, "regression")
    )
    gold = {
        "single": torch.tensor([0, 3, 1]),
        "several": torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1.0]]).double(),
        "number": torch.tensor([0.5, 2.0, -1.0]).double(),
    }[problem]
    config = HeadConfig(
        kind="classify",
        labels=() if problem == "number" else LABELS,
        regression=problem == "number",
        multi=problem == "several",
        width=16,
        whole_width=16,
    )
    ours = with_weights(config, theirs.classifier)
    words, pooled = states(theirs.bert)
    expected = theirs(input_ids=IDS, labels=gold)
    given = Features(words=words, mask=MASK, whole=pooled)
    close(ours(given), expected.logits.squeeze(-1))
    close(ours.mean_loss(given, gold), expected.loss)


def test_classification_by_two_layers_as_roberta() -> None:
    torch.manual_seed(0)
    theirs = RobertaForSequenceClassification(RobertaConfig(**SIZES, num_labels=4)).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    config = HeadConfig(kind="pair", labels=LABELS, body="mlp", width=16, whole_width=16)
    ours = with_weights(config, theirs.classifier.dense, theirs.classifier.out_proj)
    words, _ = states(theirs.roberta)
    gold = torch.tensor([2, 0, 1])
    expected = theirs(input_ids=IDS, labels=gold)
    given = Features(words=words, mask=MASK, whole=words[:, 0])
    close(ours(given), expected.logits)
    close(ours.mean_loss(given, gold), expected.loss)


def test_tagging() -> None:
    theirs = reference(BertForTokenClassification, num_labels=4)
    ours = with_weights(HeadConfig(kind="tag", labels=LABELS, width=16), theirs.classifier)
    words, _ = states(theirs.bert)
    gold = (torch.arange(21) % 4).view(3, 7)
    gold[0, 3:], gold[2, 1] = -100, -100
    expected = theirs(input_ids=IDS, labels=gold)
    given = Features(words=words, mask=MASK)
    close(ours(given), expected.logits)
    close(ours.mean_loss(given, gold), expected.loss)


def test_span() -> None:
    theirs = reference(BertForQuestionAnswering)
    ours = with_weights(HeadConfig(kind="span", width=16, whole_width=16), theirs.qa_outputs)
    words, _ = states(theirs.bert)
    places = torch.tensor([[0, 0], [2, 5], [6, 6]])  # theirs count [CLS], which says that there is no answer
    expected = theirs(input_ids=IDS, start_positions=places[:, 0], end_positions=places[:, 1])
    given = Features(words=words[:, 1:], mask=MASK[:, 1:], whole=words[:, 0])
    close(ours(given)[..., 0], expected.start_logits)
    close(ours(given)[..., 1], expected.end_logits)
    close(ours.mean_loss(given, places - 1), expected.loss)


def test_choice() -> None:
    theirs = reference(BertForMultipleChoice)
    ours = with_weights(HeadConfig(kind="choose", width=16, whole_width=16), theirs.classifier)
    ids = (torch.arange(2 * 3 * 7).view(2, 3, 7) * 5) % 28 + 2
    gold = torch.tensor([2, 0])
    expected = theirs(input_ids=ids, labels=gold)
    words, pooled = states(theirs.bert, ids.flatten(0, 1))
    mask = torch.ones(words.shape[:2], dtype=torch.bool)
    given = Features(words=words, mask=mask, whole=pooled, groups=torch.tensor([0, 0, 0, 1, 1, 1]))
    close(ours(given).view(2, 3), expected.logits)
    close(ours.mean_loss(given, gold), expected.loss)
    found = ours.predict(given)
    close(torch.tensor(found.probabilities), torch.softmax(expected.logits, -1))


@pytest.mark.parametrize("n_layers", [1, 2])
def test_bilstm_equals_packed_sequences(n_layers: int) -> None:
    torch.manual_seed(0)
    ours = BiLSTM(5, 4, n_layers=n_layers).double().eval()
    theirs = nn.LSTM(5, 4, num_layers=n_layers, bidirectional=True, batch_first=True).double()
    for layer in range(n_layers):
        for reader, suffix in ((ours.forwards[layer], ""), (ours.backwards[layer], "_reverse")):
            second = torch.zeros(16, dtype=torch.float64)
            second[4:8] = reader.forget_bias  # type: ignore[assignment]
            for name, value in (
                ("weight_ih", reader.input), ("weight_hh", reader.recurrent), ("bias_ih", reader.bias),
                ("bias_hh", second),
            ):  # fmt: skip
                getattr(theirs, f"{name}_l{layer}{suffix}").data.copy_(value)
    lengths = torch.tensor([4, 1, 6])
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    close(ours(x, torch.arange(6) < lengths[:, None]), expected)

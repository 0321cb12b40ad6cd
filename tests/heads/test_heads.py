"""Every head, under every body: learns a batch, and no row knows of another."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyseme.errors import ModelError, OptionError
from polyseme.heads.head import NO_GOLD, Features
from polyseme.heads.head_config import NAMES, TASK_KINDS, HeadConfig, named_settings
from polyseme.tasks.kinds import KINDS, build_head, check_kind

WIDTH, LENGTHS, OTHERS = 6, (5, 2, 1, 4, 3, 5), (3, 1, 4, 2, 5, 2)
TAGS = ("O", "B-X", "I-X")
CASES: dict[str, dict[str, Any]] = {
    "classify": {"kind": "classify", "labels": ("a", "b", "c")},
    "stars": {"kind": "classify", "labels": tuple("12345"), "readout": "concat"},
    "several labels": {"kind": "classify", "labels": ("a", "b", "c"), "multi": True, "readout": "last"},
    "whole": {"kind": "classify", "labels": ("a", "b"), "whole_width": 4},
    "pair together": {"kind": "pair", "labels": ("a", "b"), "readout": "first"},
    "pair apart": {"kind": "pair", "labels": ("a", "b"), "separate_rows": True, "readout": "max"},
    "number": {"kind": "pair", "regression": True, "separate_rows": True},
    "tag": {"kind": "tag", "labels": TAGS},
    "tag crf": {"kind": "tag", "labels": TAGS, "crf": True, "scheme": "BIO", "n_marks": 2, "marks_width": 3},
    "span": {"kind": "span", "whole_width": WIDTH, "no_answer": True},
    "span apart": {"kind": "span", "separate_rows": True, "readout": "concat"},
    "choose": {"kind": "choose"},
    "choose apart": {"kind": "choose", "separate_rows": True},
}
BODIES = ("linear", "mlp", "attention", "bilstm", "bilstm-attention", "bcn")
every_case = pytest.mark.parametrize("case", CASES)
every_body = pytest.mark.parametrize("body", BODIES)


def config(case: str, body: str, **settings: Any) -> HeadConfig:
    return HeadConfig(**{"width": WIDTH, "body": body, "inner_width": 8, **CASES[case], **settings})


def masked(lengths: tuple[int, ...], n_words: int) -> Tensor:
    return torch.arange(n_words) < torch.tensor(lengths)[:, None]


def features(made: HeadConfig, *, dtype: torch.dtype = torch.float64) -> Features:
    generator = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator)

    mask, others = masked(LENGTHS, 5), masked(OTHERS, 5)
    words, second = drawn(6, 5, made.width) * mask[:, :, None], drawn(6, 5, made.width) * others[:, :, None]
    passage = mask & (torch.arange(5) > 0) if made.kind == "span" and not made.separate_rows else None
    return Features(
        words=words,
        mask=mask,
        whole=None if made.whole_width is None else drawn(6, made.whole_width),
        second=second if made.separate_rows else None,
        second_mask=others if made.separate_rows else None,
        marks=(torch.arange(30).view(6, 5) % 3 == 0).long() if made.n_marks else None,
        passage=passage,
        groups=torch.tensor([0, 0, 0, 1, 1, 2]) if made.kind == "choose" else None,
    )


def gold_for(made: HeadConfig) -> Tensor:
    if made.kind == "tag":
        tags = [[0, 1, 2, 2, 0], [1, 2, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 2, 0, 0], [0, 1, 0, 0, 0], [1, 2, 1, 2, 0]]
        return torch.tensor(tags).masked_fill(~masked(LENGTHS, 5), NO_GOLD)
    if made.kind == "span":
        return torch.tensor([[1, 3], [1, 1], [-1, -1], [2, 3], [-1, -1], [4, 4]])
    if made.kind == "choose":
        return torch.tensor([2, 1, 0])
    if made.regression:
        return torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, -0.5], dtype=torch.float64)
    if made.multi:
        return torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0]]).double()
    return torch.arange(6) % made.n_labels


def widened(given: Features, by: int = 3) -> Features:
    """With more padding, which is full of numbers."""

    def pad(tensor: Tensor | None, value: float) -> Tensor | None:
        if tensor is None:
            return None
        extra = torch.full((tensor.shape[0], by, *tensor.shape[2:]), value).to(tensor.dtype)
        return torch.cat([tensor, extra], dim=1)

    return Features(
        words=pad(given.words, 7.0),  # type: ignore[arg-type]
        mask=pad(given.mask, 0),  # type: ignore[arg-type]
        whole=given.whole,
        second=pad(given.second, -7.0),
        second_mask=pad(given.second_mask, 0),
        marks=pad(given.marks, 1),
        passage=pad(given.passage, 0),
        groups=given.groups,
    )


def rounded(labels: Any) -> str:
    return re.sub(r"(\.\d{9})\d+", r"\1", str(labels))


@pytest.mark.parametrize(
    ("case", "body"),
    [
        *itertools.product(CASES, ["linear"]),
        *zip(CASES, itertools.cycle(["bilstm", "bilstm-attention", "mlp", "bcn", "attention"])),
    ],
)
def test_overfits_a_batch(case: str, body: str) -> None:
    torch.manual_seed(0)
    wide = {"whole_width": 32} if "whole_width" in CASES[case] else {}
    # wide enough for a plane to part any words
    made = config(case, body, dropout_rate=0.0, width=32, inner_width=16, **wide)
    head, given, gold = build_head(made), features(made, dtype=torch.float32), gold_for(made)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        loss = head.mean_loss(given, gold)
        if loss < 0.03:
            break
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    head.eval()
    found = head.predict(given).labels
    if made.kind == "span":
        answers = [spans.answer(no_answer=True) for spans in found]
        assert [[-1, -1] if each is None else [each.start, each.end] for each in answers] == gold.tolist()
    elif made.kind == "tag":
        expected = [[tag for tag in row if tag != NO_GOLD] for row in gold.tolist()]
        assert found == expected
    elif made.regression:
        assert np.allclose(found, gold, atol=0.5)
    elif made.multi:
        assert [[float(label in row) for label in range(3)] for row in found] == gold.tolist()
    else:
        assert found == gold.tolist()


@every_body
@every_case
def test_padding_and_order_change_nothing(case: str, body: str) -> None:
    torch.manual_seed(0)
    made = config(case, body, init_std=0.5)
    head, given, gold = build_head(made).double().eval(), features(made), gold_for(made)
    plain, losses = head(given), head.loss(given, gold)
    wide = head(widened(given))
    if made.kind in ("tag", "span"):
        padding = (0, 3) if made.kind == "tag" else (0, 0, 0, 3)
        gold_wide = torch.nn.functional.pad(gold, padding, value=NO_GOLD) if made.kind == "tag" else gold
        real = given.mask if made.kind == "tag" else torch.cat([torch.ones(6, 1, dtype=torch.bool), given.mask], 1)
        wide = wide[:, : plain.shape[1]]
        torch.testing.assert_close(wide[real], plain[real], rtol=0, atol=1e-12)
    else:
        gold_wide = gold
        torch.testing.assert_close(wide, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(head.loss(widened(given), gold_wide), losses, rtol=0, atol=1e-12)
    assert rounded(head.predict(widened(given)).labels) == rounded(head.predict(given).labels)

    if made.kind == "choose":
        return
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    torch.testing.assert_close(head.loss(given.select(order), gold[order]), losses[order], rtol=0, atol=1e-12)
    for row, length in enumerate(LENGTHS):
        one = given.select(torch.tensor([row]))
        alone = Features(
            words=one.words[:, :length],
            mask=one.mask[:, :length],
            whole=one.whole,
            second=None if one.second is None else one.second[:, : OTHERS[row]],
            second_mask=None if one.second_mask is None else one.second_mask[:, : OTHERS[row]],
            marks=None if one.marks is None else one.marks[:, :length],
            passage=None if one.passage is None else one.passage[:, :length],
        )
        golden = gold[row : row + 1, :length] if made.kind == "tag" else gold[row : row + 1]
        torch.testing.assert_close(head.loss(alone, golden), losses[row : row + 1], rtol=0, atol=1e-12)


@every_body
@pytest.mark.parametrize("case", ["stars", "pair apart", "tag crf", "span", "choose apart"])
def test_gradients(case: str, body: str) -> None:
    torch.manual_seed(0)
    again = body.startswith("bilstm")
    made = config(case, body, init_std=0.5, inner_width=2, reread_inputs=again)
    head, given, gold = build_head(made).double().eval(), features(made), gold_for(made)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # with biases of zero, states would tie where a largest one is taken
    for part in head.modules():
        if hasattr(part, "written_out"):
            part.written_out = True  # kernels of recurrence are checked against the loop elsewhere
    inputs = [tensor.requires_grad_() for tensor in (given.words, given.second, given.whole) if tensor is not None]
    used = [*inputs, *head.parameters()]

    def loss(*_: Tensor) -> Tensor:
        return head.mean_loss(given, gold)

    assert torch.autograd.gradcheck(loss, tuple(used), fast_mode=True)


@every_case
def test_rows_of_no_words_are_finite(case: str) -> None:
    for body in BODIES:
        made = config(case, body)
        head, given, gold = build_head(made).double(), features(made), gold_for(made)
        given.mask[2], given.words[2] = False, 0.0
        if made.kind == "tag":
            gold[2] = NO_GOLD
        if given.second_mask is not None:
            given.second_mask[2] = False
        loss = head.mean_loss(given, gold)
        loss.backward()
        assert torch.isfinite(loss)
        for parameter in head.parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all()
        head.predict(given)


@every_body
@every_case
def test_comes_back_as_it_was_saved(case: str, body: str) -> None:
    made = config(case, body)
    head, given = build_head(made).eval(), features(made, dtype=torch.float32)
    settings = json.loads(json.dumps(made.to_json()))
    back = build_head(HeadConfig.from_json(settings)).eval()
    back.load_state_dict(head.state_dict())
    assert back.config == made
    assert torch.equal(back(given), head(given))


def test_words_without_gold_count_for_nothing() -> None:
    for crf in (False, True):
        made = config("tag", "linear", crf=crf)
        head, given, gold = build_head(made).double().eval(), features(made), gold_for(made)
        gold[0, 2] = NO_GOLD
        kept = torch.tensor([0, 1, 3, 4])
        short = Features(words=given.words[:1, kept], mask=given.mask[:1, kept])
        torch.testing.assert_close(head.loss(given, gold)[:1], head.loss(short, gold[:1, kept]), rtol=0, atol=1e-12)
        assert head.n_gold(gold).tolist() == [4, 2, 1, 4, 3, 5]


def test_a_crf_never_breaks_its_scheme() -> None:
    torch.manual_seed(2)
    made = config("tag crf", "linear", init_std=5.0)
    found = build_head(made).double().predict(features(made))
    assert found.probabilities is not None
    for row, length in zip(found.labels, LENGTHS, strict=True):
        assert len(row) == length
        for before, tag in itertools.pairwise([0, *row]):
            assert tag != 2 or before in (1, 2)
    assert np.allclose(found.probabilities.sum(-1), masked(LENGTHS, 5))


def test_words_are_read_again() -> None:
    made = config("tag", "bilstm", reread_inputs=True)
    head, given = build_head(made).double().eval(), features(made)
    with torch.no_grad():
        head.scores[-1].weight[:, :16] = 0  # type: ignore[union-attr, index]
        expected = given.words @ head.scores[-1].weight[:, 16:].T  # type: ignore[union-attr, index]
    torch.testing.assert_close(head(given).double(), expected)


# torch.compile itself makes an instance of every autograd function that it traces, and warns of that
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    ("case", "body"),
    [
        ("classify", "linear"),
        pytest.param("choose", "mlp", marks=pytest.mark.slow),
        pytest.param("span", "linear", marks=pytest.mark.slow),
        pytest.param("tag crf", "linear", marks=pytest.mark.slow),  # the chain by itself: `parts.test_crf`
    ],
)
def test_compiles_whole(case: str, body: str) -> None:
    made = config(case, body)
    head, given, gold = build_head(made).double().eval(), features(made), gold_for(made)
    compiled = torch.compile(head.mean_loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(given, gold), head.mean_loss(given, gold), rtol=0, atol=1e-12)
    torch._dynamo.reset()


def test_draws_weights_as_bert_does() -> None:
    torch.manual_seed(0)
    head = build_head(HeadConfig(kind="classify", labels=("a", "b"), width=8, whole_width=2000))
    weights = dict(head.named_parameters())
    (weight,) = (tensor for name, tensor in weights.items() if name.endswith("weight"))
    (bias,) = (tensor for name, tensor in weights.items() if name.endswith("bias"))
    assert abs(float(weight.detach().std()) - 0.02) < 0.001
    assert not bias.any()
    assert head.config.dropout_rate == 0.1


def test_names_are_configs() -> None:
    assert set(KINDS) == {"classify", "pair", "tag", "span", "choose", "edge", "edge-pair"}
    for name in set(NAMES) - {"text", "cosine", "mlp-batchnorm"}:
        build_head(HeadConfig(kind="tag", labels=TAGS, width=4, **named_settings(name)))
    build_head(HeadConfig(kind="classify", labels=TAGS, width=4, **named_settings("mlp-batchnorm")))
    written = HeadConfig(kind="pair", labels=("a", "b"), width=4, pieces=((3,), (4, 1)), **named_settings("text"))
    assert build_head(HeadConfig.from_json(written.to_json())).config == written
    with pytest.raises(OptionError, match="Did you mean 'bilstm-crf'"):
        named_settings("bilstm_crf")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "clasify"}, "Did you mean 'classify'"),
    "body": ({"body": "lstm"}, "Did you mean 'bilstm'"),
    "readout": ({"readout": "avg"}, "There are: mean"),
    "width": ({"width": 0}, "'width' of a head must be a whole number"),
    "dropout": ({"dropout_rate": 1}, "from 0 to below 1"),
    "no labels": ({"labels": ()}, "needs the names of its labels"),
    "twice": ({"labels": ("a", "a")}, "'a' is there twice"),
    "labels of numbers": ({"regression": True}, "has no labels"),
    "crf": ({"crf": True}, "has no 'crf': that is for tag"),
    "separate_rows": ({"separate_rows": True}, "that is for pair, span, choose"),
    "reread_inputs": ({"reread_inputs": True}, "beside a BiLSTM"),
    "pieces": ({"pieces": ((1,), (2,))}, "writes nothing"),
    "no pieces": ({"body": "text"}, "needs the pieces of each of its 2 texts. Got 0"),
    "written tags": ({"kind": "tag", "body": "text"}, "not task 'tag'"),
    "several written": ({"multi": True, "body": "text"}, "not several labels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_configs_that_mean_nothing(name: str) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        build_head(HeadConfig(**{"kind": "classify", "labels": ("a", "b"), "width": 4, **changes}))


def test_a_kind_of_task_is_refused_by_the_config_itself() -> None:
    assert tuple(KINDS) == TASK_KINDS
    with pytest.raises(ModelError, match=r"no kind 'clasify' of a head. Did you mean 'classify'"):
        HeadConfig(kind="clasify", labels=("a", "b"), width=4)


def test_refuses_what_was_made_for_something_else() -> None:
    made = config("tag", "linear")
    head = build_head(made)
    with pytest.raises(ModelError, match="models/ner was made for task 'tag', and cannot do 'classify'"):
        check_kind(made, "classify", where="models/ner")
    with pytest.raises(ModelError, match=r"no field 'ridout'. Did you mean 'readout'"):
        HeadConfig.from_json({**made.to_json(), "ridout": "mean"})
    given = features(made)
    with pytest.raises(ModelError, match=r"words of width 6. Got width 4"):
        head(Features(words=given.words[..., :4], mask=given.mask))
    with pytest.raises(ModelError, match=r"read together. Got texts read in separate rows"):
        head(Features(words=given.words, mask=given.mask, second=given.words, second_mask=given.mask))
    with pytest.raises(ModelError, match=r"whole row. Got none"):
        build_head(config("whole", "linear"))(given)
    with pytest.raises(ModelError, match="reads one mark per word"):
        build_head(config("tag crf", "linear"))(given)

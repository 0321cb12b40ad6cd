"""Readouts of models that have a decoder, and of XLNet, equal what the reference library's task models read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from polyseme.api import Model
from polyseme.bundle import Bundle
from polyseme.convert.families import FAMILIES
from polyseme.cost import forward_flops
from polyseme.errors import ModelError, OptionError
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.default_settings import fill_settings
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import prepare
from polyseme.transfer.task_model import TaskConfig, TaskModel
from polyseme.transfer.text_labels import OUTPUT, answers_of
from references import Pair, assert_close, make_pair, reference_class
from tiny_models import tiny_config, tiny_model, tiny_tokenizer
from transfer.small_tasks import small_task

ITEMS = (
    Item(text="The vase broke .", second="A crane caught a fish", gold="good"),
    Item(text="Dawn", second="balls", gold="bad"),
    Item(text="They throw a party ; they throw a ball !", second="I saw", gold="good"),
    Item(text="the beer is flat and so is the surface", second="news", gold="bad"),
)


def pair_of(family: str) -> Pair:
    """A reference and ours with equal weights and a small tokenizer, in float64."""
    pair = make_pair(FAMILIES[family], FAMILIES[family].architectures[0][0], tiny_config(family))
    pair.ours.tokenizer = tiny_tokenizer(family)
    return pair


def task_model(
    bundle: Bundle, head: str = "linear", head_settings: dict[str, Any] | None = None, **settings: Any
) -> TaskModel:
    labels = {} if settings["kind"] in ("span", "choose") else {"labels": ("bad", "good")}
    reading = TaskConfig(**{"max_pieces": 40, **settings})
    return build_task_model(bundle, reading, head, head_settings=head_settings or labels).double().eval()


def padded(rows: Sequence[Any], filling: int = 0) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*map(int, row), *[filling] * (longest - len(row))] for row in rows])


def inputs_of(model: TaskModel, *, pad: int) -> dict[str, Tensor]:
    """The rows of the items, as the reference library takes them."""
    assert model.row_maker is not None
    texts = [row.text for [row] in KINDS[model.config.kind].encoder_rows(model.row_maker, ITEMS)]
    mask = padded([[1] * len(text) for text in texts])
    return {"input_ids": padded([text.ids for text in texts], pad), "attention_mask": mask}


def features(model: TaskModel) -> Any:
    source = prepare(model, ITEMS, learning=False).source
    with torch.no_grad():
        return model.features(source.batch(range(len(ITEMS))))


# --- BART: the decoder's states ---------------------------------------------------------------------------------------


def theirs_for_tasks(pair: Pair, architecture: str, **options: Any) -> Any:
    """The reference's task model, with the weights of the pair."""
    made = reference_class(FAMILIES["bart"], architecture)
    settings = pair.reference.config.to_dict() | options
    config = made.config_class(**settings, attn_implementation="eager")
    model = made(config).double().eval()
    model.model.load_state_dict(pair.reference.model.state_dict())
    return model


@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_bart_is_read_where_its_classifier_reads_it(kind: str) -> None:
    pair = pair_of("bart")
    specials = pair.ours.tokenizer.specials  # type: ignore[union-attr]
    model = task_model(pair.ours, kind=kind, stack="decoder", readout="last")
    theirs = theirs_for_tasks(
        pair,
        "BartForSequenceClassification",
        num_labels=2,
        eos_token_id=specials["end"],
        pad_token_id=specials["pad"],
        decoder_start_token_id=specials["end"],
    )
    pooled = []
    theirs.classification_head.register_forward_pre_hook(lambda module, given: pooled.append(given[0]))
    inputs = inputs_of(model, pad=specials["pad"])
    assert len(set(inputs["attention_mask"].sum(1).tolist())) > 2
    with torch.no_grad():
        theirs(**inputs)
    assert_close(features(model).whole, pooled[0], 1e-10)


def test_bart_finds_answers_in_the_states_of_its_decoder() -> None:
    pair = pair_of("bart")
    specials = pair.ours.tokenizer.specials  # type: ignore[union-attr]
    model = task_model(pair.ours, kind="span", stack="decoder", pool="first")
    theirs = theirs_for_tasks(
        pair, "BartForQuestionAnswering", pad_token_id=specials["pad"], decoder_start_token_id=specials["end"]
    )
    states: list[Tensor] = []
    theirs.qa_outputs.register_forward_pre_hook(lambda module, given: states.append(given[0]))
    with torch.no_grad():
        theirs(**inputs_of(model, pad=specials["pad"]))
    found = features(model)
    assert model.row_maker is not None
    for number, [row] in enumerate(KINDS["span"].rows(model.row_maker, ITEMS)):
        places = torch.from_numpy(row.text.words[:, 0])
        assert_close(found.words[number, : len(places)], states[0][number, places], 1e-10)


def test_bart_reads_its_decoder_where_one_vector_is_wanted() -> None:
    bundle = tiny_model("bart").bundle
    expected = {"classify": "decoder", "pair": "decoder", "choose": "decoder", "span": "decoder", "tag": "encoder"}
    for kind, stack in expected.items():
        answers = answers_of(bundle, small_task(kind), starts=True)
        common: Any = {"kind": kind, "n_train": 100, "pooler": False, "starts": True, "answers": answers}
        found = fill_settings(FinetuneSettings(), bundle.config, **common).settings
        assert (found.stack, found.head) == (stack, "linear")
        assert found.readout == ("last" if stack == "decoder" else "first")
        assert fill_settings(FinetuneSettings(frozen=True), bundle.config, **common).settings.stack == "encoder"
        asked = FinetuneSettings(stack="encoder")
        assert fill_settings(asked, bundle.config, **common).settings.readout == "first"


def test_both_stacks_learn_and_what_they_share_does_once() -> None:
    bundle = tiny_model("bart").bundle
    model = task_model(bundle, kind="tag", stack="decoder")
    groups = model.layer_groups()
    parameters = [parameter for group in groups for parameter in group]
    assert len(parameters) == len(set(parameters))
    assert set(parameters) == {*bundle.encoder.parameters(), *bundle.decoder.parameters()}  # type: ignore[union-attr]
    assert set(parameters) < set(model.learned().values())
    assert [len(group) for group in model.fresh_groups()] == [len(group) for group in groups]
    only = task_model(tiny_model("bart").bundle, kind="tag")
    assert not any(name.startswith("bundle.decoder") for name in only.learned())


def test_frozen_vectors_of_the_decoder_are_those_of_embed(tmp_path: Path) -> None:
    """There a word's state is the one at which the decoder has just read it."""
    model = tiny_model("bart")
    reading, labels = TaskConfig(kind="classify", frozen=True, max_pieces=40), {"labels": ("bad", "good")}
    fitted = build_task_model(model.bundle, reading.replace(stack="decoder"), "linear", head_settings=labels).eval()
    source = prepare(fitted, ITEMS, learning=False, cache=tmp_path).source
    batch = source.batch(range(len(ITEMS)))
    assert batch.features is not None
    for row, item in enumerate(ITEMS):
        [embedded] = model.embed([item.text], stack="decoder")
        found = batch.features.words[row, : len(embedded.words)]
        assert_close(found, torch.from_numpy(embedded.vectors), 1e-5)
    other = build_task_model(model.bundle, reading, "linear", head_settings=labels).eval()
    prepare(other, ITEMS, learning=False, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_costs_count_both_stacks_and_what_is_written() -> None:
    bundle = tiny_model("t5").bundle
    read = task_model(bundle, kind="classify").forward_flops([10, 20])
    both = task_model(bundle, kind="classify", stack="decoder", readout="last").forward_flops([10, 20])
    writing = task_model(bundle, kind="classify", head="text", prompt=("a: ",))
    assert read == forward_flops(bundle.config, [10, 20]) < both
    assert read < writing.forward_flops([10, 20], learning=True) < writing.forward_flops([10, 20])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_decoder_that_is_not_there(family: str) -> None:
    with pytest.raises(ModelError, match="one stack, and no decoder"):
        task_model(tiny_model(family).bundle, kind="classify", stack="decoder")


def test_readouts_and_stacks_that_mean_nothing() -> None:
    with pytest.raises(OptionError, match="the decoder has read nothing yet"):
        task_model(tiny_model("bart").bundle, kind="classify", stack="decoder", readout="first")
    with pytest.raises(OptionError, match="Did you mean 'decoder'"):
        FinetuneSettings(stack="decodre")
    with pytest.raises(OptionError, match="no model, and so no decoder"):
        build_task_model(None, TaskConfig(kind="classify", stack="decoder"), "linear")


# --- XLNet: the last piece --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_xlnet_is_read_at_its_last_piece(kind: str) -> None:
    """Theirs pads on the left, so that the last piece is the last column; ours on the right."""
    pair = pair_of("xlnet")
    model = task_model(pair.ours, kind=kind, readout="first")
    made = reference_class(FAMILIES["xlnet"], "XLNetForSequenceClassification")
    theirs = made(made.config_class(**pair.reference.config.to_dict() | {"num_labels": 2})).double().eval()
    theirs.transformer = pair.reference.transformer
    summed: list[Tensor] = []
    theirs.sequence_summary.register_forward_pre_hook(lambda module, given: summed.append(given[0]))
    assert model.row_maker is not None
    texts = [row.text for [row] in KINDS[kind].rows(model.row_maker, ITEMS)]
    longest = max(map(len, texts))
    left = [longest - len(text) for text in texts]
    segments = [text.segments.tolist() for text in texts]
    if kind == "pair":
        first = [list(its).index(1) for its in segments]
        assert [its[:place] for its, place in zip(segments, first, strict=True)] == [[0] * place for place in first]
        assert all(its[place:-1] == [1] * (len(its) - place - 1) for its, place in zip(segments, first, strict=True))
    assert {its[-1] for its in segments} == {2}
    with torch.no_grad():
        theirs(
            input_ids=torch.tensor([[0] * n + text.ids.tolist() for n, text in zip(left, texts, strict=True)]),
            attention_mask=torch.tensor([[0] * n + [1] * (longest - n) for n in left]),
            token_type_ids=torch.tensor([[3] * n + its for n, its in zip(left, segments, strict=True)]),
        )
    assert_close(features(model).whole, summed[0][:, -1], 1e-10)


# --- T5: the label is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_what_is_minimized_equals_the_reference(family: str) -> None:
    pair = pair_of(family)
    specials = pair.ours.tokenizer.specials  # type: ignore[union-attr]
    prompt = KINDS["classify"].prompt("a")
    model = task_model(pair.ours, kind="classify", head="text", prompt=prompt)
    pair.reference.config.pad_token_id = specials["pad"]
    pair.reference.config.decoder_start_token_id = pair.ours.first_written
    targets = [model.head.config.pieces[("bad", "good").index(item.gold)] for item in ITEMS]
    with torch.no_grad():
        expected = pair.reference(**inputs_of(model, pad=specials["pad"]), labels=padded(targets, -100)).loss
        source = prepare(model, ITEMS, learning=True).source
        found = model(source.batch(range(len(ITEMS))))
    assert_close(found, expected, 1e-10)


@pytest.mark.parametrize("family", ["t5", "bart", "transformer", "seq2seq"])
def test_labels_are_scored_as_texts_given_a_source(family: str) -> None:
    bundle = tiny_model(family).bundle.double()
    labels = ("bad", "good news", "a")
    prompt = KINDS["classify"].prompt("a")
    model = task_model(bundle, kind="classify", head="text", prompt=prompt, head_settings={"labels": labels})
    given = features(model)
    assert model.row_maker is not None
    assert not model.row_maker.tally.texts  # nothing was cut
    head: Any = model.head
    with torch.no_grad():
        losses = head.writer(given.words, given.mask.sum(1), head.texts[None])
        scores = head(given)
    assert torch.equal(scores, -(losses * head.real).sum(-1))
    user = Model(bundle)
    for number, item in enumerate(ITEMS):
        for place, label in enumerate(labels):
            [scored] = user.score([label], source=f"a sentence: {item.text}")
            own, whole = model.row_maker.written(label)
            start = whole.index(own[0])
            found = -losses[number, place, start : start + len(own)]
            assert_close(found, torch.from_numpy(scored.piece_log_probs), 1e-10)


def test_the_frame_and_the_end_are_written_too() -> None:
    model = task_model(tiny_model("t5").bundle, kind="classify", head="text", prompt=KINDS["classify"].prompt("x"))
    end = model.bundle.tokenizer.specials["end"]  # type: ignore[union-attr]
    assert all(pieces[-1] == end for pieces in model.head.config.pieces)
    assert not list(model.head.parameters())
    assert not model.head.state_dict()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "own"])
def test_all_that_writes_learns(tied: bool) -> None:
    bundle = tiny_model("t5").bundle
    if not tied:
        bundle.tied = False
        output: Any = bundle.outputs[OUTPUT]
        output.tied = False
        output.table = torch.nn.Parameter(output.table.detach().clone())
    model = task_model(bundle, kind="classify", head="text", prompt=KINDS["classify"].prompt("x"))
    assert set(model.learned().values()) == set(bundle.parameters())
    assert all(parameter.requires_grad for parameter in bundle.parameters())
    source = prepare(model, ITEMS, learning=True).source
    model(source.batch(range(len(ITEMS)))).backward()
    assert all(parameter.grad is not None for parameter in bundle.parameters())


# --- what is read -----------------------------------------------------------------------------------------------------


def test_texts_are_read_behind_their_prompts() -> None:
    bundle = tiny_model("t5").bundle
    tokenizer: Any = bundle.tokenizer
    model = task_model(bundle, kind="pair", head="text", prompt=KINDS["pair"].prompt("rte"), max_pieces=400)
    [[row]] = model.row_maker.prompted_rows(ITEMS[:1])  # type: ignore[union-attr]
    whole = "rte sentence1: The vase broke . sentence2: A crane caught a fish"
    assert tokenizer.decode(row.text.ids[:-1].tolist()) == whole
    assert row.text.ids[-1] == tokenizer.specials["end"]


def test_an_empty_text_is_read_as_its_prompt_and_counted() -> None:
    model = task_model(tiny_model("t5").bundle, kind="pair", head="text", prompt=("a: ", "b: "))
    maker: Any = model.row_maker
    [[row]] = maker.prompted_rows([Item(text="", second=" ")])
    assert maker.tokenizer.decode(row.text.ids[:-1].tolist()).split() == ["a:", "b:"]
    assert maker.tally.empty == 2
    assert maker.tally.words == 0


def test_what_is_too_long_is_cut_and_prompts_are_kept() -> None:
    bundle = tiny_model("t5").bundle
    tokenizer: Any = bundle.tokenizer
    model = task_model(bundle, kind="pair", head="text", prompt=("a: ", "b: "), max_pieces=18)
    items = [Item(text="The vase broke " * 9, second="Dawn broke " * 9), Item(text="The", second="Dawn broke " * 9)]
    maker: Any = model.row_maker
    rows = [tokenizer.decode(row.text.ids[:-1].tolist()) for [row] in maker.prompted_rows(items)]
    assert [len(row.text) for [row] in maker.prompted_rows(items)] == [18, 18]
    for text, first in zip(rows, ("The vas", "The"), strict=True):
        assert text.startswith(f"a: {first}")
        assert " b: Dawn" in text
    assert maker.tally.texts == 4
    model = task_model(bundle, kind="pair", head="text", prompt=("a: ", "b: "), max_pieces=8)
    with pytest.raises(OptionError, match="no room for any text"):
        model.row_maker.prompted_rows(items)  # type: ignore[union-attr]


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("bert", {}, "Take a model of two stacks"),
        ("gpt2", {}, "Take a model of two stacks"),
        ("t5", {"kind": "tag"}, "Got a task of kind 'tag'"),
        ("t5", {"kind": "span"}, "Got a task of kind 'span'"),
        ("t5", {"kind": "choose"}, "Got a task of kind 'choose'"),
        ("t5", {"head_settings": {"labels": ("a", "b"), "multi": True}}, "several labels"),
        ("t5", {"head_settings": {"labels": ("bad", "★")}}, "label '★' cannot be written"),
        ("t5", {"head_settings": {"labels": ("bad", "")}}, "label '' cannot be written"),
        ("t5", {"head_settings": {"labels": ("a★", "bad", "a☆")}}, "'a★' and 'a☆' are written alike"),
    ],
    ids=str,
)
def test_what_cannot_be_written(family: str, changes: dict[str, Any], words: str) -> None:
    settings = {"kind": "classify", "head": "text", "prompt": ("x: ",), **changes}
    with pytest.raises(OptionError, match=words):
        task_model(tiny_model(family).bundle, **settings)

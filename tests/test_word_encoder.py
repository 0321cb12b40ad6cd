"""Any encoder as an `nn.Module` over lists of words: equal to `embed`, right gradients, and it learns."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from golden_elmo import WITHIN, arrays, content, golden_bundle
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.text.documents import make_document
from polyseme.word_encoder import WordEncoder
from tiny_models import tiny_model

TEXTS = [
    ["Dawn", "broke", "."],
    ["Sandy", "broke", "the", "world", "record", ";", "misunderstandings", "!"],
    [],
    ["crane"],
]
LONG = ["The", "burglar", "broke", "into", "the", "house", "and", "the", "newscaster", "broke", "in", "."] * 7


def assert_equal_to_embed(encoder: WordEncoder, model: Model, texts: Sequence[Sequence[str]], **how: Any) -> None:
    vectors, mask = encoder.eval()(texts)
    expected = model.embed(texts, **how)
    assert mask.dtype == torch.bool
    assert mask.sum(dim=1).tolist() == [len(each.words) for each in expected]
    assert vectors.shape[:2] == mask.shape == (len(texts), max(map(len, texts)))
    largest = max(float(np.abs(each.vectors).max()) for each in expected if len(each.words))
    for found, real, each in zip(vectors, mask, expected, strict=True):
        np.testing.assert_allclose(found[real].detach().numpy(), each.vectors, rtol=0, atol=1e-5 * largest)
        assert not found[~real].any()


# --- equal to embed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainable", [False, True], ids=["frozen", "trainable"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_embed(family: str, trainable: bool) -> None:
    model = tiny_model(family)
    settings = ((-1, "first"), ("concat:0:-1", "max")) if trainable else (("mix", "mean"), ("all", "last"))
    for layer, pool in settings:
        encoder = WordEncoder(model, layer=layer, pool=pool, trainable=trainable)
        assert_equal_to_embed(encoder, model, TEXTS, layer=layer, pool=pool)


@pytest.mark.parametrize("family", ["bert", "gpt2", "elmo", "lstm"])
def test_a_text_longer_than_a_window_equals_embed(family: str) -> None:
    model = tiny_model(family)
    window = model.bundle.config.window
    assert window is None or len(LONG) > 2 * window
    assert_equal_to_embed(WordEncoder(model), model, [TEXTS[0], LONG, TEXTS[1]], layer="mix")


def test_the_ends_of_a_two_way_encoder() -> None:
    model = tiny_model("elmo")
    assert_equal_to_embed(WordEncoder(model, pool="ends"), model, TEXTS, layer="mix", pool="ends")


def test_documents_are_read_as_they_are() -> None:
    model = tiny_model("bert")
    given = [make_document("Dawn broke, so did we.")]
    vectors, mask = WordEncoder(model, layer=-1)(given)
    assert bool(mask.all())
    np.testing.assert_allclose(vectors[0].numpy(), model.embed(given)[0].vectors, atol=1e-5)


def test_texts_without_words() -> None:
    model = tiny_model("elmo")
    for options, shape in (({}, (24,)), ({"layer": "all"}, (4, 24))):
        vectors, mask = WordEncoder(model, **options)([[], []])  # type: ignore[arg-type]
        assert (vectors.shape, mask.shape) == ((2, 0, *shape), (2, 0))
    vectors, mask = WordEncoder(model, n_mixes=2)([])
    assert (vectors.shape, mask.shape) == ((2, 0, 0, 24), (0, 0))


# --- the original's mix -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer_norm", ["off", "on"])
def test_the_mix_equals_the_original_s(layer_norm: str) -> None:
    golden = arrays("activations/scalar_mix")
    encoder = WordEncoder(Model(golden_bundle("allennlp")), layer_norm=layer_norm == "on", n_mixes=2)
    set_mix(encoder, 1, [0.3, -0.7, 1.1], 1.7)
    (plain, mixed), mask = encoder(content("activations/batches")["batches"][0])
    kept = golden[f"layer_norm_{layer_norm}.boundaries_removed.mask"].bool()
    expected = golden[f"layer_norm_{layer_norm}.boundaries_removed.representation"]
    assert torch.equal(mask, kept)
    assert float((mixed - expected)[mask].abs().max()) < WITHIN
    assert float((plain - expected)[mask].abs().max()) > 0.1


def set_mix(encoder: WordEncoder, number: int, weights: list[float], gamma: float) -> None:
    mix = encoder.mixes[number]
    assert isinstance(mix, ScalarMix)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(weights))
        mix.gamma.fill_(gamma)


def test_unknown_words_are_said_once() -> None:
    encoder = WordEncoder(tiny_model("lstm"))
    with pytest.warns(PolysemeWarning, match=r"has no pieces for 1 word \(50\.0% of 2\),"):
        encoder([["the", "東"]])
    encoder([["the", "東"], ["京"]])


# --- gradients --------------------------------------------------------------------------------------------------------


def learning(encoder: WordEncoder) -> dict[str, Tensor]:
    return {name: each for name, each in encoder.named_parameters() if each.requires_grad}


def check_gradients(encoder: WordEncoder, texts: Sequence[Sequence[str]], *, fast: bool) -> None:
    learned = learning(encoder)

    def vectors(*values: Tensor) -> Tensor:
        given = dict(zip(learned, values, strict=True))
        found: Tensor = functional_call(encoder, given, (texts,)).vectors
        return found

    values = tuple(each.detach().clone().requires_grad_() for each in learned.values())
    assert torch.autograd.gradcheck(vectors, values, fast_mode=fast, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "gpt2", "lstm", "elmo"])
def test_gradients_of_everything_that_learns(family: str) -> None:
    encoder = WordEncoder(tiny_model(family), pool="mean", trainable=True, n_mixes=2).double().eval()
    set_mix(encoder, 0, [0.3, -0.7, 1.1, 0.2], 1.7)
    torch.manual_seed(3)
    check_gradients(encoder, TEXTS[:2], fast=True)


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer norm"])
def test_gradients_of_a_mix_over_a_frozen_encoder(layer_norm: bool) -> None:
    encoder = WordEncoder(tiny_model("bert"), pool="max", trainable="mix", layer_norm=layer_norm).double()
    assert list(learning(encoder)) == ["mixes.0.weights", "mixes.0.gamma"]
    check_gradients(encoder, TEXTS[:1], fast=False)


@pytest.mark.parametrize("layer", ["mix", "1", *(pytest.param(layer, marks=pytest.mark.slow) for layer in ("-1", "0"))])
@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_runs_learns(family: str, layer: str) -> None:
    """Neither a decoder, nor layers above those asked for, nor XLNet's second stream: processes wait for all."""
    model = tiny_model(family)
    if layer == "1" and model.bundle.config.depth == 0:
        with pytest.raises(OptionError, match="Layer '1' is not there"):
            WordEncoder(model, layer=layer, trainable=True)
        return
    encoder = WordEncoder(model, layer=layer, trainable=True)
    encoder(TEXTS[:2]).vectors.sum().backward()
    assert {name for name, each in encoder.named_parameters() if each.grad is not None} == learning(encoder).keys()
    assert any(name.startswith("bundle.encoder.") for name in learning(encoder))
    assert not any(name.startswith("bundle.decoder.") for name in learning(encoder))


def test_gradients_go_through_windows() -> None:
    """Every word of a long text reaches the table of pieces, and a word across two windows both of them."""
    encoder = WordEncoder(tiny_model("bert"), layer=-1, trainable=True).eval()
    vectors, mask = encoder([[*LONG[:20], "misunderstandings" * 4, *LONG]])
    vectors[mask].square().sum().backward()
    table = encoder.bundle.encoder.piece_table()
    assert table is not None
    assert table.grad is not None
    ids = encoder.tokenizer.encode(make_document(["burglar", "misunderstandings"])).ids
    assert bool(table.grad[torch.from_numpy(ids)].abs().sum(dim=1).gt(0).all())


def test_embedding_before_does_not_stand_in_the_way_of_gradients() -> None:
    """What inference has prepared for itself cannot be trained with."""
    for family in FAMILIES:
        model = tiny_model(family)
        model.embed(TEXTS)
        encoder = WordEncoder(model, trainable=True)
        with torch.inference_mode():
            encoder(TEXTS)
        encoder(TEXTS).vectors.sum().backward()
        assert all(each.grad is not None for each in encoder.mixes.parameters())


# --- training ---------------------------------------------------------------------------------------------------------


TAGGED = [
    (["Dawn", "broke", ".", "The", "vase", "broke", "."], [0, 1, 2, 0, 0, 1, 2]),
    (["They", "throw", "a", "party", ";", "they", "dance", "!"], [0, 1, 0, 0, 2, 0, 1, 2]),
    (["A", "crane", "caught", "a", "fish", "."], [0, 0, 1, 0, 0, 2]),
]


def train(encoder: WordEncoder, *, steps: int = 30, rate: float = 0.01) -> tuple[float, float]:
    """A tagger in a plain loop: the first loss and the last."""
    torch.manual_seed(5)
    head = nn.Linear(encoder.width, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=rate)
    gold = torch.tensor(list(itertools.chain.from_iterable(tags for _, tags in TAGGED)))
    losses = []
    encoder.train()
    for _ in range(steps):
        vectors, mask = encoder([words for words, _ in TAGGED])
        loss = F.cross_entropy(head(vectors[mask]), gold) + 0.001 * encoder.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses[0], losses[-1]


@pytest.mark.parametrize(
    ("family", "trainable"),
    [
        ("bert", True),
        ("elmo", "mix"),
        pytest.param("bert", "mix", marks=pytest.mark.slow),
        pytest.param("elmo", True, marks=pytest.mark.slow),
    ],
)
def test_a_plain_loop_trains_what_is_asked_for(family: str, trainable: Any) -> None:
    model = tiny_model(family) if family == "bert" else Model(golden_bundle("allennlp"))
    before = {name: each.clone() for name, each in model.bundle.named_parameters()}
    encoder = WordEncoder(model, trainable=trainable, dropout=0.1)
    first, last = train(encoder, steps=60, rate=0.01 if trainable is True else 0.05)
    assert last < 0.5 * first
    for name, each in model.bundle.named_parameters():
        assert torch.equal(each, before[name]), "the model that was given has changed"
        assert each.requires_grad
    changed = {
        name
        for name, each in encoder.bundle.encoder.named_parameters()
        if not torch.equal(each, before[f"encoder.{name}"])
    }
    assert bool(changed) == (trainable is True)
    weights = encoder.mixes[0].weights
    assert isinstance(weights, Tensor)
    assert float(weights.detach().abs().max()) > 0.01


def test_what_was_learnt_is_saved_with_the_model(tmp_path: Path) -> None:
    encoder = WordEncoder(tiny_model("elmo"), trainable=True)
    train(encoder, steps=3)
    encoder.to_model().save(tmp_path / "tuned")
    loaded = WordEncoder(tmp_path / "tuned")
    loaded.load_state_dict({name: each for name, each in encoder.state_dict().items() if name.startswith("mixes.")})
    torch.testing.assert_close(loaded(TEXTS).vectors, encoder.eval()(TEXTS).vectors.detach())
    np.testing.assert_allclose(
        encoder.to_model().embed(TEXTS[:1], layer=-1)[0].vectors,
        WordEncoder(tmp_path / "tuned", layer=-1)(TEXTS[:1]).vectors[0].numpy(),
        atol=1e-5,
    )


@pytest.mark.parametrize("family", ["bert", "gpt2", "lstm", "elmo"])
def test_a_model_made_in_the_midst_of_training_is_ready_for_use(family: str) -> None:
    encoder = WordEncoder(tiny_model(family, dropout_rate=0.5), layer=-1, trainable=True)
    model = encoder.to_model()
    assert encoder.bundle.encoder.training
    assert_equal_to_embed(encoder, model, TEXTS, layer=-1)
    before = model.embed(TEXTS[:1])[0].vectors
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1)
    np.testing.assert_array_equal(model.embed(TEXTS[:1])[0].vectors, before)


def test_a_frozen_encoder_has_no_dropout_and_no_gradients() -> None:
    model = tiny_model("bert", dropout_rate=0.5)
    encoder = WordEncoder(model, trainable="mix").train()
    assert encoder.training
    one, other = encoder(TEXTS).vectors, encoder(TEXTS).vectors
    assert torch.equal(one, other)
    one.sum().backward()
    assert all(each.grad is None for each in encoder.bundle.parameters())
    assert not WordEncoder(model)(TEXTS).vectors.requires_grad
    tuned = WordEncoder(model, trainable=True)
    assert not torch.equal(tuned(TEXTS).vectors, tuned(TEXTS).vectors)
    assert torch.equal(tuned.eval()(TEXTS).vectors, tuned(TEXTS).vectors)


def test_each_mix_has_its_own_weights_and_its_own_dropout() -> None:
    encoder = WordEncoder(tiny_model("elmo"), trainable="mix", n_mixes=2, dropout=0.5)
    (low, high), mask = encoder(TEXTS)
    assert low.shape == high.shape == (*mask.shape, encoder.width)
    assert not torch.equal(low, high)
    encoder.eval()
    (low, high), _ = encoder(TEXTS)
    assert torch.equal(low, high)
    low.sum().backward()
    assert [each.grad is not None and bool(each.grad.any()) for each in encoder.mixes[1].parameters()] == [False] * 2
    assert float(encoder.penalty().detach()) == 0.0
    set_mix(encoder, 1, [1.0, -2.0, 0.0, 1.0], 1.0)
    assert float(encoder.penalty().detach()) == 6.0


# --- state ------------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """As somebody's own network holds it."""

    def __init__(self, encoder: WordEncoder) -> None:
        super().__init__()
        self.words = encoder
        self.head = nn.Linear(encoder.width, 3)


def copied_state(module: nn.Module) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    state: dict[str, Tensor] = torch.load(file, weights_only=True)
    return state


def test_the_state_of_a_frozen_encoder_is_its_mixes() -> None:
    model = tiny_model("elmo")
    tagger = Tagger(WordEncoder(model, trainable="mix"))
    set_mix(tagger.words, 0, [0.5, 0.1, -0.3, 0.2], 1.3)
    state = copied_state(tagger)
    assert set(state) == {"words.mixes.0.weights", "words.mixes.0.gamma", "head.weight", "head.bias"}
    other = Tagger(WordEncoder(model, trainable="mix"))
    other.load_state_dict(state)
    assert torch.equal(other.words(TEXTS).vectors, tagger.words(TEXTS).vectors)
    del state["words.mixes.0.gamma"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"words.mixes.0.gamma\""):
        other.load_state_dict(state)


@pytest.mark.parametrize("family", ["gpt2", "elmo"])
def test_the_state_of_a_trained_encoder_has_its_weights(family: str) -> None:
    model = tiny_model(family)
    tagger = Tagger(WordEncoder(model, trainable=True))
    with torch.no_grad():
        for parameter in tagger.parameters():
            parameter.add_(0.01)
    state = copied_state(tagger)
    n_words = sum(name.startswith("words.bundle.encoder.") for name in state)
    assert n_words == len(tagger.words.bundle.encoder.state_dict())
    other = Tagger(WordEncoder(model, trainable=True))
    other.load_state_dict(state)
    assert torch.equal(other.eval().words(TEXTS).vectors, tagger.eval().words(TEXTS).vectors)
    del state[next(name for name in state if name.startswith("words.bundle.encoder."))]
    with pytest.raises(RuntimeError, match=r"Missing key"):
        other.load_state_dict(state)


def test_it_moves_as_a_module_moves() -> None:
    encoder = WordEncoder(tiny_model("elmo"), trainable="mix").to(torch.float64)
    assert {each.dtype for each in encoder.parameters()} == {torch.float64}
    assert encoder(TEXTS).vectors.dtype == torch.float64
    assert {each.device.type for each in encoder.to("meta").parameters()} == {"meta"}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trainable": "encoder"}, "False, True or 'mix'. Got 'encoder'"),
        ({"trainable": "mix", "layer": -1}, "layer -1 has none. Take layer 'mix'"),
        ({"n_mixes": 0}, "from 1 on. Got 0"),
        ({"n_mixes": 2, "layer": 0}, "layer 0 is none. Take layer 'mix'"),
        ({"layer_norm": True, "layer": "sum:0:1"}, "layer 'sum:0:1' is none"),
        ({"dropout": 1.0}, "below 1. Got 1.0"),
        ({"layer": "mix:last2:0.5"}, "mixes 2 layers and gives 1"),
        ({"pool": "ends"}, "not two-way"),
        ({"pool": "men"}, "Did you mean 'mean'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        WordEncoder(tiny_model("bert"), **options)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["Dawn", "broke"], "Text 0 must be a list of words. Got the string 'Dawn'"),
        ("Dawn broke", "Text 0 must be a list of words"),
        (7, "lists of words. Got a int"),
        ([["Dawn"], ["broke", ""]], "Text 1: .*[Ww]ord"),
        ([["Dawn"], ["broke", " "]], "Text 1: .*[Ww]ord"),
    ],
)
def test_what_is_no_list_of_words(texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        WordEncoder(tiny_model("elmo"))(texts)


def test_a_mix_of_layers_of_several_widths_is_refused() -> None:
    with pytest.raises(OptionError, match="layers of one width"):
        WordEncoder(tiny_model("lstm", token_width=12, top_width=12))


def test_words_over_the_length_and_words_that_vanish_are_said() -> None:
    encoder = WordEncoder(tiny_model("elmo"))
    with pytest.warns(PolysemeWarning, match="Of words longer than 48 bytes") as said:
        encoder([["x" * 60, "y" * 70], ["z" * 80]])
    assert len(said) == 1
    encoder([["x" * 60]])
    with pytest.warns(PolysemeWarning, match="makes nothing of 1 word"):
        WordEncoder(tiny_model("bert"))([["Dawn", "\u200b"]])


def test_a_mix_without_penalty() -> None:
    with pytest.raises(OptionError, match="has no mix"):
        WordEncoder(tiny_model("bert"), layer=-1).penalty()

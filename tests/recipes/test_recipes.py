"""Recipes: the published sizes, settings and budgets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from polyseme.objectives.bilm import BiLM
from polyseme.objectives.denoising import Denoising
from polyseme.objectives.objective_table import objective_from
from polyseme.objectives.permuted import Permuted
from polyseme.objectives.spans import Spans
from polyseme.objectives.target_selection import span_lengths
from polyseme.recipes.pretraining_request import PretrainingRequest
from polyseme.recipes.published_sizes import SIZES
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training.budget import parse_budget
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verbs.recipes import list_recipes

RECURRENT = [name for name, recipe in RECIPES.items() if recipe.family in ("lstm", "elmo")]


@pytest.mark.parametrize("name", ["elmo-small", "elmo-medium", "elmo-original"])
def test_elmo_s_sizes_are_those_of_the_releases(name: str) -> None:
    """Encoder as released; the softmax of 793,471 words, which the releases lack, beside it."""
    sizes = {"elmo-small": 13_593_296, "elmo-medium": 28_027_728, "elmo-original": 93_600_848}
    recipe = RECIPES[name]
    config = recipe.config(recipe.vocabulary)
    assert recipe.n_parameters == sizes[name] + 793_471 * (config.width + 1)
    assert (config.cell_clip, config.projection_clip, config.dropout_rate) == (3, 3, 0.1)


def test_elmo_is_trained_as_published() -> None:
    """Adagrad at 0.2, ten epochs of rows of 20 words, 8192 samples; in their units a norm of 10 and sums from 1."""
    recipe = RECIPES["elmo-original"]
    training = recipe.training
    assert (training.optimizer.kind, training.optimizer.lr) == ("adagrad", 0.2)
    assert training.max_grad_norm is not None
    assert (20 * training.max_grad_norm, 20**2 * training.optimizer.initial_sum) == (10, 1)
    assert {training.schedule.factor(step, 1000) for step in (0, 500, 999)} == {1.0}
    assert objective_from(recipe.objective, recipe.objective_settings) == BiLM(softmax="sampled", n_samples=8192)
    assert recipe.published_pieces == pytest.approx(10 * 768_648_884, rel=1e-4)


def test_the_softmax_has_no_more_words_than_the_corpus() -> None:
    recipe = RECIPES["elmo-small"]
    assert recipe.config(5000).n_outputs == 5000
    assert recipe.config(5000, {"n_outputs": 800}).n_outputs == 800
    assert recipe.config(5000).n_pieces == 262
    assert RECIPES["lstm-lm"].config(5000).n_pieces == 5056


@pytest.mark.parametrize("name", RECURRENT)
def test_they_can_be_saved_and_have_no_window(name: str) -> None:
    recipe = RECIPES[name]
    config = recipe.config(1000)
    family = FAMILIES[recipe.family]
    assert family.read_config(family.write_config(config), "config") == config
    assert config.window is None
    with pytest.raises(OptionError, match="no setting 'n_heads'"):
        recipe.config(1000, {"n_heads": 2})


@pytest.mark.parametrize("given", ["50,200", " 50, 200", [50, 200], (50, 200)], ids=str)
def test_a_list_may_be_written_with_commas(given: Any) -> None:
    assert RECIPES["lstm-tiny"].config(1000, {"output_cutoffs": given}).output_cutoffs == (50, 200)
    assert RECIPES["transformer-xl-tiny"].config(1000, {"cutoffs": given}).cutoffs == (50, 200)


def test_one_value_is_a_list_of_one() -> None:
    assert RECIPES["elmo-tiny"].config(1000, {"output_cutoffs": 50}).output_cutoffs == (50,)


@pytest.mark.parametrize("given", ["many", "50,", "50;200", ""])
def test_what_is_no_list_is_refused(given: str) -> None:
    with pytest.raises(OptionError, match=r"'output_cutoffs' is a list of whole numbers, as in output_cutoffs=50,200"):
        RECIPES["lstm-tiny"].config(1000, {"output_cutoffs": given})


def test_the_cards_say_what_they_are() -> None:
    cards = {card.name: card for card in list_recipes()}
    assert set(RECURRENT) <= cards.keys()
    assert (cards["lstm-lm"].layers, cards["lstm-lm"].width, cards["lstm-lm"].objective) == (2, 650, "streams")
    # 33,280 · 650 of the table, which is the output's too, and twice 4 · 650 · (650 + 650 + 1)
    assert cards["lstm-lm"].parameters == 33_280 * 650 + 2 * 4 * 650 * 1301
    assert (cards["elmo-original"].width, cards["elmo-original"].objective) == (1024, "bilm")


def test_the_first_neural_language_model_has_the_paper_s_parameters() -> None:
    """With direct connections |V| (1 + nm + h) + h (1 + (n - 1) m); without them |V| (n - 1) m less."""
    recipe = RECIPES["nnlm-2003"]
    v, n, m, h = 16_384, 5, 30, 100
    with_direct = v * (1 + n * m + h) + h * (1 + (n - 1) * m)
    assert recipe.n_parameters == with_direct - v * (n - 1) * m
    direct = recipe.but("direct", shape={"direct": True})
    assert direct.n_parameters == with_direct
    assert (recipe.training.optimizer.kind, recipe.training.optimizer.weight_decay) == ("sgd", 1e-4)
    tied = RECIPES["nnlm"]
    assert tied.n_parameters == 33_280 * 385 + 384 * (1 + 4 * 384)


def test_a_softmax_is_sampled_on_a_cpu_only() -> None:
    for device, softmax in (("cpu", "sampled"), ("cuda", "full")):
        request = PretrainingRequest(
            recipe=RECIPES["nnlm"], budget=parse_budget("10steps"), device=device, start=None, shape={}, objective={},
            options=PretrainOptions().values(), reporting={},
        )  # fmt: skip
        assert request.plan(1000, None).objective["softmax"] == softmax


# --- static vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rate", "width", "settings"),
    [
        ("skip-gram", 0.025, 100, {"window": 5, "negatives": 5, "power": 0.75, "subsample": 1e-3}),
        ("cbow", 0.05, 100, {"window": 5, "negatives": 5, "power": 0.75, "subsample": 1e-3}),
        ("fasttext", 0.05, 100, {"window": 5, "negatives": 5, "power": 0.5, "subsample": 1e-4}),
        ("glove", 0.05, 50, {"window": 15, "x_max": 100.0, "alpha": 0.75}),
    ],
)
def test_static_vectors_are_trained_as_the_programs_do(
    name: str, rate: float, width: int, settings: dict[str, Any]
) -> None:
    recipe = RECIPES[name]
    objective = objective_from(recipe.objective, recipe.objective_settings).to_json()
    assert {each: objective[each] for each in settings} == settings
    assert (recipe.training.optimizer.lr, recipe.training.summed, recipe.min_count) == (rate, True, 5)
    config = recipe.config(1000)
    bound = (1.0 if name == "fasttext" else 0.5) / width
    assert (config.width, config.n_words, config.init_bound) == (width, 1000, bound)
    spelled = (3, 6, 2_000_000) if name == "fasttext" else (0, 0, 0)
    assert (config.min_ngram, config.max_ngram, config.n_buckets) == spelled
    assert config.n_pieces == 1000 + config.n_buckets + 1
    if name != "glove":
        factors = [recipe.training.schedule.factor(step, 100) for step in (0, 50, 100)]
        assert factors == pytest.approx([1.0, 0.5, 1e-4], abs=1e-3)


# --- the other Transformers ------------------------------------------------------------------------------------------

SIZED = {
    "albert-base": "albert-base",
    "albert-large": "albert-large",
    "albert-xlarge": "albert-xlarge",
    "albert-xxlarge": "albert-xxlarge",
    "gpt-2018": "gpt",
    "xlnet-base": "xlnet-base",
    "xlnet-large": "xlnet-large",
    "bart-base": "bart-base",
    "bart-large": "bart-large",
    "t5-small": "t5-small",
    "t5-base": "t5-base",
}
OTHERS = [
    name
    for name, recipe in RECIPES.items()
    if recipe.family in ("albert", "transformer", "transfo-xl", "xlnet", "bart", "t5")
]


@pytest.mark.parametrize("name", SIZED)
def test_their_shapes_are_the_published_ones(name: str) -> None:
    recipe = RECIPES[name]
    size = SIZES[SIZED[name]]
    assert recipe.config(size.vocabulary).replace(n_pieces=size.vocabulary) == size.config


def test_transformer_xl_is_the_standard_one() -> None:
    """The paper's 151M; biases a layer, and trained with a memory as long as a row."""
    recipe = RECIPES["transformer-xl"]
    assert recipe.n_parameters == pytest.approx(151e6, rel=0.01)
    [phase] = recipe.training.phases
    config = recipe.config(recipe.vocabulary)
    assert (phase.length, phase.batch_size, config.memory_length) == (150, 60, 150)
    assert recipe.config(3000).cutoffs == ()
    assert recipe.config(30_000).cutoffs == (20_000,)


def test_they_are_trained_as_published() -> None:
    """The Transformer's rate is d^-1/2 times min(step^-1/2, step · warmup^-3/2); a step has 25,000 pieces a side."""
    for name, width in (("transformer-base", 512), ("transformer-big", 1024)):
        training = RECIPES[name].training
        for step in (100, 3999, 20_000):
            expected = width**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)
            assert training.optimizer.lr * training.schedule.factor(step, 100_000) == pytest.approx(expected)
        assert training.phases[0].pieces == pytest.approx(25_000, rel=0.01)
    assert RECIPES["t5-base"].published_pieces == 2**19 * 2**16
    assert objective_from("spans", RECIPES["t5-base"].objective_settings) == Spans(
        corruption_rate=0.15, mean_length=3.0
    )
    assert objective_from("permuted", RECIPES["xlnet-large"].objective_settings) == Permuted(one_in=6)
    assert objective_from("denoising", RECIPES["bart-large"].objective_settings) == Denoising(infill_rate=0.3)
    assert RECIPES["xlnet-large"].training.phases[0].batch_size == 8192


def test_albert_shares_one_set_of_weights_and_masks_spans_of_up_to_three_words() -> None:
    for name in ("albert-small", "albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"):
        recipe = RECIPES[name]
        for shape in ({}, {"n_layers": 5}):
            config = recipe.config(recipe.vocabulary, shape)
            assert set(config.weight_sets) == {0}
            assert len(config.weight_sets) == config.depth
    base = RECIPES["albert-base"]
    [phase] = base.training.phases
    assert (phase.batch_size, phase.length, base.published_steps) == (4096, 512, 125_000)
    spans = objective_from("masked", base.objective_settings)
    assert (spans.unit, spans.longest_span) == ("span", 3)
    lengths = span_lengths(np.linspace(0, 1, 10_000, endpoint=False), shape=spans.span_shape, longest=3)
    assert lengths.mean() == pytest.approx(sum(n / n for n in (1, 2, 3)) / (1 + 1 / 2 + 1 / 3), rel=0.01)


def test_gpt_is_trained_as_in_2018() -> None:
    """0.96 petaflop/s-days, as its authors computed it, are 100 epochs of some 1.2 billion pieces."""
    recipe = RECIPES["gpt-2018"]
    [phase] = recipe.training.phases
    assert (phase.batch_size, phase.length, recipe.training.optimizer.lr) == (64, 512, 2.5e-4)
    assert (recipe.training.schedule.kind, recipe.training.schedule.warmup) == ("cosine", 2000)
    assert recipe.config(recipe.vocabulary).norm == "after"
    assert recipe.n_parameters == pytest.approx(117e6, rel=0.01)
    assert recipe.published_flops == pytest.approx(0.96e15 * 86_400, rel=0.25)


@pytest.mark.parametrize("name", OTHERS)
def test_they_can_be_saved_in_any_width(name: str) -> None:
    recipe = RECIPES[name]
    family = FAMILIES[recipe.family]
    for shape in ({}, {"width": 2 * recipe.shape["width"]}):
        config = recipe.config(1000, shape)
        assert family.read_config(family.write_config(config), "config") == config

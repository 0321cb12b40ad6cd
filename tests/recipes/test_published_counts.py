"""Our counts beside the published ones: what the explanations say of them holds."""

from __future__ import annotations

import pytest

from polyseme.papers import figures_of, read_table
from polyseme.recipes.published_counts import WHY_RATIOS, reported_flops, with_counts
from polyseme.recipes.published_runs import RUNS, SYSTEMS, counted_flops, electra_flops
from polyseme.recipes.published_sizes import SIZES
from polyseme.recipes.recipe_table import RECIPES

ELECTRA = "Clark et al. 2020, ELECTRA"


@pytest.mark.parametrize(
    "system", ["ELMo", "BERT-base", "BERT-large", "RoBERTa-100K", "RoBERTa-large", "ALBERT-xxlarge"]
)
def test_counted_as_electras_authors_do_our_flops_are_theirs(system: str) -> None:
    theirs = next(
        each.value
        for each in figures_of("cost")
        if (each.system, each.metric, each.paper) == (system, "flops", ELECTRA)
    )
    assert electra_flops(system) == pytest.approx(theirs, rel=0.035)  # they print two digits


def test_ratios_are_as_the_explanation_says() -> None:
    table = with_counts(read_table("ratios"))
    of = {(each.system, each.metric): each.value for each in table.figures}
    large, roberta, albert = "BERT-large / ELMo", "RoBERTa-large / BERT-large", "ALBERT-xxlarge / RoBERTa-large"
    said = {large: 16, roberta: 52, albert: 11}
    for system, ratio in said.items():
        assert round(of[system, "ratio, counted"]) == ratio
        assert str(ratio) in WHY_RATIOS
        stated, as_theirs = of[system, "ratio, lecture"], of[system, "ratio, counted as ELECTRA's authors do"]
        assert as_theirs == pytest.approx(stated, rel=0.08)
    assert of["GPT-3 175B / PF-day", "ratio, published"] == pytest.approx(3640, rel=0.005)
    assert of["GPT-3 175B / PF-day", "ratio, counted"] == pytest.approx(3640, rel=0.05)
    assert all(each.counted for each in table.figures if "counted" in each.metric)


def test_rows_of_128_are_why_berts_compute_is_a_third() -> None:
    assert electra_flops("BERT-large") * 3 / 2 / counted_flops("BERT-large") == pytest.approx(3.4, abs=0.2)


def test_a_published_run_is_the_recipe_of_its_system() -> None:
    assert all(RUNS[system] is RECIPES[name] for name, system in SYSTEMS.items())
    assert {"bert-base", "bert-large", "roberta-large", "elmo-original"} <= set(SYSTEMS)
    assert reported_flops("BERT-large")[0].startswith("1.9e20 (Clark et al. 2020, ELECTRA")
    assert reported_flops("") == ()


def test_every_recipe_of_the_tree_exists() -> None:
    known = read_table("family-tree").systems.values()
    assert {each["recipe"] for each in known if "recipe" in each} <= {*RECIPES, "kneser-ney"}


def test_sizes_are_those_of_the_table() -> None:
    figures = {(each.system, each.metric): each.value for each in figures_of("sizes")}
    assert len(SIZES) == 39
    assert all(figures[name, "parameters"] == size.parameters for name, size in SIZES.items())
    assert figures["bert-large", "layers"] == SIZES["bert-large"].config.n_layers == 24

"""The published figures: each names its paper, and by tasks and metrics that there are."""

from __future__ import annotations

import pytest

from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.errors import OptionError
from polyseme.metrics.task_metrics import METRICS
from polyseme.papers import MARK, benchmark_figures, figures_of, list_tables, mean_of_tasks, read_table, table_names
from polyseme.papers.figures import tables

FIVE = (("cola", "matthews"), ("sst2", "accuracy"), ("mrpc", "f1"), ("stsb", "spearman"), ("rte", "accuracy"))
KINDS = {"paper", "readme", "lecture", "page"}
ELSEWHERE = {"glue", "coref", "race", "regents-8"}
"""Tasks of compared tables that are no benchmark here."""


def test_every_figure_names_its_source() -> None:
    for name in table_names():
        for figure in figures_of(name):
            assert figure.paper, figure
            assert figure.system, figure
            assert figure.value == figure.value, figure
            assert not figure.checked or figure.checked.partition(":")[0] in KINDS, figure
            assert 1990 < figure.year < 2030, figure


def test_no_source_says_a_figure_twice() -> None:
    figures = [figure for name in table_names() for figure in figures_of(name)]
    keys = [(f.table, f.system, f.task, f.metric, f.split, f.source, f.checked) for f in figures]
    assert len(set(keys)) == len(keys)


def test_what_results_are_compared_with_is_of_known_tasks_and_metrics() -> None:
    compared = [table for table in tables().values() if table.for_benchmarks]
    figures = [figure for table in compared for figure in table.figures]
    assert {figure.task for figure in figures} <= {*BENCHMARKS, *ELSEWHERE}
    assert {figure.metric for figure in figures} <= {*METRICS, "average"}
    assert {figure.split for figure in figures} == {"dev", "test", "test_mismatched"}
    assert all(0 < figure.value < 100 for figure in figures)


@pytest.mark.parametrize(("system", "mean"), [("ELMo", 68.3), ("GPT", 71.0), ("BERT-base", 77.3)])
def test_the_means_over_five_tasks(system: str, mean: float) -> None:
    found = mean_of_tasks(system, FIVE)
    assert found is not None
    assert round(found, 1) == mean
    assert mean_of_tasks(system, FIVE, split="dev") is None


def test_figures_beside_a_result_are_of_whole_systems_and_one_split() -> None:
    of_test = {figure.system: figure.value for figure in benchmark_figures("sst2", "accuracy", split="test")}
    assert of_test["ELMo"] == 90.4
    assert of_test["BERT-base"] == 93.5
    assert "no next sentence" not in of_test  # of an ablation
    both = benchmark_figures("sst2", "accuracy")
    assert {figure.split for figure in both} == {"dev", "test"}
    assert both[0].source == "Devlin et al. 2019, Table 1"


def test_sources_that_disagree_both_stand() -> None:
    big = next(row for part in read_table("wmt").parts() for row in part.rows if row[0] == "Transformer big")
    assert "41.8 / 41.0" in big
    large = [each for each in figures_of("glue") if (each.system, each.metric) == ("BERT-large", "average")]
    assert {each.value for each in large if each.split == "test"} == {81.9, 82.1}
    xlm_r = next(row for part in read_table("sizes").parts() for row in part.rows if row[0] == "xlm-r-base")
    assert "250M / 270M?" in xlm_r
    qnli = [each for each in figures_of("glue") if (each.system, each.task, each.split) == ("GPT", "qnli", "test")]
    assert {each.value for each in qnli} == {87.4, 88.1}


def test_figures_from_memory_have_a_mark() -> None:
    table = read_table("frozen-tuned").only("BERT-base")
    assert table.n_checked == 0
    assert all(cell.endswith(MARK) for part in table.parts() for row in part.rows for cell in row[1:] if cell)
    assert any("from memory" in line for line in table.lines())
    checked = read_table("electra-ablations")
    assert not any(MARK in cell for part in checked.parts() for row in part.rows for cell in row)


def test_systems_are_chosen_by_a_part_of_their_names() -> None:
    table = read_table("glue")
    assert {figure.system for figure in table.only("elmo").figures} == {"ELMo"}
    assert {figure.system for figure in table.only(["gpt", "ELMo"]).figures} == {"ELMo", "GPT", "before GPT"}
    with pytest.raises(OptionError, match=r"no system 'BERX'.*BERT"):
        table.only("BERX")


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"no published table 'gleu'.*glue"):
        read_table("gleu")


def test_the_list_has_every_table_in_one_line() -> None:
    found = list_tables()
    assert [each.name for each in found] == list(table_names())
    assert [row[0] for row in found.table().rows] == list(table_names())


def test_the_tree_has_no_unknown_parents() -> None:
    tree = tables()["family-tree"]
    assert all(parent in tree.systems for known in tree.systems.values() for parent in known["from"])
    assert {figure.system for figure in tree.figures} == set(tree.systems)

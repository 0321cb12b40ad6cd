"""Counts of polyseme beside the published figures: parameters and FLOPs, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator

from polyseme.papers import Figure, PublishedTable, figures_of
from polyseme.papers.published_table import number_text
from polyseme.recipes.published_runs import PF_DAY, RUNS, counted_flops, electra_flops
from polyseme.recipes.published_sizes import counted_parameters

WHY_FLOPS = (
    "Counted: the rows of each phase as long as they are, two operations for a multiply-add, the backward pass as two "
    "forward passes, attention included. ELECTRA's authors take all rows as long as the longest (BERT: 512, though "
    "90% of its steps have rows of 128), the backward pass as one forward pass, and looking a piece up as a product "
    "with the whole table; GPT-3's authors take 6 operations per parameter and piece, and 250 billion pieces for "
    "BERT, whose steps have 43 billion. Counted as by ELECTRA's authors, our figures are theirs for BERT, RoBERTa and "
    "ALBERT."
)
WHY_RATIOS = (
    "BERT-large over ELMo is 16 by our count and not 60, since BERT read rows of 128 in 90% of its steps: counted as "
    "if all were of 512, it did 3 times as much. RoBERTa over BERT is 52 and not 16 for the same reason. ALBERT over "
    "RoBERTa is 11 either way. GPT-3 is as its authors say, but for attention, which they leave out."
)
WHY_PARAMETERS = (
    "Counted: the bare model, as the reference library's class has it, without outputs of pretraining; papers round, "
    "and count what they trained. Of ELMo, without the softmax."
)


def with_counts(table: PublishedTable) -> PublishedTable:
    """The table with counts of polyseme."""
    if table.name == "sizes":
        counts = counted_parameters()
        figures = [
            _count(table, system, "parameters, counted", counts[system])
            for system in dict.fromkeys(figure.system for figure in table.figures)
            if system in counts
        ]
        return table.with_figures(figures, WHY_PARAMETERS)
    if table.name == "ratios":
        return table.with_figures(_ratios(table), WHY_RATIOS, WHY_FLOPS)
    systems = dict.fromkeys(figure.system for figure in table.figures)
    return table.with_figures(
        [
            figure
            for system in systems
            if system in RUNS
            for figure in (
                _count(table, system, "parameters, counted", RUNS[system].n_parameters),
                _count(table, system, "flops, counted", counted_flops(system)),
            )
        ],
        WHY_FLOPS,
        "Parameters are counted with the outputs that are trained; ELMo's softmax has 800,000 words.",
    )


def _ratios(table: PublishedTable) -> Iterator[Figure]:
    """The lectures' ratios by published FLOPs, by our count, and by a count under the rules of ELECTRA's authors."""
    published = {figure.system: figure.value for figure in reversed(figures_of("cost")) if figure.metric == "flops"}
    for system in dict.fromkeys(figure.system for figure in table.figures):
        first, second = system.split(" / ")
        unit = second == "PF-day"
        of_second = PF_DAY if unit else published[second]
        yield _count(table, system, "ratio, published", published[first] / of_second)
        of_second = PF_DAY if unit else counted_flops(second)
        yield _count(table, system, "ratio, counted", counted_flops(first) / of_second)
        if not unit:
            ratio = electra_flops(first) / electra_flops(second)
            yield _count(table, system, "ratio, counted as ELECTRA's authors do", ratio)


def _count(table: PublishedTable, system: str, metric: str, value: float) -> Figure:
    rounded = value if isinstance(value, int) else float(f"{value:.3g}")
    return Figure(
        table=table.name,
        system=system,
        task="",
        metric=metric,
        value=rounded,
        paper="polyseme",
        year=2026,
        venue="",
        checked="",
        counted=True,
    )


def reported_flops(system: str) -> tuple[str, ...]:
    """Published FLOPs of a run, with sources: `1.9e20 (Clark et al. 2020, ELECTRA, Tables 2 and 3)`."""
    figures = [each for each in figures_of("cost") if (each.system, each.metric) == (system, "flops")]
    return tuple(f"{number_text(each.value)} ({each.source})" for each in figures)

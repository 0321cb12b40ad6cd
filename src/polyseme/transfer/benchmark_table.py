"""A suite as one table: our figures beside the published ones, and never without saying of which split each is.

A task of two figures counts in the mean with its first: F1 of MRPC and QQP, Spearman of STS-B, as BERT's paper gives
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from polyseme.datasets.suites import SUITES, Suite, SuiteTask
from polyseme.metrics.evaluation_report import Report
from polyseme.papers import MARK, benchmark_figures, mean_of_tasks
from polyseme.plots.benchmark_page import benchmark_page
from polyseme.plots.charts import Bar
from polyseme.plots.html_page import framed_page
from polyseme.transfer.finetune_report import FinetuneReport, Summary

SAMPLE, DIFFERENT = "*", "†"
"""Behind the name of a task whose data is a sample of the published one's, or is other data."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The result of one task with one strategy."""

    task: str
    split: str
    figures: Mapping[str, Mapping[int, float]]
    """By metric, by seed; the first metric counts in the mean."""
    mode: str = ""
    """How the model was fitted: frozen, tuned; empty: it was not."""
    sampled: bool = False
    """Whether it was trained or scored on a sample of the published splits."""
    n_failed: int = 0
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, what a score may lie between, where no seeds say that."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    layer_shares: Mapping[str, float] = field(default_factory=dict)
    """Of a learned mix of layers, each one's share, mean over the seeds; empty: there is no mix."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """The whole report, as JSON."""
    seconds: float = 0.0
    kwh: float = 0.0

    @classmethod
    def of_fit(cls, report: FinetuneReport, *, prefers_test: bool = False) -> TaskResult:
        """Of a fine-tuning."""
        split = "test" if prefers_test and "test" in report.splits else "dev"
        of_seeds = {each.seed: each.dev if split == "dev" else each.others[split] for each in report.seeds}
        metrics = next(iter(of_seeds.values()))
        return cls(
            task=report.task,
            split=split,
            figures={metric: {seed: each[metric] for seed, each in of_seeds.items()} for metric in metrics},
            mode=report.mode,
            sampled=bool({"train", split} & set(report.sampled)),
            n_failed=report.n_failed,
            sizes=report.sizes,
            layer_shares=_mean_shares([each.mix["shares"] for each in report.seeds if each.mix is not None]),
            report=report.to_json(),
            seconds=report.ledger.seconds,
            kwh=report.ledger.kwh,
        )

    @classmethod
    def of_evaluation(cls, report: Report, group: str) -> TaskResult:
        """Of a group of an evaluation's report."""
        line = next(line for line in report.lines if line.name == group)
        name = next(iter(report.columns))
        low, high, value = line.figures.get("low"), line.figures.get("high"), line.figures[name] or 0.0
        return cls(
            task=group,
            split="test",
            figures={name: {0: value}},
            intervals={} if low is None or high is None else {name: (low, high)},
            sizes={"test": line.n},
            report=asdict(line),
        )

    @property
    def metric(self) -> str:
        """What counts."""
        return next(iter(self.figures))

    def summary(self, metric: str | None = None) -> Summary:
        """A metric over the seeds; where there are none, with the interval of the score."""
        metric = metric or self.metric
        summary = Summary.of(list(self.figures[metric].values()))
        low, high = self.intervals.get(metric, (summary.lowest, summary.highest))
        return Summary(median=summary.median, lowest=low, highest=high, spread=summary.spread)


@dataclass(frozen=True, kw_only=True, repr=False)
class BenchmarkReport:
    """A suite's results: of each task, one per strategy."""

    suite: str
    model: str
    results: Mapping[str, Mapping[str, TaskResult]]
    """By task, by the name of the strategy."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return framed_page(self.page())

    @property
    def definition(self) -> Suite:
        """The suite."""
        return SUITES[self.suite]

    @property
    def compares(self) -> bool:
        """Whether there are several strategies, compared with the first."""
        return len(self.definition.strategies) > 1

    def result(self, task: str, strategy: str | None = None) -> TaskResult:
        """The result of a task: in a strategy by its name, or in the last."""
        return self.results[task][self.definition.strategies[-1].name if strategy is None else strategy]

    # --- the mean -----------------------------------------------------------------------------------------------------

    @property
    def mean_tasks(self) -> tuple[str, ...]:
        """The tasks that the mean is over: those of the suite's that were run; none if that is only one."""
        tasks = tuple(task for task in self.definition.mean_over if task in self.results)
        return tasks if len(tasks) > 1 else ()

    def mean(self, strategy: str | None = None) -> float | None:
        """The mean of the medians; None where there is none."""
        tasks = self.mean_tasks
        return fmean(self.result(task, strategy).summary().median for task in tasks) if tasks else None

    def seed_means(self, strategy: str | None = None) -> Summary | None:
        """The mean as each seed has it, over the seeds that all tasks have; None of fewer than two.

        Seeds of different tasks share nothing but their number; what varies from seed to seed does so in the mean.
        """
        by_seed = [self.result(task, strategy).figures[self.result(task, strategy).metric] for task in self.mean_tasks]
        shared = [seed for seed in by_seed[0] if all(seed in figures for figures in by_seed)] if by_seed else []
        if len(shared) < 2 or any(self.result(task, strategy).intervals for task in self.mean_tasks):
            return None
        return Summary.of([fmean(figures[seed] for figures in by_seed) for seed in shared])

    def layer_shares(self) -> dict[str, Mapping[str, float]]:
        """By task, what each layer has in the mix that the last strategy learned; tasks without one are left out.

        Of ELMo's six tasks, this is the picture of layers against tasks (Peters et al. 2018, Figure 2).
        """
        by_task = {
            task.name: self.result(task.name).layer_shares
            for task in self.definition.tasks
            if task.name in self.results
        }
        return {task: shares for task, shares in by_task.items() if shares}

    # --- what is gained -----------------------------------------------------------------------------------------------

    def gain(self, task: str, strategy: str, metric: str) -> tuple[float, float | None, float | None]:
        """What a strategy gains over the first: the difference of medians, its spread over seeds (None: of one seed),
        and the share of the error that is gone (None: there was none).
        """
        first, other = self.result(task, self.definition.strategies[0].name), self.result(task, strategy)
        before, after = first.summary(metric).median, other.summary(metric).median
        seeds = [seed for seed in other.figures[metric] if seed in first.figures[metric]]
        differences = [other.figures[metric][seed] - first.figures[metric][seed] for seed in seeds]
        spread = Summary.of(differences).spread if len(differences) > 1 else None
        return after - before, spread, (after - before) / (1 - before) if before < 1 else None

    # --- the table ----------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """What the table's columns are called."""
        suite = self.definition
        theirs = tuple(f"{model} (test)" for model in suite.shown_models)
        if suite.evaluation:
            return ("task", "figure", "score", "low", "high", "items", *theirs)
        if not self.compares:
            mode = next(iter(self.results.values()))[suite.strategies[0].name].mode
            return ("task", "figure", f"{mode} (dev, median)", "lowest", "highest", "spread", "failed", *theirs)
        names = [strategy.name for strategy in suite.strategies]
        ours = [f"{name} {figure}" for name in names for figure in ("(median)", "spread", "failed")]
        gains = [f"{name}: {figure}" for name in names[1:] for figure in ("increase", "its spread", "error reduced by")]
        return ("task", "figure", "split", "train", *ours, *gains, *theirs)

    def rows(self) -> list[tuple[str, ...]]:
        """The table, in percent."""
        rows = []
        for task in self.definition.tasks:
            if task.name in self.results:
                metrics = self.result(task.name).figures
                rows += [self._row(task, metric) for metric in (list(metrics)[:1] if self.compares else metrics)]
        mean = self._mean_row()
        return [*rows, mean] if mean else rows

    def _row(self, task: SuiteTask, metric: str) -> tuple[str, ...]:
        suite, result = self.definition, self.result(task.name)
        mark = (SAMPLE if result.sampled else "") + (DIFFERENT if task.differs else "")
        theirs = [_published_cell(model, task, metric) for model in suite.shown_models]
        begin = (f"{task.name}{mark}", metric)
        summary = result.summary(metric)
        if suite.evaluation:
            figures = _percent(summary.median, summary.lowest, summary.highest)
            return (*begin, *figures, f"{result.sizes['test']:,}", *theirs)
        if not self.compares:
            figures = [*_percent(summary.median, summary.lowest, summary.highest), _spread(result, metric)]
            return (*begin, *figures, _failed_cell(result, metric), *theirs)
        ours = [
            cell
            for strategy in suite.strategies
            for each in [self.result(task.name, strategy.name)]
            for cell in (*_percent(each.summary(metric).median), _spread(each, metric), _failed_cell(each, metric))
        ]
        gains = [
            cell for strategy in suite.strategies[1:] for cell in _gain(*self.gain(task.name, strategy.name, metric))
        ]
        return (*begin, result.split, f"{result.sizes.get('train', 0):,}", *ours, *gains, *theirs)

    def _mean_row(self) -> tuple[str, ...] | None:
        suite, tasks = self.definition, self.mean_tasks
        if not tasks:
            return None
        means = {strategy.name: self.mean(strategy.name) or 0.0 for strategy in suite.strategies}
        named = [(task, self.result(task.name).metric) for task in suite.tasks if task.name in tasks]
        theirs = [_published_mean(model, named) for model in suite.shown_models]
        begin = ("mean of " + ", ".join(tasks), "")
        if suite.evaluation:
            items = sum(self.result(task).sizes["test"] for task in tasks)
            return (*begin, *_percent(means[""]), "", "", f"{items:,}", *theirs)
        ranged = {strategy.name: self.seed_means(strategy.name) for strategy in suite.strategies}
        if not self.compares:
            of_seeds = ranged[suite.strategies[0].name]
            spans = ["", "", ""]
            if of_seeds is not None:
                spans = _percent(of_seeds.lowest, of_seeds.highest, of_seeds.spread)
            return (*begin, *_percent(means[suite.strategies[0].name]), *spans, "", *theirs)
        ours: list[str] = []
        for strategy in suite.strategies:
            of_seeds = ranged[strategy.name]
            ours += [*_percent(means[strategy.name]), "" if of_seeds is None else f"{100 * of_seeds.spread:.1f}", ""]
        first = means[suite.strategies[0].name]
        gains = [
            cell
            for strategy in suite.strategies[1:]
            for cell in (
                f"{100 * (means[strategy.name] - first):+.1f}",
                "",
                _share((means[strategy.name] - first) / (1 - first)),
            )
        ]
        return (*begin, "", "", *ours, *gains, *theirs)

    def lines(self) -> list[str]:
        """What must be known to read the table."""
        suite = self.definition
        lines = [_reading_note(suite, self.compares), *([suite.description] if suite.description else [])]
        if any(self.seed_means(strategy.name) is not None for strategy in suite.strategies) and not self.compares:
            lines.append("The mean is of the medians; its range and spread are over the mean as each seed has it.")
        left_out = [task for task in suite.mean_over if task not in self.mean_tasks]
        if self.mean_tasks and left_out:
            lines.append(f"The mean is over what was run, without {', '.join(left_out)}; so are the published ones.")
        shown = [task for task in suite.tasks if task.name in self.results]
        if any(self.result(task.name).sampled for task in shown):
            lines.append(f"{SAMPLE} trained or scored on a sample of the published split.")
        lines += [f"{DIFFERENT} {task.name}: {task.differs}." for task in shown if task.differs]
        if any(MARK in cell for row in self.rows() for cell in row):
            lines.append(f"{MARK} published, but from memory: found in no source.")
        return [*lines, *self.notes]

    # --- what is written ----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The table, the mean, and the reports that it is made of."""
        strategies = self.definition.strategies
        return {
            "suite": self.suite,
            "model": self.model,
            "mean": self.mean(),
            "means": {strategy.name: self.mean(strategy.name) for strategy in strategies},
            "mean_over": list(self.mean_tasks),
            "seed_means": None if (means := self.seed_means()) is None else asdict(means),
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows()],
            "notes": self.lines(),
            "gains": self._gains(),
            "layer_shares": {task: dict(shares) for task, shares in self.layer_shares().items()},
            "reports": {
                f"{task}/{strategy}" if strategy else task: dict(result.report)
                for task, by_strategy in self.results.items()
                for strategy, result in by_strategy.items()
            },
        }

    def _gains(self) -> dict[str, Any]:
        """By task and strategy: what it gains over the first strategy."""
        gains: dict[str, Any] = {}
        for task, by_strategy in self.results.items():
            for strategy in self.definition.strategies[1:]:
                metric = by_strategy[strategy.name].metric
                increase, spread, reduction = self.gain(task, strategy.name, metric)
                of_task = {"metric": metric, "increase": increase, "spread": spread, "error_reduction": reduction}
                gains.setdefault(task, {})[strategy.name] = of_task
        return gains

    def markdown(self) -> str:
        """The table for a page."""
        lines = [list(self.columns), ["---"] * len(self.columns), *map(list, self.rows())]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n" + "\n".join(self.lines()) + "\n"

    def page(self) -> str:
        """A page with a picture and the table."""
        header, *rows = self._narrow_table()
        title = f"{self.definition.noun}: {self.model}"
        return benchmark_page(title, self._bars(), header, rows, self.lines(), layer_shares=self.layer_shares())

    def _narrow_table(self) -> list[list[str]]:
        """Columns and rows for a page: a spread is beside its figure, and columns that say nothing are left out."""
        table = [list(self.columns), *map(list, self.rows())]
        if self.mean_tasks:
            table[-1][0] = f"mean of {len(self.mean_tasks)} tasks"
        if not self.compares:
            return table
        spreads = [number for number, name in enumerate(self.columns) if name.endswith("spread")]
        several = any(row[number] for row in table[1:] for number in spreads)
        for row in table:
            for number in spreads:
                if several and row[number]:
                    row[number - 1] += "\u00a0± spread" if row is table[0] else f"\u00a0±\u00a0{row[number]}"
        failed = [number for number, name in enumerate(self.columns) if name.endswith("failed")]
        none_failed = [number for number in failed if all(row[number][:2] in ("", "0 ") for row in table[1:])]
        left_out = {*spreads, *none_failed}
        return [[cell for number, cell in enumerate(row) if number not in left_out] for row in table]

    def _bars(self) -> list[Bar]:
        bars = []
        for task in self.definition.tasks:
            if task.name not in self.results:
                continue
            metric = self.result(task.name).metric
            group = f"{task.name}, {metric}"
            for strategy, result in self.results[task.name].items():
                each = result.summary()
                low, high = (each.lowest, each.highest) if each.lowest < each.highest else (None, None)
                bars.append(Bar(strategy or result.mode or "score", max(each.median, 0.0), low, high, group))
            for model in self.definition.shown_models:
                figure = _figure(model, task, metric)
                if figure is not None:
                    bars.append(Bar(f"{model} (published, test)", figure.value / 100, group=group))
        return bars


def _mean_shares(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {layer: fmean(each[layer] for each in seeds) for layer in seeds[0]} if seeds else {}


def _reading_note(suite: Suite, compares: bool) -> str:
    if suite.evaluation:
        return "Scored as it is: nothing was fitted. Low and high are an interval of 95%."
    if not compares:
        return (
            "Ours are medians over seeds on dev, which also chose the weights; the published ones are on test: not the "
            "same thing. Spread is the standard deviation over seeds."
        )
    return (
        "Ours are medians over seeds, on the split that is named; dev also chose the weights. Spread is the standard "
        f"deviation over seeds; that of an increase is of each seed's difference from {suite.strategies[0].name}. The "
        "published ones are on test, after training on all of the published data."
    )


def _figure(model: str, task: SuiteTask, metric: str) -> Any:
    rows = benchmark_figures(*task.published(metric), split="test")
    return next((row for row in rows if row.system == model), None)


def _published_cell(model: str, task: SuiteTask, metric: str) -> str:
    figure = _figure(model, task, metric)
    return "" if figure is None else f"{figure.value:.1f}{'' if figure.checked else MARK}"


def _published_mean(model: str, tasks: Sequence[tuple[SuiteTask, str]]) -> str:
    """The mean of what is published of a model."""
    mean = mean_of_tasks(model, [task.published(metric) for task, metric in tasks])
    return "" if mean is None else f"{mean:.1f}"


def _percent(*values: float) -> list[str]:
    return [f"{100 * value:.1f}" for value in values]


def _spread(result: TaskResult, metric: str) -> str:
    """The spread over seeds; empty of one seed, which says nothing of it."""
    return f"{100 * result.summary(metric).spread:.1f}" if len(result.figures[metric]) > 1 else ""


def _failed_cell(result: TaskResult, metric: str) -> str:
    return f"{result.n_failed} of {len(result.figures[metric])}"


def _gain(increase: float, spread: float | None, reduction: float | None) -> list[str]:
    return [f"{100 * increase:+.1f}", "" if spread is None else f"{100 * spread:.1f}", _share(reduction)]


def _share(reduction: float | None) -> str:
    return "" if reduction is None else f"{100 * reduction:.0f}%"

"""`evaluate`: a model on a benchmark, or texts against their references.

`EVALUATIONS` is the one list of what language models can be evaluated on: a row is a reader, a scorer and a metric. A
new benchmark is a row, whose scorer loads the model if it needs one.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.api import folder_of, load
from polyseme.convert.hub import find_model
from polyseme.cost import Cost, sum_of
from polyseme.datasets import agreement, babylm, cloze, coreference, lambada, wikitext
from polyseme.datasets import minimal_pairs as blimp
from polyseme.datasets.benchmark import find_data
from polyseme.datasets.minimal_pairs import PairSet, limit_pairs, read_pairs
from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.errors import InputError, ModelError, OptionError, nearest
from polyseme.files.atomic import AnyPath
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.readers import ENDINGS
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.files.source import suffixes
from polyseme.files.source_paths import list_names
from polyseme.filling.cloze_ranks import check_among, cloze_answers
from polyseme.filling.filled_masks import MaskedText
from polyseme.filling.masked_words import check_word_hide
from polyseme.metrics import bleu
from polyseme.metrics import pair_accuracy as accuracy
from polyseme.metrics.cloze_accuracy import cloze_figures
from polyseme.metrics.evaluation_report import CurvePoint, Figures, Report
from polyseme.metrics.report_files import FORMATS
from polyseme.metrics.stream_perplexity import stream_figures
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.scoring.benchmark_items import score_last_words, score_pairs, score_streams
from polyseme.scoring.pseudo_likelihood import Hide, check_hide
from polyseme.scoring.scorer import Scorer
from polyseme.text.documents import make_document
from polyseme.training.models_at_words import ModelAtWords, kept_models
from polyseme.transfer.evaluate_task import evaluate_labeled, has_head
from polyseme.transfer.task_ensemble import model_names
from polyseme.verb_options.evaluation_options import EvaluateOptions
from polyseme.verb_options.task_options import TaskColumns
from polyseme.verbs.predict import load_predictor


class Answers(NamedTuple):
    """The scores of a benchmark's items, by whom, and at which cost."""

    values: Any
    """What the metric takes."""
    model: str
    method: str
    notes: Sequence[str] = ()
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A row of the table: a reader, a scorer and a metric."""

    files: Sequence[str]
    """Patterns of its files below the folder that a user names."""
    read: Callable[[Sequence[Path]], Any]
    """From files to items."""
    score: Callable[[Any, EvaluateOptions, float], Answers]
    """From items, options and the time of the start to answers."""
    measure: Callable[[Any, Any], Figures]
    """From items and the values of answers to figures."""
    find: Callable[[AnyPath | None, str, Sequence[str]], list[Path]] = find_data
    """From what a user names, the evaluation's name and its patterns to its files."""
    two_sides: bool = False
    """Whether texts are compared with references, without a model."""
    of_pairs: bool = False
    """Whether the items are sets of minimal pairs, of which a sample may be scored."""


@flat(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> Report:
    """Evaluate a model on a benchmark, or on your own minimal pairs or labels; or texts against their references.

    For a model that `finetune` has written, columns that are not named are those of training. With `curve`, `model` is
    a run of `pretrain` that kept models at numbers of words: the report is that of its last model, and its `curve` has
    the figures of each.
    """
    started = time.perf_counter()
    output, force = options.output, options.force
    model = folder_of(options.model)
    table = None if isinstance(options.name, str) else inputs_of(options.name)
    name = table if isinstance(table, InMemory) else str(options.name)
    check_hide(options.hide)
    check_result_output(output, FORMATS, force=force)
    if name != "cloze" and (options.among != "words" or options.max_pieces is not None):
        useless = "among" if options.among != "words" else "max_pieces"
        raise OptionError(f"The option {useless} is for cloze. Leave it out.")
    only_scored = isinstance(name, str) and name in EVALUATIONS and name not in BENCHMARKS
    folders = [] if model is None or only_scored else [find_model(each) for each in model_names(str(model))]
    if folders and (has_head(folders[0]) or len(folders) > 1):
        if options.curve or options.pairs is not None:
            useless = "curve" if options.curve else "pairs"
            raise OptionError(f"The option {useless} is for language models; {model} has a task's head. Leave it out.")
        report = evaluate_labeled(
            name,
            load_predictor(options.model or folders[0], options.device, options.dtype),
            folder=", ".join(map(str, folders)),
            data=options.data,
            columns=options.values(TaskColumns),
            progress=options.progress,
            started=started,
        )
    elif isinstance(name, InMemory):
        raise OptionError(f"What is evaluated on {name} is a model with a task's head. Name one with -m (model=…).")
    else:
        report = _evaluate_language_model(options, name, started)
    write_result(report, output, FORMATS, force=force)
    return report


def check_evaluation(options: EvaluateOptions) -> None:
    """Refuse an evaluation of a language model that does not exist, or whose data is not there."""
    check_hide(options.hide)
    chosen, _ = _choose_evaluation(str(options.name), options.data, options.source, list_names(options.reference), None)
    if EVALUATIONS[chosen].two_sides:
        raise OptionError(f"{chosen} compares texts with their references, and evaluates no model.")


def _evaluate_language_model(options: EvaluateOptions, name: str, started: float) -> Report:
    model = folder_of(options.model)
    chosen, files = _choose_evaluation(name, options.data, options.source, list_names(options.reference), model)
    evaluation = EVALUATIONS[chosen]
    if options.pairs is not None and not evaluation.of_pairs:
        raise OptionError(
            f"{name} has no minimal pairs of which to score some. Leave out --pairs (pairs={options.pairs})."
        )
    if options.curve and (evaluation.two_sides or options.model is None):
        raise OptionError(f"A curve is of a run: name its folder with -m (model=…). {name} alone has none.")
    models = kept_models(find_model(str(model))) if options.curve else []
    items = evaluation.read(files)
    if options.pairs is not None:
        items = limit_pairs(items, options.pairs)

    def report_on(options: EvaluateOptions, started: float) -> Report:
        answers = evaluation.score(items, options, started)
        figures = evaluation.measure(items, answers.values)
        return Report(
            **{each.name: getattr(figures, each.name) for each in dataclasses.fields(figures)},
            evaluation=chosen if chosen == name else Path(name).name,
            model=answers.model,
            method=answers.method,
            notes=answers.notes,
            cost=answers.cost,
        )

    return _curve(models, options, report_on) if options.curve else report_on(options, started)


def _curve(
    models: Sequence[ModelAtWords], options: EvaluateOptions, report_on: Callable[[EvaluateOptions, float], Report]
) -> Report:
    """The report of a run's last model, with the figures of each model that it kept."""
    progress = options.progress
    points: list[CurvePoint] = []
    costs: list[Cost] = []
    for number, (folder, seen) in enumerate(models):

        def of_all(done: int, total: int | None, number: int = number) -> None:
            if progress is not None:
                progress(number * (total or 0) + done, None if total is None else len(models) * total)

        report = report_on(dataclasses.replace(options, model=folder, progress=of_all), time.perf_counter())
        points.append(CurvePoint(**seen.to_json(), model=str(folder), lines=report.lines))
        if report.cost is not None:
            costs.append(report.cost)
    return dataclasses.replace(report, model=str(options.model), curve=points, cost=sum_of(costs))


def _choose_evaluation(
    name: str, data: AnyPath | None, source: AnyPath | None, references: Sequence[AnyPath], model: AnyPath | None
) -> tuple[str, list[Path]]:
    """The row of the table, and its files. Any other name is a file of pairs."""
    if name in EVALUATIONS and EVALUATIONS[name].two_sides:
        useless = "a model" if model is not None else "data" if data is not None else None
        if useless is not None:
            raise OptionError(f"{name} compares texts with their references, and has no use for {useless}.")
        if source is None or not references:
            missing = "the texts (--in)" if source is None else "their references (--reference)"
            raise OptionError(f"{name} compares texts with their references. Name the file of {missing}.")
        return name, [Path(source), *map(Path, references)]
    if source is not None or references:
        two_sided = ", ".join(each for each, evaluation in EVALUATIONS.items() if evaluation.two_sides)
        raise OptionError(f"Texts and their references are for {two_sided}, not for {name}. Leave both out.")
    if name in EVALUATIONS:
        return name, EVALUATIONS[name].find(data, name, EVALUATIONS[name].files)
    if Path(name).is_file() or Path(name).suffix:
        if data is not None:
            raise OptionError(f"{name} is a file by itself; leave out --data (data={data!r}).")
        if suffixes(name)[0] not in ENDINGS and Path(name).is_file():
            known = ", ".join(ENDINGS)
            raise InputError(f"{name} ends in none of the endings of a table of pairs ({known}), plain or compressed.")
        return "pairs", find_data(name, "pairs", ())
    raise OptionError(
        f"There is no evaluation {name!r}, and no file of that name. {nearest(name, EVALUATIONS)} Or name a file of "
        "minimal pairs, with the columns good and bad."
    )


def _score_pairs(
    sets: Sequence[PairSet], options: EvaluateOptions, started: float, *, default_hide: Hide = "word"
) -> Answers:
    """Minimal pairs: how likely each side is."""
    if not any(each.pairs for each in sets):
        raise InputError("There is no pair in the data.")
    path, scorer = _scorer(options, default_hide)
    values = score_pairs(scorer, sets, options.progress)
    notes = [*dict.fromkeys(note for each in sets for note in each.notes), *scorer.notes()]
    return Answers(values, path, scorer.description, notes, scorer.cost(time.perf_counter() - started))


def _score_last_words(items: Sequence[lambada.LastWord], options: EvaluateOptions, started: float) -> Answers:
    """Last words: how likely each is, and whether it would have been predicted, piece by piece."""
    path, scorer = _scorer(options)
    values = score_last_words(scorer, items, options.progress)
    notes = scorer.notes()
    if scorer.from_both_sides:
        notes.append("A masked model sees how many pieces the last word has, which a causal one does not.")
    return Answers(values, path, scorer.description, notes, scorer.cost(time.perf_counter() - started))


def _score_streams(streams: Sequence[wikitext.WordStream], options: EvaluateOptions, started: float) -> Answers:
    """Streams of words: how likely they are, line ends included."""
    path, scorer = _scorer(options)
    values = score_streams(scorer, streams, options.progress)
    return Answers(values, path, scorer.description, scorer.notes(), scorer.cost(time.perf_counter() - started))


def _answer_cloze(items: Sequence[cloze.ClozeItem], options: EvaluateOptions, started: float) -> Answers:
    """Words at masks: the rank of the right one among all words, or among given ones."""
    check_among(options.among)
    check_word_hide(options.hide)
    if options.order is not None or options.stride is not None:
        useless = "order" if options.order is not None else "stride"
        raise OptionError(f"The option {useless} means nothing for cloze. Leave it out.")
    loaded = load(model_or_default("evaluate", options.model), device=options.device, dtype=options.dtype)
    filler = loaded.filler(options.hide)  # type: ignore[arg-type]
    before = filler.tally.copy()
    values = cloze_answers(filler, items, among=options.among, max_pieces=options.max_pieces, progress=options.progress)
    ranked = "all whole words" if options.among == "words" else "the answers of each group"
    notes = [f"Answers are ranked among {ranked}, or among the candidates that an item brings."]
    spent = filler.tally.since(before)
    texts = [MaskedText.read(item.text).with_words(item.answers[:1]) for item in items]
    spent.documents, spent.words = len(texts), sum(len(make_document(text).words) for text in texts)
    cost = spent.cost(time.perf_counter() - started, loaded.bundle.device)
    return Answers(values, loaded.path, filler.description, notes, cost)


def _compare(sides: bleu.Sides, options: EvaluateOptions, started: float) -> Answers:
    """Texts against their references, without a model."""
    result = bleu.compare(sides)
    method = f"beside {sides.n_references} reference{'s' * (sides.n_references > 1)}"
    return Answers(result, "none", method, result.notes)


PAIRS = functools.partial(Evaluation, score=_score_pairs, measure=accuracy.pair_figures, of_pairs=True)
"""An evaluation by minimal pairs."""
EVALUATIONS: Mapping[str, Evaluation] = {
    "blimp": PAIRS(files=blimp.FILES, read=blimp.read_blimp),
    "babylm": PAIRS(
        files=babylm.FILES,
        find=babylm.find_babylm,
        read=babylm.read_babylm,
        score=functools.partial(_score_pairs, default_hide="piece"),
        measure=accuracy.babylm_figures,
    ),
    "lambada": Evaluation(
        files=lambada.FILES, read=lambada.read_lambada, score=_score_last_words, measure=accuracy.last_word_figures
    ),
    "wikitext2": Evaluation(
        files=wikitext.FILES, read=wikitext.read_wikitext, score=_score_streams, measure=stream_figures
    ),
    "agreement": PAIRS(files=agreement.FILES, read=agreement.read_agreement),
    "wsc": PAIRS(files=coreference.WSC_FILES, read=coreference.read_wsc, measure=accuracy.set_figures),
    "gap": PAIRS(files=coreference.GAP_FILES, read=coreference.read_gap, measure=accuracy.set_figures),
    "wnli": PAIRS(files=coreference.WNLI_FILES, read=coreference.read_wnli, measure=accuracy.set_figures),
    "pairs": PAIRS(files=("*.csv", "*.tsv", "*.jsonl", "*.parquet"), read=read_pairs),
    "cloze": Evaluation(files=cloze.FILES, read=cloze.read_cloze, score=_answer_cloze, measure=cloze_figures),
    "bleu": Evaluation(files=(), read=bleu.read_sides, score=_compare, measure=bleu.figures, two_sides=True),
}
"""What can be evaluated, by name."""


def _scorer(options: EvaluateOptions, default_hide: Hide = "word") -> tuple[str, Scorer]:
    loaded = load(model_or_default("evaluate", options.model), device=options.device, dtype=options.dtype)
    scorer = loaded.scorer(options, options.batch_pieces, default_hide=default_hide)
    if scorer.needs_source:
        raise ModelError(
            f"{options.name} has texts by themselves, and the model {loaded.path} says how likely a text is given a "
            "source. Take a model that reads texts alone; translations are compared with references by bleu."
        )
    return loaded.path, scorer

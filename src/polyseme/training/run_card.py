"""The card of a pretrained model: the text it read, how it was trained, what that cost, what it reached."""

from __future__ import annotations

from functools import reduce
from operator import add

from polyseme import __version__
from polyseme.bundle import Bundle
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.shards import Counts
from polyseme.files.atomic import whole_file
from polyseme.model_card import CardContent, listed_files, model_card
from polyseme.packaged_models import model_name
from polyseme.training.energy_ledger import Ledger
from polyseme.training.pretraining_job import Job
from polyseme.training.run_folder import MODEL, Run


def write_cards(run: Run, job: Job, corpus: Corpus, ledger: Ledger, bundles: dict[str, Bundle]) -> None:
    """A card in the folder of each model of a run."""
    for name, bundle in bundles.items():
        card = run_card(run, job, corpus, ledger, bundle, name)
        with whole_file(run.folder / name / MODEL_CARD, force=True) as file:
            file.write_text(card, encoding="utf-8")


def run_card(run: Run, job: Job, corpus: Corpus, ledger: Ledger, bundle: Bundle, name: str = MODEL) -> str:
    """The card of a run's model, or of another that it was trained with (ELECTRA's generator)."""
    own = run.folder.resolve().name
    start = "Pretrained from scratch" if job.start is None else f"Pretrained further from {model_name(job.start)}"
    teacher = job.objective.get("teacher")
    if teacher:
        taken = job.taken_layers or ()
        layers = f"layer{'' if len(taken) == 1 else 's'} {', '.join(map(str, taken))}"
        start = f"Distilled from {model_name(teacher)}" + (f", beginning with its {layers}," if taken else "")
    beside = "" if name == MODEL else f" This is its {name}."
    return model_card(
        bundle,
        CardContent(
            title=own if name == MODEL else f"{own}-{name}",
            origin=f"{start} by polyseme {__version__} with the recipe {job.recipe}.{beside}",
            sections=[
                ("Data", data_section(corpus)),
                ("Training", _training_lines(run, job)),
                ("Cost", "\n".join(f"- {line}" for line in ledger.replace(held_out=None).lines())),
                ("Scores", scores_section(ledger)),
            ],
        ),
    )


def data_section(corpus: Corpus) -> str:
    """The text that was read."""
    counts = [source.counts[side]["train"] for source in corpus.sources for side in corpus.sides]
    total = reduce(add, counts, Counts())
    files = [file for source in corpus.sources for file in source.files]
    sides = "" if len(corpus.sides) == 1 else f" ({' and '.join(corpus.sides)})"
    held_out = corpus.record.get("settings", {}).get("held_out")
    share = f" {held_out:.1%} of the documents were held out." if held_out else ""
    return (
        f"{total.bytes / 1e6:,.1f} MB of text{sides} in {total.documents:,} documents: {total.words:,} words, "
        f"{total.pieces:,} pieces.{share} Files: {listed_files(files)}.\n\nLanguages and licenses of the text are not "
        "known here: add them before the model is published."
    )


def _training_lines(run: Run, job: Job) -> str:
    phases = job.training.phases
    rows = "; then ".join(
        f"{phase.batch_size:,} rows of {phase.length:,} pieces"
        + (f" in {phase.share:.0%} of the steps" if len(phases) > 1 else "")
        for phase in phases
    )
    objective = job.objective.get("name", "")
    chosen = (
        "" if run.model_step is None else f" The model is that of step {run.model_step:,}, the best on held-out text."
    )
    return (
        f"Objective {objective}; budget {job.budget}, {run.n_steps or 0:,} steps of {rows}; in {job.training.dtype}, "
        f"seed {job.training.seed}.{chosen} Everything that decided the run is in run.json beside the model."
    )


def scores_section(ledger: Ledger) -> str:
    """What was reached on held-out text."""
    further = "No benchmark was scored; see `polyseme evaluate` and `polyseme benchmark`."
    if ledger.held_out is None:
        return further
    name = ledger.baseline_name.removeprefix("the ")
    beside = "" if ledger.unigram_entropy is None else f" ({name} {ledger.unigram_entropy:.3f})"
    return f"Loss on held-out documents: {ledger.held_out:.3f} nats per piece{beside}. {further}"

"""The jobs of growth.py: what one call of each does, at which sizes, and how its cost is expected to grow.

Of jobs over rows and uses, the model has random weights and one narrow layer, so that reading, tokenizing, writing and
searching are measured as much as the encoder. Of jobs over the length of a text, the model is a packaged one.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from growth_inputs import QUERY, WIDTH_OF_USES, Place

import polyseme

WORD = "in"
WORDS_PER_POINT = 4096
"""Words that a job over the length of texts reads at least: of short texts there are several."""
PIECES_PER_POINT = 256
"""New pieces that `generate` writes at least."""
N_STEPS, N_SKIPPED = 8, 2
"""Steps of training, and how many of them are left out at the beginning."""
ROWS = (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
LENGTHS = (8, 32, 128, 256, 512, 1024, 2048, 4096, 8192)
LAYERS = (1, 2, 4, 8, 16, 32)
VOCABULARIES = (1_000, 4_000, 8_000, 16_000, 32_000, 64_000)


class Call(NamedTuple):
    """A call that is measured."""

    run: Callable[[], object]
    n_times: int = 1
    """How many units of work it does; seconds are divided by it."""


class Seconds(NamedTuple):
    """What a call returns that has measured its own seconds."""

    cpu: float
    wall: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, and what is expected of it."""

    group: str
    unit: str
    sizes: tuple[int, ...]
    prepare: Callable[[Place, int], Call]
    """Makes the inputs that are missing, loads the model, and returns the call."""
    time: str = "linear"
    """Expected before the runs: linear, or at most linear."""
    memory: str = "flat"
    """Expected before the runs: flat, or grows."""
    per: str = "call"
    """What the seconds are of."""
    warms_up: bool = True
    """Whether the smallest size runs first, not measured."""


def cpu_seconds() -> float:
    """CPU time of this process and of the processes that it started and that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usages)


# --- rows -------------------------------------------------------------------------------------------------------------


def _embed(place: Place, n: int) -> Call:
    output = place.output("vectors.parquet")
    return Call(partial(polyseme.embed, place.rows(n), model=place.model("bert"), output=output))


def _score(place: Place, n: int) -> Call:
    output = place.output("scores.parquet")
    return Call(partial(polyseme.score, place.rows(n), model=place.model("gpt2"), output=output))


def _predict(place: Place, n: int) -> Call:
    output = place.output("predictions.parquet")
    return Call(partial(polyseme.predict, place.rows(n), model=place.task_model(), output=output))


def _corpus(place: Place, n: int) -> Call:
    settings: dict[str, Any] = {"tokenizer": place.tokenizer("wordpiece", "bert"), "documents": "line", "workers": 1}
    return Call(partial(polyseme.build_corpus, place.rows(n), output=place.output("corpus"), **settings))


def _finetune(place: Place, n: int, *, frozen: bool) -> Call:
    place.labeled(n)
    place.model("bert")
    return Call(partial(place.finetune, n, frozen=frozen))


def _pretrain(place: Place, n: int, **settings: Any) -> Call:
    """On a corpus of whole words."""
    corpus = place.corpus(n, "words", 400_000, lowercase=True)
    return Call(partial(polyseme.pretrain, corpus, output=place.output("run"), device="cpu", **settings))


# --- the length of a text ---------------------------------------------------------------------------------------------


def _embed_texts(place: Place, length: int) -> Call:
    n_texts = max(WORDS_PER_POINT // length, 1)
    return Call(partial(polyseme.load("minilm", device="cpu").embed, place.long_texts(n_texts, length)), n_texts)


def _score_texts(place: Place, length: int) -> Call:
    n_texts = max(WORDS_PER_POINT // length, 1)
    model = polyseme.load("english-decoder", device="cpu")
    return Call(partial(model.score, place.long_texts(n_texts, length)), n_texts)


def _generate(place: Place, length: int) -> Call:
    n_texts = max(PIECES_PER_POINT // length, 1)
    model = polyseme.load("english-decoder", device="cpu")
    settings: dict[str, Any] = {"max_new": length, "min_new": length, "stride": 128, "batch_size": 1}
    return Call(partial(model.generate, place.lines(n_texts), **settings), n_texts)


# --- vocabulary and layers --------------------------------------------------------------------------------------------


def _train_tokenizer(place: Place, n_rows: int, n_pieces: int) -> Call:
    from polyseme.corpus.tokenizer_training import train_tokenizer

    texts = place.rows(n_rows)

    def run() -> None:
        with texts.open(encoding="utf-8") as lines:
            train_tokenizer("wordpiece", lines, vocab_size=n_pieces)

    return Call(run)


def _step(place: Place, size: int, *, recipe: str, setting: str, **options: Any) -> Call:
    """A step of training, the mean of several. A large vocabulary has pieces that the text lacks."""
    tokenizer: dict[str, Any] = {"tokenizer": "words", "vocab_size": 1_000}
    if recipe != "lstm-tiny":
        tokenizer = {"tokenizer": "byte-bpe", "vocab_size": 4_000, "frame": "gpt2"}
    corpus = place.corpus(10_000, **tokenizer)
    settings = {
        "recipe": recipe,
        "shape": {setting: size},
        "budget": f"{N_STEPS}steps",
        "device": "cpu",
        "log_every": 1,
        "evaluate_every": 10_000,
        "checkpoint_every": 10_000,
        **options,
    }

    def run() -> Seconds:
        moments: list[Seconds] = []
        polyseme.pretrain(
            corpus,
            output=place.output("run"),
            on_report=lambda _: moments.append(Seconds(cpu_seconds(), time.perf_counter())),
            **settings,
        )
        first, last, n = moments[N_SKIPPED - 1], moments[N_STEPS - 1], N_STEPS - N_SKIPPED
        return Seconds((last.cpu - first.cpu) / n, (last.wall - first.wall) / n)

    return Call(run)


def _embed_by_layers(place: Place, n_layers: int) -> Call:
    return Call(partial(place.model("bert", width=128, n_layers=n_layers).embed, place.lines(1_000)))


# --- uses in an index -------------------------------------------------------------------------------------------------


def _index(place: Place, n: int) -> Call:
    place.vectors(n)
    place.model("bert", width=WIDTH_OF_USES)

    def run() -> None:
        folder = place.folder / f"index-{n}"
        shutil.rmtree(folder, ignore_errors=True)
        place.build_index(n, folder)

    return Call(run)


def _similar(place: Place, n: int) -> Call:
    return Call(partial(polyseme.similar, QUERY, index=place.index(n), model=place.model("bert", width=WIDTH_OF_USES)))


def _senses(place: Place, n: int) -> Call:
    return Call(partial(polyseme.senses, WORD, index=place.index(n), names="none"))


def _graph(place: Place, n: int) -> Call:
    """What an index of more than a million uses has beside its vectors."""
    from polyseme.word_senses.index import load_index
    from polyseme.word_senses.nearest_neighbors import Graph

    vectors, output = load_index(place.index(n)).vectors[0], place.output("graph.usearch")
    return Call(lambda: Graph.build(vectors).save(output))


def _of_step(setting: str, sizes: tuple[int, ...], **options: Any) -> Job:
    return Job(
        group="shape",
        unit="layer" if setting == "n_layers" else "piece",
        sizes=sizes,
        prepare=partial(_step, setting=setting, **options),
        time="linear" if setting == "n_layers" else "at most linear",
        memory="grows",
        per="step",
        warms_up=False,
    )


_ROWS = partial(Job, group="rows", unit="row", sizes=ROWS)
_TEXTS = partial(Job, group="length", unit="word", sizes=LENGTHS, per="text")
_USES = partial(Job, group="uses", unit="use", sizes=ROWS)
_SAMPLED = {"softmax": "sampled", "n_samples": 512}
JOBS: Mapping[str, Job] = {
    "embed": _ROWS(prepare=_embed),
    "score": _ROWS(prepare=_score, sizes=ROWS[:5]),
    "predict": _ROWS(prepare=_predict, sizes=ROWS[:5]),
    "corpus": _ROWS(prepare=_corpus),
    "finetune": _ROWS(prepare=partial(_finetune, frozen=False), sizes=ROWS[:4], memory="grows"),
    "finetune, frozen": _ROWS(prepare=partial(_finetune, frozen=True), sizes=ROWS[:5], memory="grows"),
    "n-grams": _ROWS(prepare=partial(_pretrain, recipe="kneser-ney"), sizes=ROWS[:5], memory="grows"),
    "skip-gram": _ROWS(
        prepare=partial(_pretrain, recipe="skip-gram", budget="1epochs"), sizes=ROWS[:5], memory="grows"
    ),
    "embed, one text": _TEXTS(prepare=_embed_texts, memory="grows"),
    "score, one text": _TEXTS(prepare=_score_texts, memory="grows"),
    "generate": _TEXTS(prepare=_generate, unit="new piece", sizes=LENGTHS[:-1]),
    "tokenizer, by rows": Job(
        group="shape", unit="row", sizes=ROWS[:5], prepare=partial(_train_tokenizer, n_pieces=4_000), memory="grows"
    ),
    "tokenizer, by pieces": Job(
        group="shape",
        unit="piece",
        sizes=VOCABULARIES[:5],
        prepare=lambda place, n: _train_tokenizer(place, 100_000, n),
        time="at most linear",
        memory="grows",
        warms_up=False,
    ),
    "step, full softmax": _of_step("n_pieces", VOCABULARIES, recipe="lstm-tiny", batch_size=16),
    "step, sampled softmax": _of_step("n_pieces", VOCABULARIES, recipe="lstm-tiny", batch_size=16, objective=_SAMPLED),
    "embed, by layers": Job(group="shape", unit="layer", sizes=LAYERS, prepare=_embed_by_layers, memory="grows"),
    "step, by layers": _of_step("n_layers", LAYERS, recipe="gpt-tiny", batch_size=4, length=128),
    "index": _USES(prepare=_index),
    "similar": _USES(prepare=_similar),
    "senses": _USES(prepare=_senses, memory="grows"),
    "graph": _USES(prepare=_graph, sizes=ROWS[:4], memory="grows", warms_up=False),
}

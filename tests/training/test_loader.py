"""Every objective's examples are a function of the step: whatever makes them, and however they are shared out."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions, RowSource
from polyseme.errors import PolysemeWarning
from polyseme.objectives.objective import BaseObjective
from polyseme.objectives.objective_table import OBJECTIVES, objective_from
from polyseme.training.device_group import Devices
from polyseme.training.loader import Loader, StepRows
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.training_settings import Phase, Plan, TrainingSettings

N_STEPS, N_ROWS, LENGTH = 9, 8, 24
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in OBJECTIVES},
    "masked, static spans": ("masked", {"unit": "span", "static_copies": 2}),
    "masked, next sentence": ("masked", {"next": "nsp"}),
    "masked, next sentence, static": ("masked", {"next": "nsp", "static_copies": 2}),
    "masked, order, sentences": ("masked", {"next": "sop", "layout": "sentence-pair"}),
    "masked, full sentences": ("masked", {"layout": "full-sentences"}),
    "masked, sentences of documents": ("masked", {"layout": "doc-sentences"}),
    "masked, span boundary": ("masked", {"unit": "span", "boundary": True}),
    "replaced, at masks": ("replaced", {"learn": "masked"}),
    "permuted pieces": ("permuted", {"unit": "piece"}),
    "permuted, memory": ("permuted", {"memory": True}),
    "denoising, in every way": ("denoising", {"rotate": True, "mask_rate": 0.1, "delete_rate": 0.1}),
}
"""Every objective there is as it comes, and some otherwise."""
FRAMES = {
    "causal": "gpt2",
    "masked": "bert",
    "replaced": "bert",
    "streams": "lm",
    "bilm": "elmo",
    "two-way": "flair",
    "permuted": "xlnet",
    "denoising": "bart",
    "spans": "t5",
    "translation": "transformer",
    "tlm": "bert pairs",
    "skip-gram": "lm",
    "cbow": "lm",
    "glove": "lm",
    "distilled": "bert",
    "distilled-causal": "gpt2",
}
"""The specials that rows of each objective have."""
TOKENIZERS = {"lm": "words", "elmo": "words", "flair": "characters"}
"""Of frames whose rows are not of subwords."""
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Corpus]:
    """A small text under each frame; for translation, its words in two orders."""
    folder = tmp_path_factory.mktemp("corpora")
    sentence = "the dawn broke a vase and news of it came to every house where people sat at bread and beer"
    words = sentence.split()
    draw = random.Random(3)
    documents = [draw.choices(words, k=40) for _ in range(20)]
    sentences = [[f"{' '.join(half).capitalize()}." for half in (each[:20], each[20:])] for each in documents]
    (folder / "text.txt").write_text("\n\n".join(" ".join(each) for each in sentences))
    (folder / "short.txt").write_text("\n\n".join(" ".join(each) for each in sentences[:8]))
    (folder / "one.txt").write_text("".join(" ".join(each[:9]) + "\n" for each in documents * 6))
    (folder / "other.txt").write_text("".join(" ".join(each[8::-1]) + "\n" for each in documents * 6))
    found = {}
    for frame in dict.fromkeys(FRAMES.values()):
        texts: dict[str, Any] = {"sources": folder / ("short.txt" if frame == FRAMES["two-way"] else "text.txt")}
        if frame in (FRAMES["translation"], FRAMES["tlm"]):
            texts = {"source": folder / "one.txt", "target": folder / "other.txt"}
        tokenizer = TOKENIZERS.get(frame, "byte-bpe")
        with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
            found[frame] = polyseme.build_corpus(
                **texts,
                output=folder / frame,
                tokenizer=tokenizer,
                frame=frame.split()[0],
                vocab_size=400,
                held_out=0.05,
            )
    return found


def rows_for(objective: BaseObjective, corpus: Corpus) -> RowSource:
    length = objective.row_length(LENGTH, corpus.tokenizer.n_specials)
    return objective.needs.layout.rows(corpus, RowOptions(length=length, batch_size=N_ROWS))


def loader_for(
    case: str, corpora: dict[str, Corpus], *, micro_batch_size: int = N_ROWS, rank: int = 0, world: int = 1
) -> Loader:
    name, settings = CASES[case]
    corpus = corpora[FRAMES[name]]
    objective = objective_from(name, settings).for_corpus(corpus)
    training = TrainingSettings(
        phases=(Phase(length=LENGTH, batch_size=N_ROWS),), optimizer=OptimizerSettings(), schedule=Schedule()
    )
    devices = Devices(torch.device("cpu"), rank=rank, world=world)
    return Loader([rows_for(objective, corpus)], objective, Plan(training, N_STEPS), devices, [micro_batch_size])


def rows_first(arrays: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A pass row by row: where words are spelled once and stand as numbers in the rows, each is put in its place."""
    if "characters" not in arrays:
        return arrays
    rest = {name: array for name, array in arrays.items() if name not in ("characters", "numbers")}
    return {**rest, "spelled": arrays["characters"][arrays["numbers"].long()]}


def joined(parts: list[StepRows]) -> dict[str, np.ndarray]:
    """The arrays of a step's passes and processes, one after another, and its counts."""
    passes = [rows_first(each) for part in parts for each in part.passes]
    arrays = {name: torch.cat([each[name] for each in passes]).numpy() for name in passes[0]}
    counts = {name: np.array(sum(part.counts[name] for part in parts)) for name in parts[0].counts}
    return {**arrays, **{f"count of {name}": count for name, count in counts.items()}}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def whole(case: str, corpora: dict[str, Corpus]) -> list[dict[str, np.ndarray]]:
    """The steps as one process without workers makes them, one after another."""
    return [joined([rows]) for rows in loader_for(case, corpora).steps(0, N_STEPS, workers=0)]


def test_every_objective_is_tried() -> None:
    assert {name for name, _ in CASES.values()} == OBJECTIVES.keys() == FRAMES.keys()


@every_case
def test_no_two_steps_are_the_same(case: str, corpora: dict[str, Corpus]) -> None:
    """Over more than one epoch; else the tests below would show little."""
    steps = whole(case, corpora)
    assert loader_for(case, corpora).row_sources[0].n_rows < N_STEPS * N_ROWS
    contents = {b"".join(array.tobytes() for array in step.values()) for step in steps}
    assert len(contents) == N_STEPS


@every_case
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_any_number_of_workers_gives_the_same_examples(case: str, workers: int, corpora: dict[str, Corpus]) -> None:
    found = list(loader_for(case, corpora).steps(0, N_STEPS, workers=workers))
    assert [rows.step for rows in found] == list(range(N_STEPS))
    for rows, expected in zip(found, whole(case, corpora), strict=True):
        assert_same(joined([rows]), expected)


@every_case
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_number_of_processes_shares_the_same_examples(case: str, world: int, corpora: dict[str, Corpus]) -> None:
    loaders = [loader_for(case, corpora, rank=rank, world=world) for rank in range(world)]
    for step, expected in enumerate(whole(case, corpora)):
        assert_same(joined([loader.make(step) for loader in loaders]), expected)


@every_case
def test_passes_of_any_size_are_the_same_examples(case: str, corpora: dict[str, Corpus]) -> None:
    loader = loader_for(case, corpora, micro_batch_size=2)
    for step, expected in enumerate(whole(case, corpora)):
        rows = loader.make(step)
        assert rows.sizes == [2] * (N_ROWS // 2)
        assert_same(joined([rows]), expected)


@every_case
def test_a_step_is_the_same_whichever_were_made_before(case: str, corpora: dict[str, Corpus]) -> None:
    expected = whole(case, corpora)
    for step in (7, 2):
        assert_same(joined([loader_for(case, corpora).make(step)]), expected[step])
    for rows in loader_for(case, corpora).steps(5, N_STEPS, workers=2):
        assert_same(joined([rows]), expected[rows.step])

"""Training with a memory that is carried: from step to step, over passes, through checkpoints, and in evaluation."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyseme
from corpus.conftest import stream_rows
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.corpus import Corpus
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.objectives.objective_table import objective_from
from polyseme.training.device_group import Devices
from polyseme.training.effects import read_log
from polyseme.training.loader import Loader
from polyseme.training.optimizers import OptimizerSettings, prepare_for_recording
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.schedules import Schedule
from polyseme.training.trainer import MEMORY, Trainer
from polyseme.training.training_settings import Phase, Plan, TrainingSettings
from training.run_again import RunAgain

N_STEPS, N_ROWS, LENGTH = 6, 4, 8
SHAPES: dict[str, dict[str, Any]] = {
    "streams": {"token_width": 8, "width": 8, "n_layers": 2, "inner_width": None, "dropout_rate": 0.1},
    "bilm": {
        "token_width": 8, "width": 8, "n_layers": 2, "inner_width": 12, "n_highways": 0, "n_outputs": 15,
        "filter_widths": (1, 2), "filter_counts": (4, 4), "dropout_rate": 0.1, "embedding_dropout_rate": 0.1,
    },
    "segments": {
        "width": 8, "n_layers": 2, "n_heads": 2, "inner_width": 12, "head_width": 4, "embedding_width": None,
        "cutoffs": (8, 14), "memory_length": 10, "embedding_scale": 8**0.5,
    },
    "permuted": {
        "width": 8, "n_layers": 2, "n_heads": 2, "inner_width": 12, "memory_length": 10, "reuse": None,
    },
}  # fmt: skip
FAMILY_OF = {"streams": "lstm", "bilm": "elmo", "segments": "transfo-xl", "permuted": "xlnet"}
OBJECTIVE_OF: dict[str, tuple[str, dict[str, Any]]] = {
    "segments": ("streams", {}),
    "permuted": ("permuted", {"memory": True, "one_in": 2}),
}
"""Where it is not named as the case is, or has settings."""
NAMES = tuple(SHAPES)
every_objective = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sentence = "the dawn broke a vase and news of it came to every house where people sat at bread and beer"
    words = sentence.split()
    draw = random.Random(3)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=40)) + "." for _ in range(100)) + "\n")
    return path


@pytest.fixture(scope="module")
def corpora(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Corpus]:
    """The text in words, with the specials that each objective wants."""
    folder = tmp_path_factory.mktemp("corpora")
    found = {}
    for name, frame in (("streams", "lm"), ("bilm", "elmo"), ("permuted", "xlnet")):
        with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
            found[name] = polyseme.build_corpus(
                text, output=folder / name, tokenizer="words", frame=frame, vocab_size=100, held_out=0.1
            )
    return {**found, "segments": found["streams"]}


def settings(**changes: Any) -> TrainingSettings:
    made: TrainingSettings = TrainingSettings(
        phases=(Phase(length=LENGTH, batch_size=N_ROWS),),
        optimizer=OptimizerSettings(lr=1e-2),
        schedule=Schedule(kind="linear", warmup=0.2),
    ).replace(**changes)
    return made


def trainer_for(name: str, corpus: Corpus, training: TrainingSettings, **shape: Any) -> Trainer:
    family = FAMILIES[FAMILY_OF[name]]
    objective = objective_from(*OBJECTIVE_OF.get(name, (name, {}))).for_tokenizer(corpus.tokenizer)
    changes = {**SHAPES[name], **shape}
    if name != "bilm":
        changes["n_pieces"] = corpus.tokenizer.n_pieces
    torch.manual_seed(training.seed)
    bundle = new_bundle(family, family.tiny().replace(**changes), objective.needs.outputs, corpus.tokenizer)
    return Trainer(objective, objective.nets(bundle), training, Devices(torch.device("cpu")))


def loader_for(trainer: Trainer, corpus: Corpus, plan: Plan, micro_batch_size: int = N_ROWS) -> Loader:
    training = trainer.settings
    layouts = [
        stream_rows(corpus, phase.batch_size, length=phase.length, ahead=trainer.objective.needs.layout.ahead,  # type: ignore[attr-defined]
                back=trainer.objective.needs.layout.both_ways, varied=training.varied)  # type: ignore[attr-defined]
        for phase in training.phases
    ]  # fmt: skip
    return Loader(layouts, trainer.objective, plan, trainer.devices, [micro_batch_size] * len(layouts))


def losses_of(
    trainer: Trainer, corpus: Corpus, first: int, last: int, micro_batch_size: int = N_ROWS
) -> list[dict[str, float]]:
    plan = Plan(trainer.settings, N_STEPS)
    steps = loader_for(trainer, corpus, plan, micro_batch_size).steps(first, last, workers=0)
    return [{name: float(mean) for name, mean in trainer.step(rows, plan).items()} for rows in steps]


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "varied"),
    [
        pytest.param(
            name,
            varied,
            id=f"{name}-{'varied' if varied else 'even'}",
            marks=pytest.mark.slow if varied and name in ("bilm", "permuted") else (),
        )
        for name in NAMES
        for varied in (False, True)
    ],
)
def test_recorded_steps_carry_the_memory(name: str, varied: bool, corpora: dict[str, Corpus]) -> None:
    corpus, training = corpora[name], settings(varied=varied)
    plain, recorded = (trainer_for(name, corpus, training) for _ in range(2))
    prepare_for_recording(plain.optimizer, torch.device("cpu"))
    recorder = RunAgain()
    recorded.record_steps(recorder)
    last = 20 if varied else N_STEPS
    assert losses_of(recorded, corpus, 0, last, 2) == losses_of(plain, corpus, 0, last, 2)
    assert recorder.n_recorded >= (2 if varied else 1)
    for key, each in plain.tensors().items():
        assert torch.equal(each, recorded.tensors()[key]), key


@pytest.mark.parametrize(("name", "varied"), [(name, bool(number % 2)) for number, name in enumerate(NAMES)], ids=str)
def test_going_on_from_what_was_kept_takes_the_very_steps(name: str, varied: bool, corpora: dict[str, Corpus]) -> None:
    corpus, training = corpora[name], settings(varied=varied)
    whole = trainer_for(name, corpus, training)
    losses = losses_of(whole, corpus, 0, N_STEPS, 2)
    first = trainer_for(name, corpus, training)
    begun = losses_of(first, corpus, 0, 3, 2)
    kept = {key: each.clone() for key, each in first.tensors().items()}
    assert any(key.startswith(MEMORY) for key in kept)
    second = trainer_for(name, corpus, training)
    losses_of(second, corpus, 0, 1, 2)
    second.put(kept)
    assert begun + losses_of(second, corpus, 3, N_STEPS, 2) == losses
    for key, each in whole.tensors().items():
        assert torch.equal(each, second.tensors()[key]), key


@every_objective
def test_the_memory_counts(name: str, corpora: dict[str, Corpus]) -> None:
    """Without it the next step loses something else; a memory that was never kept is none."""
    corpus = corpora[name]
    trainer = trainer_for(name, corpus, settings())
    before = trainer.tensors()
    losses_of(trainer, corpus, 0, 2)
    kept = {key: each.clone() for key, each in trainer.tensors().items()}
    with_memory = losses_of(trainer, corpus, 2, 3)
    trainer.put({key: each for key, each in kept.items() if not key.startswith(MEMORY)})
    assert trainer.memory is None
    assert losses_of(trainer, corpus, 2, 3) != with_memory
    trainer.put(before)
    assert trainer.memory is None


@every_objective
def test_passes_add_up_to_the_step(name: str, corpora: dict[str, Corpus]) -> None:
    """Each pass has the memory of its own streams."""
    corpus, training = corpora[name], settings(dtype="fp64")
    still = {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
    if name in OBJECTIVE_OF:
        still |= {"inner_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    found = []
    for micro_batch_size in (4, 2, 1):
        trainer = trainer_for(name, corpus, training, **still)
        found.append((losses_of(trainer, corpus, 0, 4, micro_batch_size), trainer.tensors()))
    for losses, tensors in found[1:]:
        for one, other in zip(found[0][0], losses, strict=True):
            assert one == pytest.approx(other, rel=1e-12)
        for key, each in found[0][1].items():
            torch.testing.assert_close(tensors[key], each, rtol=1e-8, atol=1e-10, msg=key)


def test_a_step_goes_on_from_the_one_before(corpora: dict[str, Corpus]) -> None:
    """With a rate next to nothing, the losses of all steps are those of one long row."""
    corpus = corpora["streams"]
    training = settings(dtype="fp64", optimizer=OptimizerSettings(kind="sgd", lr=1e-300, weight_decay=0.0))
    trainer = trainer_for("streams", corpus, training, dropout_rate=0.0)
    losses = losses_of(trainer, corpus, 0, 4)
    long = stream_rows(corpus, N_ROWS, length=4 * LENGTH, ahead=1).rows(np.arange(N_ROWS))
    with torch.no_grad():
        whole = trainer.inner({"pieces": torch.from_numpy(long.pieces)})[0]["causal"] / (N_ROWS * 4 * LENGTH)
    assert np.mean([each["causal"] for each in losses]) == pytest.approx(float(whole), rel=1e-12)


@every_objective
def test_under_autocast_the_memory_stays_in_full(name: str, corpora: dict[str, Corpus]) -> None:
    trainer = trainer_for(name, corpora[name], settings(dtype="bf16"))
    exact = losses_of(trainer_for(name, corpora[name], settings()), corpora[name], 0, 3)
    near = losses_of(trainer, corpora[name], 0, 3)
    assert trainer.memory is not None
    assert {each.dtype for each in trainer.memory.tensors().values()} == {torch.float32, torch.int64}
    assert near != exact
    for one, other in zip(exact, near, strict=True):
        assert one == pytest.approx(other, rel=2e-2)


# --- evaluation -------------------------------------------------------------------------------------------------------


@every_objective
def test_evaluation_begins_afresh_and_carries_on(name: str, corpora: dict[str, Corpus]) -> None:
    corpus, training = corpora[name], settings(dtype="fp64")
    whole = {"memory_length": 40, "clamp_distance": None, "first_memory": "empty"} if name == "segments" else {}
    trainer = trainer_for(name, corpus, training, **whole)
    losses_of(trainer, corpus, 0, 2)
    assert trainer.memory is not None
    memory = {key: each.clone() for key, each in trainer.memory.tensors().items()}
    back = name == "bilm"

    def held(length: int, n_steps: int) -> dict[str, float]:
        layout = stream_rows(corpus, 2, "held", length=length, ahead=1, back=back)
        loader = Loader([layout], trainer.objective, Plan(training, 1), trainer.devices, [2])
        return trainer.evaluate(loader.rows(step, 0, 2 * step + np.arange(2)) for step in range(n_steps))

    found = held(LENGTH, 4)
    assert found == held(LENGTH, 4)
    if name != "permuted":  # a long row has another order
        assert found == pytest.approx(held(4 * LENGTH, 1), rel=1e-10)
    assert trainer.inner.training
    for key, each in trainer.memory.tensors().items():
        assert torch.equal(each, memory[key])


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_the_backward_rows_of_a_stream_go_to_its_beginning(corpora: dict[str, Corpus]) -> None:
    """What is read in a step stands right before what was read in the one before."""
    corpus = corpora["bilm"]
    streams = stream_rows(corpus, 3, "held", length=LENGTH, ahead=1, back=True)
    whole = np.asarray(corpus.shards("held")[0].pieces)
    n_steps = streams.n_rows // 3
    rows = streams.rows(np.arange(streams.n_rows)).pieces.reshape(n_steps, 3, 2, LENGTH + 1)
    part = len(whole) // 3
    for stream in range(3):
        text = whole[stream * part : (stream + 1) * part + 1]
        onward = np.concatenate([rows[step, stream, 0, :-1] for step in range(n_steps)])
        assert np.array_equal(onward, text[: n_steps * LENGTH])
        back = np.concatenate([rows[step, stream, 1, 1:] for step in reversed(range(n_steps))])
        assert np.array_equal(back, text[:part][part - n_steps * LENGTH :])
        for step in range(1, n_steps):
            assert rows[step - 1, stream, 0, -1] == rows[step, stream, 0, 0]  # what was guessed last is read first
            assert rows[step - 1, stream, 1, 0] == rows[step, stream, 1, -1]


def test_varied_rows_have_five_lengths_and_leave_nothing_out(corpora: dict[str, Corpus]) -> None:
    corpus = corpora["streams"]
    streams = stream_rows(corpus, 2, length=LENGTH, ahead=1, varied=True)
    rows = [streams.rows(np.arange(2) + 2 * step).pieces for step in range(48)]
    lengths = [each.shape[1] - 1 for each in rows]
    assert sorted(lengths[:8]) == sorted(lengths[8:16]) == [4, 6, 8, 8, 8, 8, 10, 12]
    assert len({tuple(lengths[first : first + 8]) for first in range(0, 48, 8)}) > 1
    for before, after in itertools.pairwise(rows):
        assert np.array_equal(before[:, -1], after[:, 0])
    joined = np.concatenate([each[:, :-1] for each in rows], axis=1)
    even = stream_rows(corpus, 2, length=LENGTH)
    assert np.array_equal(joined, np.concatenate([even.rows(np.arange(2) + 2 * step).pieces for step in range(48)], 1))
    assert np.array_equal(streams.rows(np.array([7])).pieces, rows[3][1:])
    with pytest.raises(ValueError, match="several steps"):
        streams.rows(np.arange(8))


def test_a_stream_goes_on_over_epochs(corpora: dict[str, Corpus]) -> None:
    streams = stream_rows(corpora["streams"], 3, length=50, ahead=1)
    last, first = (streams.rows(np.arange(3) + at).pieces for at in (streams.n_rows - 3, streams.n_rows))
    assert np.array_equal(last[:, -1], first[:, 0])


# --- runs -------------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "recipe": "lstm-tiny", "budget": "6steps", "batch_size": 4, "length": 8, "device": "cpu", "log_every": 1,
    "shape": {"width": 8, "token_width": 8},
}  # fmt: skip


def in_seconds(corpus: Corpus, budget: str) -> Pretraining:
    bundle = trainer_for("streams", corpus, settings()).inner.bundle  # type: ignore[union-attr]
    job = Job(
        recipe="lstm-tiny", family="lstm", encoder={"kind": "recurrent", **bundle.config.to_json()},  # type: ignore[union-attr]
        outputs=("causal",), objective={"name": "streams"}, training=settings(), corpus=str(corpus.folder),
        corpus_fingerprint=corpus.fingerprint, budget=budget,
    )  # fmt: skip
    return Pretraining.set_up(job, corpus, Devices(torch.device("cpu")))


def test_a_budget_of_time_leaves_the_memory_alone(corpora: dict[str, Corpus]) -> None:
    pretraining = in_seconds(corpora["streams"], "10s")
    before = {name: each.clone() for name, each in pretraining.trainer.tensors().items()}
    assert pretraining.trial(seconds=0.0).steps[0] > 0
    assert pretraining.trainer.memory is None
    after = pretraining.trainer.tensors()
    assert before.keys() == after.keys()
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    held = list(pretraining.held_rows())
    assert len(held) > 1
    assert {each.sizes[0] for each in held} == {min(N_ROWS, pretraining.corpus.n_pieces("held") // (8 * LENGTH))}


@pytest.mark.parametrize("tokenizer", ["words", "blanks", "characters", "byte-bpe", "wordpiece"])
def test_words_characters_and_pieces_are_trained_on(tokenizer: str, text: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=tmp_path / "run", tokenizer=tokenizer, vocab_size=300, **SMALL)
    losses = [line["loss"] for line in read_log(tmp_path / "run")]
    assert losses[-1] < losses[0]
    [scored] = polyseme.load(tmp_path / "run", device="cpu").score(["the dawn broke"])
    assert np.isfinite(scored.piece_log_probs).all()


def test_models_are_trained_further(corpora: dict[str, Corpus], text: Path, tmp_path: Path) -> None:
    """An output of its own stays one; a softmax is trained on only with the words that it has."""
    untied = {**SMALL, "recipe": "char-lm-tiny", "shape": {"width": 12, "token_width": 8}}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=tmp_path / "characters", **untied)
        polyseme.pretrain(
            text, output=tmp_path / "more", model=tmp_path / "characters" / "model", **{**untied, "shape": None}
        )
    first, more = ([line["loss"] for line in read_log(tmp_path / name)] for name in ("characters", "more"))
    assert more[0] == pytest.approx(first[-1], rel=0.1)

    small = {"width": 8, "token_width": 8, "inner_width": 12, "filter_counts": (2, 2, 2, 2)}
    elmo = {**SMALL, "recipe": "elmo-tiny", "budget": "3steps"}
    folder = corpora["bilm"].folder
    polyseme.pretrain(folder, output=tmp_path / "elmo", **{**elmo, "shape": {**small, "n_outputs": 12}})
    polyseme.pretrain(folder, output=tmp_path / "more elmo", model=tmp_path / "elmo", **{**elmo, "shape": None})
    assert polyseme.load(tmp_path / "more elmo", device="cpu").show().outputs == ("two-way",)
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        (tmp_path / "other.txt").write_text("\n\n".join(f"a {number} zoo zoo zoo beer" * 30 for number in range(20)))
        polyseme.build_corpus(
            tmp_path / "other.txt", output=tmp_path / "other", tokenizer="words", frame="elmo", vocab_size=99
        )
    with pytest.raises(OptionError, match="chooses from other words than the first 12"):
        polyseme.pretrain(
            tmp_path / "other", output=tmp_path / "wrong", model=tmp_path / "elmo", **{**elmo, "shape": None}
        )


@pytest.mark.slow
def test_two_processes_train_as_one_and_their_checkpoint_is_gone_on_with_by_one(
    corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    folder = str(corpora["streams"].folder)
    polyseme.pretrain(folder, output=tmp_path / "one", **{**SMALL, "shape": {**SMALL["shape"], **STILL}})
    shape = [f"--set={name}={value}" for name, value in {**SMALL["shape"], **STILL}.items()]
    begun = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "polyseme",
         "pretrain", folder, "-o", str(tmp_path / "two"), "--recipe=lstm-tiny", "--budget=6steps", "--batch-size=4",
         "--length=8", "--device=cpu", "--log-every=1", "--checkpoint-every=3", *shape],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert begun.returncode == 0, begun.stderr[-3000:]
    one = [line["loss"] for line in read_log(tmp_path / "one")]
    assert [line["loss"] for line in read_log(tmp_path / "two")] == pytest.approx(one, rel=1e-4)
    last = sorted((tmp_path / "two" / "checkpoints").iterdir())[-1]
    for file in last.iterdir():
        file.unlink()
    last.rmdir()
    about = json.loads((tmp_path / "two" / "run.json").read_text())
    (tmp_path / "two" / "run.json").write_text(json.dumps({**about, "finished": False}))
    polyseme.pretrain(resume=tmp_path / "two", device="cpu")
    assert [line["loss"] for line in read_log(tmp_path / "two")] == pytest.approx(one, rel=1e-4)


STILL = {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mask_documents": True}, "mask_documents and reset_positions cannot be followed"),
        ({"reset_positions": True}, "mask_documents and reset_positions cannot be followed"),
        ({"batch_size": 2000}, "smaller than a batch"),
        ({"shape": {"width": 8, "token_width": 10}}, "cannot share the table of pieces"),
        ({"shape": {"n_heads": 2}}, "no setting 'n_heads'"),
        ({"objective": {"softmax": "adaptive"}}, "output_cutoffs"),
        ({"recipe": "elmo-tiny", "shape": {}}, "has none for: start"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_streams_cannot_do_is_refused(
    changes: dict[str, Any], said: str, corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    with pytest.raises(polyseme.PolysemeError, match=said):
        polyseme.pretrain(corpora["streams"].folder, output=tmp_path / "run", **{**SMALL, **changes})
    assert list(tmp_path.iterdir()) == []


def test_phases_of_other_numbers_of_rows_are_refused(corpora: dict[str, Corpus]) -> None:
    corpus = corpora["streams"]
    bundle = trainer_for("streams", corpus, settings()).inner.bundle  # type: ignore[union-attr]
    phases = (Phase(share=0.5, length=8, batch_size=4), Phase(share=0.5, length=16, batch_size=2))
    job = Job(
        recipe="lstm-tiny", family="lstm", encoder={"kind": "recurrent", **bundle.config.to_json()},  # type: ignore[union-attr]
        outputs=("causal",), objective={"name": "streams"}, training=settings(phases=phases),
        corpus=str(corpus.folder), corpus_fingerprint=corpus.fingerprint, budget="10steps",
    )  # fmt: skip
    with pytest.raises(OptionError, match="equally many rows"):
        Pretraining.set_up(job, corpus, Devices(torch.device("cpu")))
    packed = trainer_for("streams", corpus, settings(varied=True)).settings
    with pytest.raises(OptionError, match="Rows of varied lengths are for streams"):
        Pretraining.set_up(
            Job.from_json({**job.to_json(), "training": packed.to_json(), "objective": {"name": "causal"}}),
            corpus,
            Devices(torch.device("cpu")),
        )

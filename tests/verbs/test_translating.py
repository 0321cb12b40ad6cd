"""Pretraining on texts in pairs, from the command line to a translation."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.corpus.corpus import Corpus
from polyseme.errors import OptionError, PolysemeError, PolysemeWarning
from polyseme.training.effects import read_log

BOOK = {
    "the": "die",
    "dawn": "dämmerung",
    "broke": "zerbrach",
    "a": "eine",
    "vase": "vase",
    "and": "und",
    "news": "nachricht",
    "of": "von",
    "it": "ihm",
    "came": "kam",
}
SMALL: dict[str, Any] = {
    "recipe": "transformer-tiny",
    "vocab_size": 300,
    "batch_size": 16,
    "length": 48,
    "learning_rate": 4e-3,
    "shape": {"n_layers": 1, "width": 48, "n_heads": 4, "inner_width": 96, "decoder_layers": 1, "dropout_rate": 0.0}
    | {"embedding_dropout_rate": 0.0},
    "device": "cpu",
    "log_every": 10,
}


def translated(words: list[str]) -> str:
    """Word for word, from the last to the first."""
    return " ".join(BOOK[word] for word in words[::-1])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    draw = random.Random(1)
    texts = [draw.choices(list(BOOK), k=draw.randint(2, 5)) for _ in range(1200)]
    folder = tmp_path_factory.mktemp("sides")
    sides = {"source": [" ".join(words) for words in texts], "target": [translated(words) for words in texts]}
    for name, lines in sides.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: folder / name for name in sides}


@pytest.fixture(scope="module")
def run(sides: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(sides, tmp_path_factory.mktemp("runs") / "run", "50steps")


def trained(sides: dict[str, Path], folder: Path, budget: str) -> Path:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(**sides, output=folder, budget=budget, **SMALL)  # type: ignore[arg-type]
    return folder


def test_a_small_model_begins_to_learn(run: Path) -> None:
    assert last_held_out(run) < 0.7 * Corpus.open(run / "corpus").unigram_entropy("held")


def last_held_out(run: Path) -> float:
    held: list[float] = [line["held_out"]["translation"] for line in read_log(run) if "held_out" in line]
    return held[-1]


@pytest.mark.slow
def test_a_small_model_learns_to_translate(sides: dict[str, Path], tmp_path: Path) -> None:
    run = trained(sides, tmp_path / "run", "180steps")
    assert last_held_out(run) < 0.35 < Corpus.open(run / "corpus").unigram_entropy("held")
    model = polyseme.load(run, device="cpu")
    for text in ("dawn broke a vase", "news of it", "the vase came"):
        assert model.generate(text, max_new=30, beam=2) == [translated(text.split())]


def test_the_model_is_trained_further_on_its_corpus(run: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "shape": None, "vocab_size": None, "learning_rate": 1e-4}
    polyseme.pretrain(run / "corpus", output=tmp_path / "more", model=run, budget="3steps", **settings)
    first, last = (read_log(each)[at]["loss"] for each, at in ((tmp_path / "more", 0), (run, -1)))
    assert first == pytest.approx(last, rel=0.15)


def test_by_command(sides: dict[str, Path], run: Path, tmp_path: Path) -> None:
    named = ["--source", str(sides["source"]), "--target", str(sides["target"])]
    done = CliRunner().invoke(
        main, ["corpus", *named, "--tokenizer", str(run / "model"), "-o", str(tmp_path / "pairs")]
    )
    assert done.exit_code == 0, done.output
    assert "documents" in done.output
    assert Corpus.open(tmp_path / "pairs").sides == ("source", "target")
    shape = [f"--set={name}={value}" for name, value in SMALL["shape"].items()]
    done = CliRunner().invoke(
        main,
        ["pretrain", str(tmp_path / "pairs"), "--recipe=transformer-tiny", "--budget=2steps", "--batch-size=4",
         "--length=48", "--device=cpu", *shape, "-o", str(tmp_path / "run")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["pretrain", *named[:2], "--recipe=transformer-tiny", "-o", str(tmp_path / "no")])
    assert done.exit_code != 0
    assert "'source' was given without 'target'" in done.output
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": "bert-tiny", "shape": None}, "learns from plain text, and .* is of texts in pairs"),
        ({"recipe": "bart-tiny", "shape": None}, "learns from plain text"),
        ({"mask_documents": True}, "supports neither mask_documents nor reset_positions"),
        ({"objective": {"smoothing": 2}}, "smoothing of labels"),
        ({"batch_size": 5000}, "smaller than a batch"),
        ({"shape": {**SMALL["shape"], "decoder_layers": None}}, "needs a decoder .* only an encoder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], said: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(PolysemeError, match=said):
        polyseme.pretrain(
            run / "corpus", output=tmp_path / "no", budget="2steps", **{**SMALL, "vocab_size": None, **changes}
        )
    assert list(tmp_path.iterdir()) == []


def test_plain_text_is_no_pairs(sides: dict[str, Path], tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(sides["source"], output=tmp_path / "plain", documents="line", vocab_size=60)
    with pytest.raises(OptionError, match=r"learns from texts in pairs, and .* is plain text.*--source FILE --target"):
        polyseme.pretrain(tmp_path / "plain", output=tmp_path / "no", budget="2steps", **{**SMALL, "vocab_size": None})


# --- recurrent stacks -------------------------------------------------------------------------------------------------

RECURRENT: dict[str, Any] = {
    "recipe": "seq2seq-attention",
    "vocab_size": 300,
    "batch_size": 32,
    "length": 32,
    "learning_rate": 1e-2,
    "shape": {"token_width": 32, "width": 16, "n_layers": 1, "decoder_layers": 1, "init_std": 0.5}
    | {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0},
    "device": "cpu",
    "log_every": 20,
}


@pytest.fixture(scope="module")
def recurrent(sides: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent") / "run"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(**sides, output=folder, budget="100steps", **RECURRENT)  # type: ignore[arg-type]
    return folder


def test_a_recurrent_model_learns_to_translate(recurrent: Path) -> None:
    assert last_held_out(recurrent) < 0.7 * Corpus.open(recurrent / "corpus").unigram_entropy("held")
    model = polyseme.load(recurrent, device="cpu")
    texts = ["dawn broke a vase", "news of it"]
    together = model.generate(texts, max_new=12, beam=3)
    assert together == [model.generate(text, max_new=12, beam=3)[0] for text in texts]
    right, wrong = model.score([translated(texts[1].split()), "vase vase vase"], source=texts[1:] * 2)
    assert right.totals.log_prob > wrong.totals.log_prob


def test_its_encoder_gives_word_vectors(recurrent: Path, tmp_path: Path) -> None:
    """CoVe: the states of the encoder, of either layer; the decoder's too, with the text on both sides."""
    texts = tmp_path / "texts.txt"
    texts.write_text("dawn broke\nthe vase broke\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["embed", str(texts), "-m", str(recurrent), "-o", str(tmp_path / "cove.npz")])
    assert done.exit_code == 0, done.output
    model = polyseme.load(recurrent, device="cpu")
    [first], [second] = model.embed(["dawn broke"]), model.embed(["the vase broke"])
    assert first.vectors.shape == (2, 32)
    assert abs(first.vectors[1] - second.vectors[2]).max() > 1e-3, "a word's vector depends on its context"
    [decoded] = model.embed(["dawn broke"], stack="decoder")
    assert decoded.vectors.shape == (2, 32)


def test_a_frozen_encoder_below_the_network_of_cove(recurrent: Path, tmp_path: Path) -> None:
    """Whether a text has a vase in it, by the biattentive classification network."""
    draw = random.Random(2)
    for split, n_texts in (("train", 256), ("dev", 32)):
        texts = [" ".join(draw.sample(list(BOOK), k=3)) for _ in range(n_texts)]
        lines = [f"{text}\t{'yes' if 'vase' in text else 'no'}\n" for text in texts]
        (tmp_path / f"{split}.tsv").write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")
    report = polyseme.finetune(
        "classify",
        train=tmp_path / "train.tsv",
        dev=tmp_path / "dev.tsv",
        model=recurrent,
        frozen=True,
        head="bcn",
        inner_width=16,
        dropout=0.0,
        learning_rate=1e-2,
        epochs=12,
        batch_size=32,
        output=tmp_path / "model",
        device="cpu",
    )
    assert report.seeds[0].dev["accuracy"] >= 0.95
    texts = ["came the vase", "came the dawn"]
    predicted = polyseme.predict(texts, model=tmp_path / "model", device="cpu").predictions
    assert [each.label for each in predicted] == ["yes", "no"]


def test_pairs_in_rows_of_their_own(recurrent: Path, tmp_path: Path) -> None:
    """What is read is counted without padding; rows that pairs share are refused."""
    ledger = json.loads((recurrent / "ledger.json").read_text())
    corpus = Corpus.open(recurrent / "corpus")
    per_pair = corpus.n_pieces("train") / corpus.n_documents("train") / 2
    assert ledger["pieces"] == pytest.approx(100 * 32 * per_pair, rel=0.1)
    with pytest.raises(OptionError, match="packed=false"):
        polyseme.pretrain(
            recurrent / "corpus",
            output=tmp_path / "no",
            budget="2steps",
            **{**RECURRENT, "vocab_size": None, "objective": {"packed": True}},
        )
    assert list(tmp_path.iterdir()) == []

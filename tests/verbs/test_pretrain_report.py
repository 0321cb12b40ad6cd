"""What a run reports of what it has learned: its loss beside the unigram entropy, and its learning curve."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.corpus.corpus import Corpus
from polyseme.errors import PolysemeWarning
from polyseme.training.effects import read_log
from polyseme.training.energy_ledger import Ledger
from polyseme.training.run_job import PausedRun
from training.kills import SETTINGS, write_text

SMALL: dict[str, Any] = {**SETTINGS, "vocab_size": None, "budget": "4steps", "evaluate_every": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(folder / "text.txt", output=folder / "corpus", vocab_size=300, held_out=0.1)
    return folder / "corpus"


def unigram(folder: Path) -> float:
    """The entropy, piece by piece."""
    corpus = Corpus.open(folder)
    train, held = (
        Counter(int(piece) for shard in corpus.shards(split) for piece in shard.pieces if piece != corpus.separator)
        for split in ("train", "held")
    )
    n_train = sum(train.values()) + 0.5 * corpus.tokenizer.n_pieces
    nats = sum(count * -math.log((train[piece] + 0.5) / n_train) for piece, count in held.items())
    return nats / sum(held.values())


def test_a_run_says_how_far_it_is_below_the_unigram_entropy(corpus: Path, tmp_path: Path) -> None:
    bill = polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL)
    assert isinstance(bill, Ledger)
    assert bill.unigram_entropy == pytest.approx(unigram(corpus), rel=1e-12)
    assert bill.held_out == read_log(tmp_path / "run")[-1]["held_out"]["masked"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["unigram_entropy"] == bill.unigram_entropy
    written = Ledger.from_json(json.loads((tmp_path / "run" / "ledger.json").read_text()))
    assert (written.held_out, written.unigram_entropy) == (bill.held_out, bill.unigram_entropy)
    gap = bill.unigram_entropy - bill.held_out
    gained = f"{abs(gap):.2f} {'below' if gap >= 0 else 'above'}"
    entropy = f"{bill.unigram_entropy:.2f}"
    assert bill.lines()[0] == f"held-out loss {bill.held_out:.2f} nats, {gained} the unigram entropy of {entropy}"


def test_the_generator_counts_where_there_is_one(corpus: Path, tmp_path: Path) -> None:
    changes = {"recipe": "electra-small", "shape": {**SETTINGS["shape"], "embedding_width": 8}}
    bill = polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, **changes})
    assert isinstance(bill, Ledger)
    assert bill.held_out == read_log(tmp_path / "run")[-1]["held_out"]["masked"] < 10
    assert bill.unigram_entropy == pytest.approx(unigram(corpus))


def test_a_run_in_slices_says_the_same(corpus: Path, tmp_path: Path) -> None:
    whole = polyseme.pretrain(corpus, output=tmp_path / "whole", **SMALL)
    result = polyseme.pretrain(corpus, output=tmp_path / "cut", **SMALL, stop_after="0.001s")
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "cut", device="cpu", stop_after="0.001s")
    assert result.lines()[0] == whole.lines()[0]


def test_the_mean_of_checkpoints_is_evaluated(corpus: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "learning_rate": 0.05, "checkpoint_every": 1}
    bill = polyseme.pretrain(corpus, output=tmp_path / "run", **settings, average_checkpoints=2)
    assert isinstance(bill, Ledger)
    assert bill.held_out is not None
    last = read_log(tmp_path / "run")[-1]["held_out"]["masked"]
    assert bill.held_out == pytest.approx(last, rel=0.2)
    assert bill.held_out != last


def test_the_command_line_prints_it(corpus: Path, tmp_path: Path) -> None:
    options = ["--budget=2steps", "--batch-size=8", "--length=16", "--device=cpu", "--recipe=bert-tiny"]
    options += [f"--set={name}={value}" for name, value in SETTINGS["shape"].items()]
    done = CliRunner().invoke(main, ["pretrain", str(corpus), "-o", str(tmp_path / "run"), *options])
    assert done.exit_code == 0, done.output
    assert f"the unigram entropy of {unigram(corpus):.2f}" in done.output


# --- the learning curve -----------------------------------------------------------------------------------------------


def drawn(run: Path) -> dict[str, Any]:
    """The texts of a curve, and how many points each of its lines has."""
    picture = ElementTree.fromstring((run / "curve.svg").read_text())
    space = "{http://www.w3.org/2000/svg}"
    paths = [each.get("d", "") for each in picture.iter(f"{space}path")]
    return {
        "texts": [each.text for each in picture.iter(f"{space}text")],
        "points": [path.count("L") + 1 for path in paths if "h" not in path],
        "circles": len(list(picture.iter(f"{space}circle"))),
    }


def test_a_run_draws_its_learning_curve(corpus: Path, tmp_path: Path) -> None:
    bill = polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL)
    assert isinstance(bill, Ledger)
    curve = drawn(tmp_path / "run")
    assert curve["points"] == [2, 4, 2], "the entropy, four steps, two evaluations"
    assert curve["circles"] == 2
    assert curve["texts"][0] == "bert-tiny: run"
    assert {"training", f"held-out ({bill.held_out:.2f})", f"unigram entropy ({bill.unigram_entropy:.2f})"} <= {
        *curve["texts"]
    }


def test_it_is_redrawn_at_each_evaluation_of_each_slice(corpus: Path, tmp_path: Path) -> None:
    result = polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL, stop_after="0.001s")
    assert not (tmp_path / "run" / "curve.svg").exists(), "after one step there is no evaluation yet"
    circles = []
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "run", device="cpu", stop_after="0.001s")
        circles.append(drawn(tmp_path / "run")["circles"])
    assert circles == [1, 1, 2]


def test_it_needs_no_matplotlib(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*filter(lambda name: name.startswith("matplotlib."), sys.modules), "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    options = ["--budget=2steps", "--batch-size=8", "--length=16", "--device=cpu", "--recipe=bert-tiny"]
    options += [f"--set={name}={value}" for name, value in SETTINGS["shape"].items()]
    done = CliRunner().invoke(main, ["pretrain", str(corpus), "-o", str(tmp_path / "run"), *options])
    assert done.exit_code == 0, done.output
    assert drawn(tmp_path / "run")["circles"] == 2

"""Models that a run keeps on its way, at numbers of words (`keep_at_words`)."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.training.checkpoint import read_regular
from polyseme.training.models_at_words import kept_models, numbers_of_words
from polyseme.training.run_job import PausedRun
from polyseme.training.trainer import WEIGHTS, named_under
from training.kills import SETTINGS, write_text

SMALL: dict[str, Any] = {**SETTINGS, "vocab_size": None, "budget": "8steps"}
PIECES = 8 * 16
"""Of a step."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(folder / "text.txt", output=folder / "corpus", vocab_size=60)
    return folder / "corpus"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words_after(corpus: Path, step: int) -> int:
    """By the bits of the shards."""
    shard = Corpus.open(corpus).shards("train")[0]
    n_words = int(shard.starts().sum()) - shard.counts.documents
    return round(step * PIECES * n_words / len(shard))


def test_models_are_kept_at_the_first_step_with_so_many_words(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    numbers = [words_after(corpus, 2), words_after(corpus, 4) + 1]
    assert numbers[0] < 2 * PIECES, "some words are of several pieces"
    often = {"checkpoint_every": 1, "keep_checkpoints": 8}
    polyseme.pretrain(corpus, output=run, **{**SMALL, **often}, keep_at_words=numbers)
    assert sorted(each.name for each in (run / "at-words").iterdir()) == sorted(map(str, numbers))
    for number, step in zip(numbers, (2, 5), strict=True):
        seen = json.loads((run / "at-words" / str(number) / "seen.json").read_text())
        assert seen == {"words": words_after(corpus, step), "pieces": step * PIECES, "step": step}
    models = kept_models(run)
    assert [each.seen.step for each in models] == [2, 5, 8]
    assert models[-1].seen.words == pytest.approx(words_after(corpus, 8), abs=2)
    for model, checkpoint in zip(models, read_regular(run / "checkpoints")[1::3], strict=True):
        tensors = named_under(f"{WEIGHTS}encoder.", checkpoint.tensors)
        assert checkpoint.step == model.seen.step
        for name, each in polyseme.load(model.folder, device="cpu").bundle.encoder.named_parameters():
            assert torch.equal(each, tensors[name]), name


def test_a_run_in_slices_keeps_the_same(corpus: Path, tmp_path: Path) -> None:
    numbers = [words_after(corpus, 2), words_after(corpus, 2) - 1, words_after(corpus, 5)]
    polyseme.pretrain(corpus, output=tmp_path / "whole", **SMALL, keep_at_words=numbers)
    result = polyseme.pretrain(corpus, output=tmp_path / "cut", **SMALL, keep_at_words=numbers, stop_after="0.001s")
    while isinstance(result, PausedRun):
        result = polyseme.pretrain(resume=tmp_path / "cut", device="cpu", stop_after="0.001s")
    assert files(tmp_path / "cut" / "at-words") == files(tmp_path / "whole" / "at-words")
    assert len(list((tmp_path / "cut" / "at-words").iterdir())) == 3


def test_averages_and_generators_are_kept_too(corpus: Path, tmp_path: Path) -> None:
    changes = {"recipe": "electra-small", "shape": {**SETTINGS["shape"], "embedding_width": 8}}
    run, number = tmp_path / "run", words_after(corpus, 8)
    polyseme.pretrain(corpus, output=run, **{**SMALL, **changes}, keep_at_words=[number], ema=0.5)
    kept = files(run / "at-words" / str(number))
    for part, folder in (("", "model"), ("generator/", "generator")):
        saved = {name: content for name, content in files(run / folder).items() if name != "README.md"}
        assert all(kept[f"{part}{name}"] == content for name, content in saved.items())
    assert polyseme.load(run / "at-words" / str(number) / "generator", device="cpu").fill("the [MASK] broke")
    assert kept_models(run / "generator")[0].folder == run / "at-words" / str(number) / "generator"


def test_numbers_that_the_run_does_not_get_to_are_warned_of(corpus: Path, tmp_path: Path) -> None:
    n_words = words_after(corpus, 8)
    with pytest.warns(PolysemeWarning, match=f"about {n_words:,} words, so no model is kept at 1,000,000 "):
        polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL, keep_at_words="100,1M")
    assert [each.name for each in (tmp_path / "run" / "at-words").iterdir()] == ["100"]


def test_numbers_are_written_in_short() -> None:
    assert numbers_of_words("1M, 10M,100m,1.5k") == (1500, 10**6, 10**7, 10**8)
    assert numbers_of_words(("2_000", 7, "7", "1B")) == (7, 2000, 10**9)
    assert numbers_of_words(()) == ()


@pytest.mark.parametrize("numbers", ["10X", "0", "1.5", "-3", "1M,,2M", "many", (0,), ("1e6",)])
def test_what_is_no_number_of_words_is_refused(numbers: Any, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="A number of words must be whole and at least 1, as in 500k"):
        polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL, keep_at_words=numbers)
    assert not (tmp_path / "run").exists()


def test_sources_count_as_often_as_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("\n\n".join(["a b a b c"] * 40))
    (tmp_path / "long.txt").write_text("\n\n".join(["abcabc cababc"] * 40))
    sources = {"short": (tmp_path / "short.txt", 3.0), "long": (tmp_path / "long.txt", 1.0)}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        built = polyseme.build_corpus(sources, output=tmp_path / "corpus", vocab_size=12, held_out=0.0)
    short, long = (source.counts["text"]["train"] for source in built.sources)
    assert long.words / long.pieces < 0.7 < short.words / short.pieces
    assert built.words_per_piece == pytest.approx((3 * short.words + long.words) / (3 * short.pieces + long.pieces))

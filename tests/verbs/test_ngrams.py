"""n-gram models and mixtures as users meet them: pretrain, score, evaluate, generate, convert, interpolate."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

import polyseme
from polyseme.errors import InputError, ModelError, OptionError, OutputError, PolysemeWarning
from polyseme.ngrams import counting
from polyseme.scoring.mixture import fit_weights
from polyseme.training import counting_run

TEXT = Path(__file__).parents[1] / "golden" / "ngrams" / "text.txt"
LINES = TEXT.read_text().splitlines()

pytestmark = pytest.mark.filterwarnings("ignore:The text is too small")


def trained(output: Path, **options: object) -> polyseme.Model:
    settings = {"tokenizer": "blanks", "documents": "line", "held_out": 0.0, **options}
    polyseme.pretrain(TEXT, recipe="kneser-ney", output=output, **settings)  # type: ignore[arg-type]
    return polyseme.load(output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a model of order 3."""
    output = tmp_path_factory.mktemp("runs") / "kn3"
    trained(output, shape={"order": 3})
    return output


@pytest.fixture(scope="module")
def bigrams(folder: Path) -> Path:
    """One of order 2 with the same tokenizer."""
    trained(folder.with_name("kn2"), shape={"order": 2, "smoothing": "interpolated"}, tokenizer=str(folder / "model"))
    return folder.with_name("kn2")


def test_a_run_has_a_model_a_card_and_a_ledger(folder: Path) -> None:
    assert sorted(each.name for each in folder.iterdir()) == ["corpus", "ledger.json", "model", "run.json"]
    ledger = json.loads((folder / "ledger.json").read_text())
    assert ledger["pieces"] == sum(len(line.split()) + 1 for line in LINES)
    assert ledger["kwh"] > 0
    assert "order 3 (modified Kneser–Ney)" in (folder / "model" / "README.md").read_text()


def test_held_out_text_is_not_counted_but_reported(tmp_path: Path) -> None:
    ledger = polyseme.pretrain(
        TEXT, recipe="kneser-ney", output=tmp_path / "run", documents="line", held_out=0.25, shape={"order": 2}
    )
    assert isinstance(ledger, counting_run.Ledger)
    assert ledger.pieces < sum(len(line.split()) + 1 for line in LINES)
    assert ledger.held_out is not None
    assert 0 < ledger.held_out < math.log(60)
    assert ledger.lines()[0].startswith("held-out loss")


def test_scores_are_the_same_from_folder_and_file(folder: Path, tmp_path: Path) -> None:
    polyseme.convert_model(model=folder, to="arpa", output=tmp_path / "kn3.arpa.gz")
    texts = ["the dog broke the silence .", "boats at dawn"]
    one, other = (polyseme.load(each).score(texts) for each in (folder, tmp_path / "kn3.arpa.gz"))
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine.word_log_probs, theirs.word_log_probs, rtol=1e-7)
    polyseme.convert_model(model=tmp_path / "kn3.arpa.gz", output=tmp_path / "folder")
    again = polyseme.load(tmp_path / "folder").score(texts)
    np.testing.assert_array_equal(again[0].piece_log_probs, other[0].piece_log_probs)


def test_unknown_words_are_reported_with_their_share(folder: Path) -> None:
    with pytest.warns(PolysemeWarning, match=r"1 word .* unknown word \(25.0% of 4\)"):
        polyseme.load(folder).score(["the zebra slept ."])


def test_wikitext2_counts_the_ends_of_lines(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "wiki.test.tokens"
    path.write_text(f" {LINES[0]} \n \n {LINES[1]} \n")
    report = polyseme.evaluate("wikitext2", data=tmp_path, model=folder)
    model = polyseme.load(folder).model  # type: ignore[attr-defined]
    words = [[model.tokenizer.backend.token_to_id(word) for word in line.split()] + [model.lead] for line in LINES[:2]]
    pieces, starts = np.concatenate(words), np.array([0, len(words[0])])
    expected = model.tables.log_probs_of(model.states_before(pieces, starts), pieces)
    assert report.lines[0].n == len(pieces) == len(LINES[0].split()) + len(LINES[1].split()) + 2
    assert report["all"]["log_prob"] == pytest.approx(expected.sum())
    assert report["all"]["perplexity"] == pytest.approx(math.exp(-expected.mean()))


def test_wikitext2_wants_a_model_that_predicts_from_left_to_right(tmp_path: Path) -> None:
    (tmp_path / "wiki.test.tokens").write_text("a b\n")
    with pytest.raises(OptionError, match="predicts from both sides"):
        polyseme.evaluate("wikitext2", data=tmp_path, model="english-encoder")
    (tmp_path / "wiki.test.tokens").write_text(" \n\n")
    with pytest.raises(InputError, match="nothing in it but blanks"):
        polyseme.evaluate("wikitext2", data=tmp_path, model="english-encoder")


def test_it_writes_on_from_prompts_and_from_nothing(folder: Path) -> None:
    model = polyseme.load(folder)
    assert model.generate(["the old", ""], greedy=True, max_new=3) == [" dog slept in", "the dog ."]
    with_all = model.generate(["the old", ""], seed=4, max_new=5)
    assert with_all[0] == model.generate(["the old"], seed=4, max_new=5)[0]


def test_likely_pieces_can_be_asked_for(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lambada_test.jsonl").write_text(json.dumps({"text": "the dog went to sleep"}) + "\n")
    report = polyseme.evaluate("lambada", data=tmp_path, model=folder)
    assert report["all"]["accuracy"] in (0.0, 1.0)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\nthe dog slept\tdog the slept\n")
    assert polyseme.evaluate(str(pairs), model=folder)["all"]["accuracy"] == 1.0


def test_what_takes_an_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    model = polyseme.load(folder)
    refused = "is an n-gram model: .* has no encoder"
    with pytest.raises(ModelError, match=refused):
        model.embed(["the dog"])
    with pytest.raises(ModelError, match=refused):
        model.fill("the [MASK]")
    with pytest.raises(ModelError, match=refused):
        polyseme.embed(["the dog"], model=folder, output=tmp_path / "x.parquet")
    with pytest.raises(ModelError, match=refused):
        polyseme.convert_model(model=folder, to="transformers", output=tmp_path / "x")
    with pytest.raises(ModelError, match=refused):
        polyseme.pretrain(TEXT, model=folder, output=tmp_path / "x", recipe="gpt-tiny")
    with pytest.raises(OptionError, match="A neural cache keeps states"):
        model.score(["the dog"], neural_cache=True)
    with pytest.raises(OptionError, match="change the order"):
        model.score(["the dog"], order="right-to-left")
    assert list(tmp_path.iterdir()) == []
    assert "embed" not in model.show().can


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"shape": {"order": 0}}, OptionError, "from 1 on. Got 0"),
        ({"shape": {"oder": 3}}, OptionError, "no setting 'oder'. Did you mean 'order'"),
        ({"budget": "3min"}, OptionError, "budget would change nothing"),
        ({"dry_run": True}, OptionError, "dry_run would change nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: dict[str, object], error: type[Exception], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=reason):
        trained(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError):
        polyseme.pretrain(tmp_path / "empty.txt", recipe="kneser-ney", output=tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


def test_counting_that_was_killed_begins_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, output = polyseme.load(folder), tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(counting_run, "estimate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(counting_run.shutil, "rmtree", lambda *_, **__: None)  # as if nothing could be cleared up
        with pytest.raises(KeyboardInterrupt):
            trained(output, shape={"order": 3})
    assert (output / counting_run.UNFINISHED).is_dir()
    assert not (output / "model").exists()
    again = trained(output, shape={"order": 3})
    assert again.fingerprints() == whole.fingerprints()
    assert not (output / counting_run.UNFINISHED).exists()
    with pytest.raises(OutputError, match="finished"):
        trained(output, shape={"order": 3})


def test_a_run_is_resumed_by_its_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(counting_run, "count_ngrams", lambda *_, **__: os.abort)
        with pytest.raises(AttributeError):
            trained(tmp_path / "run", shape={"order": 3})
    polyseme.pretrain(resume=tmp_path / "run")
    assert polyseme.load(tmp_path / "run").fingerprints() == polyseme.load(folder).fingerprints()


def test_small_blocks_give_the_same_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "BLOCK", 11)
    assert trained(tmp_path / "run", shape={"order": 3}).fingerprints() == polyseme.load(folder).fingerprints()


# --- mixtures ---------------------------------------------------------------------------------------------------------


def test_a_mixture_is_the_weighted_sum_and_never_worse(folder: Path, bigrams: Path, tmp_path: Path) -> None:
    held_out = ["the old dog broke the vase .", "the boats went out at dusk ."]
    result = polyseme.interpolate(model=[folder, bigrams], source=held_out, output=tmp_path / "mixed")
    assert sum(result.weights) == pytest.approx(1)
    assert result.perplexity <= min(result.perplexities) * (1 + 1e-9)
    mixed, *parts = (polyseme.load(each).score(held_out) for each in (tmp_path / "mixed", folder, bigrams))
    for place, text in enumerate(mixed):
        each = np.exp([part[place].piece_log_probs for part in parts])
        np.testing.assert_allclose(np.exp(text.piece_log_probs), np.array(result.weights) @ each, rtol=1e-12)
    assert sum(each.totals.log_prob for each in mixed) == pytest.approx(-result.n_pieces * math.log(result.perplexity))
    text = polyseme.load(tmp_path / "mixed").generate("the old", greedy=True, max_new=2)
    assert len(text[0].split()) == 2


def test_weights_are_those_of_the_largest_likelihood() -> None:
    log_probs = np.log(np.random.default_rng(0).uniform(0.01, 1, (2, 200)))
    fitted = fit_weights(log_probs).weights
    tried = np.linspace(0, 1, 2001)
    likelihood = np.log(tried[:, None] * np.exp(log_probs[0]) + (1 - tried[:, None]) * np.exp(log_probs[1])).mean(
        axis=1
    )
    assert fitted[0] == pytest.approx(tried[likelihood.argmax()], abs=1e-3)


def test_models_of_different_words_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    other = trained(tmp_path / "other", tokenizer="words", shape={"order": 1}, vocab_size=20)
    with pytest.raises(ModelError, match="different tokenizers"):
        polyseme.interpolate(model=[folder, other], source=["a b"], output=tmp_path / "mixed")
    with pytest.raises(OptionError, match="two models at least"):
        polyseme.interpolate(model=[folder], source=["a b"])
    with pytest.raises(InputError, match="nothing to fit"):
        polyseme.interpolate(model=[folder, folder], source=[" "])
    assert not (tmp_path / "mixed").exists()


def test_the_folder_of_a_run_stands_for_its_tokenizer(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Dawn broke on day {day} ." for day in range(40)), encoding="utf-8")
    settings = {"recipe": "kneser-ney", "tokenizer": "blanks"}
    polyseme.pretrain(text, output=tmp_path / "first", **settings)
    polyseme.pretrain(text, output=tmp_path / "second", **settings | {"tokenizer": str(tmp_path / "first")})
    tokenizers = [polyseme.load(tmp_path / name).show().tokenizer for name in ("first", "second")]
    assert tokenizers[0] == tokenizers[1]

"""Models as other libraries open them: sentence-transformers' folders, word2vec's files; and what does not fit."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import KeyedVectors

import polyseme
from conformance.cases import REFERENCED
from embedding.sentence_folders import sentence_folder
from polyseme.convert.families import FAMILIES
from polyseme.errors import InputError, ModelError, OptionError, OutputError
from polyseme.files import chunks
from tiny_models import TEXT, tiny_model

TEXTS = ["The vase broke.", "Dawn broke, didn't it?", "a crane"]
LINES = [line for line in TEXT.splitlines() if line]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of a small model of each family."""
    root, made = tmp_path_factory.mktemp("models"), set[str]()

    def folder(family: str = "bert") -> Path:
        if family not in made:
            tiny_model(family).save(root / family)
            made.add(family)
        return root / family

    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def text_vectors(folder: Path, texts: list[str] = TEXTS, **options: Any) -> Any:
    documents = polyseme.load(folder, device="cpu").embed(texts, per="text", **options)
    return np.concatenate([document.vectors for document in documents])


# --- sentence-transformers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [None, "first", "last", "max"])
def test_a_folder_for_sentence_transformers(folders: Any, tmp_path: Path, pool: str | None) -> None:
    """Its text vectors are those of the model it was made of, pooled so; files are as that library writes them."""
    output = tmp_path / "st"
    polyseme.convert_model(model=folders(), to="sentence-transformers", output=output, text_pool=pool)
    expected = text_vectors(folders(), text_pool=pool or "mean")
    assert np.array_equal(text_vectors(output), expected)
    modules = json.loads((output / "modules.json").read_text())
    assert [(each["path"], each["type"].rpartition(".")[2]) for each in modules] == [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
    ]
    pooling = json.loads((output / "1_Pooling" / "config.json").read_text())
    assert [key for key, value in pooling.items() if value is True] == [
        {None: "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}.get(
            pool, "pooling_mode_max_tokens"
        )
    ]
    assert json.loads((output / "sentence_bert_config.json").read_text())["max_seq_length"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*REFERENCED} - {"bart"}))
def test_sentence_transformers_opens_it(folders: Any, tmp_path: Path, family: str) -> None:
    from sentence_transformers import SentenceTransformer

    polyseme.convert_model(model=folders(family), to="sentence-transformers", output=tmp_path / "st")
    theirs = SentenceTransformer(str(tmp_path / "st"), device="cpu")
    for batch_size in (1, 3):  # with padding, too
        vectors = theirs.encode(TEXTS, batch_size=batch_size)
        ours = text_vectors(tmp_path / "st")
        assert np.abs(vectors - ours).max() <= 1e-5 * np.abs(ours).max()


def test_a_model_with_modules_keeps_them(folders: Any, tmp_path: Path) -> None:
    folder = sentence_folder(folders(), tmp_path / "theirs", "mean", further=True)
    polyseme.convert_model(model=folder, to="sentence-transformers", output=tmp_path / "st")
    assert (tmp_path / "st" / "modules.json").read_bytes() == (folder / "modules.json").read_bytes()
    assert np.array_equal(text_vectors(tmp_path / "st"), text_vectors(folder))
    polyseme.convert_model(model=folder, to="sentence-transformers", output=tmp_path / "other", text_pool="max")
    assert not list((tmp_path / "other").glob("*_Dense"))
    assert np.array_equal(text_vectors(tmp_path / "other"), text_vectors(folder, text_pool="max"))
    assert (tmp_path / "st" / "README.md").read_bytes() == (folder / "README.md").read_bytes()
    assert (tmp_path / "other" / "README.md").read_text().endswith("\n\n# A card\n")


@pytest.mark.parametrize(
    "family", ["elmo", "lstm", "seq2seq", "transformer", "causal-transformer", "transfo-xl", "bart"]
)
def test_models_that_do_not_fit_are_refused(folders: Any, tmp_path: Path, family: str) -> None:
    reason = "has two stacks" if family == "bart" else "transformers has no class for it"
    with pytest.raises(ModelError, match=reason):
        polyseme.convert_model(model=folders(family), to="sentence-transformers", output=tmp_path / "out")
    if FAMILIES[family].reference is None:
        with pytest.raises(ModelError, match=f"no class for models of the family {family}"):
            polyseme.convert_model(model=folders(family), to="transformers", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- word2vec ---------------------------------------------------------------------------------------------------------


def means_of_uses(model: Path, lines: list[str], min_count: int, **options: Any) -> dict[str, Any]:
    """By definition: every type that occurs so often, with the mean of its vectors."""
    uses: dict[str, list[Any]] = defaultdict(list)
    for document in polyseme.load(model, device="cpu").embed(lines, **options):
        for word, vector in zip(document.words, document.vectors, strict=True):
            uses[str(word)].append(vector.astype(np.float64))
    return {word: np.mean(vectors, axis=0) for word, vectors in uses.items() if len(vectors) >= min_count}


@pytest.mark.parametrize("ending", [".vec", ".bin"])
def test_gensim_reads_the_means(folders: Any, source: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / f"words{ending}"
    cost = polyseme.convert_model(
        model=folders(), to="word2vec", source=source, output=output, min_count=2, layer=1, device="cpu"
    )
    assert cost is not None
    assert cost.words > 100
    expected = means_of_uses(folders(), LINES, 2, layer=1)
    vectors = KeyedVectors.load_word2vec_format(str(output), binary=ending == ".bin")
    assert set(vectors.key_to_index) == set(expected)
    for word, vector in expected.items():
        assert np.allclose(vectors[word], vector, atol=1e-5)


def test_text_and_binary_hold_the_same_numbers_the_most_frequent_word_first(
    folders: Any, source: Path, tmp_path: Path
) -> None:
    for ending in (".vec", ".bin"):
        polyseme.convert_model(
            model=folders(), to="word2vec", source=source, output=tmp_path / f"words{ending}", device="cpu"
        )
    text = KeyedVectors.load_word2vec_format(str(tmp_path / "words.vec"))
    binary = KeyedVectors.load_word2vec_format(str(tmp_path / "words.bin"), binary=True)
    assert text.index_to_key == binary.index_to_key
    assert text.index_to_key[0] == "."
    assert np.array_equal(text.vectors, binary.vectors)


def test_words_by_lowercase_and_with_blanks(folders: Any, tmp_path: Path) -> None:
    source = tmp_path / "words.jsonl"
    source.write_text('{"words": ["The", "New York", "the"]}\n{"words": ["the", "New York"]}\n')
    with pytest.warns(polyseme.PolysemeWarning, match="2 uses are of words with blanks"):
        polyseme.convert_model(
            model=folders(),
            to="word2vec",
            source=source,
            output=tmp_path / "w.txt",
            min_count=1,
            lowercase=True,
            device="cpu",
        )
    assert KeyedVectors.load_word2vec_format(str(tmp_path / "w.txt")).index_to_key == ["the", "new_york"]


def test_stopped_work_is_resumed(folders: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 100)
    options: dict[str, Any] = {"model": folders(), "to": "word2vec", "source": source, "min_count": 1, "device": "cpu"}
    polyseme.convert_model(**options, output=tmp_path / "whole.vec")

    calls = iter(range(5))

    def stop(done: int, total: int | None) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        polyseme.convert_model(**options, output=tmp_path / "words.vec", progress=stop)
    assert not (tmp_path / "words.vec").exists()
    with pytest.warns(polyseme.PolysemeWarning, match="Resumed: an earlier run had done"):
        polyseme.convert_model(**options, output=tmp_path / "words.vec")
    assert (tmp_path / "words.vec").read_bytes() == (tmp_path / "whole.vec").read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


# --- what cannot be ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a target": ({"to": "word2vek"}, OptionError, r"no target 'word2vek'. Did you mean 'word2vec'\?"),
    "no texts": ({"to": "word2vec"}, OptionError, r"Name the texts: --in texts/"),
    "an ending": ({"to": "word2vec", "source": "texts.txt", "output": "w.npz"}, OutputError, "no format of word2vec"),
    "a count": (
        {"to": "word2vec", "source": "texts.txt", "min_count": 0},
        OptionError,
        "at least once. Got min_count 0",
    ),
    "all layers": ({"to": "word2vec", "source": "texts.txt", "layer": "all"}, OptionError, r"Use concat:0:-1"),
    "rare words": (
        {"to": "word2vec", "source": "texts.txt", "min_count": 99},
        InputError,
        "No word of the input occurs 99",
    ),
    "an option of another": ({"min_count": 3}, OptionError, "'min_count' is for --to word2vec. Leave it out"),
    "a folder's option": ({"to": "word2vec", "store": "bf16"}, OptionError, "'store' is for --to polyseme and"),
    "a pooling": ({"to": "sentence-transformers", "text_pool": "men"}, OptionError, "Did you mean 'mean'"),
    "words": ({"to": "sentence-transformers", "text_pool": "words"}, OptionError, "has no mean over words"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be(folders: Any, source: Path, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, error, message = REFUSED[case]
    options = {"output": "w.vec" if options.get("to") == "word2vec" else "out", **options}
    with pytest.raises(error, match=message):
        polyseme.convert_model(model=folders(), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]

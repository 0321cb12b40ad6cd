"""`ContextualVectorizer`: features by definition, and a scikit-learn estimator by scikit-learn's own tests."""

from __future__ import annotations

import importlib
import io
import pickle
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars
import pytest
from numpy.typing import NDArray
from sklearn import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_array

import polyseme.sklearn.inputs
import polyseme.sklearn.vectorizer
from polyseme.api import Model
from polyseme.errors import InputError, MissingPackageError, ModelError, OptionError, PolysemeWarning
from polyseme.sklearn import ContextualVectorizer
from tiny_models import tiny_model

TEXTS = ["Dawn broke.", "Sandy broke the world record.", "A crane caught a fish.", "I saw a crane.", "We broke even."]
LABELS = [1, 1, 0, 0, 1]
WIDTH = 32


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("models") / "bert"
    model.save(place)
    return str(place)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders that are loaded in a test, which begins with none kept."""
    seen: list[str] = []

    def load(model: Path, **settings: Any) -> Model:
        seen.append(str(model))
        return polyseme.load(model, **settings)

    polyseme.sklearn.inputs._load_once.cache_clear()
    monkeypatch.setattr(polyseme.sklearn.inputs, "load", load)
    yield seen
    polyseme.sklearn.inputs._load_once.cache_clear()


# --- what the features are --------------------------------------------------------------------------------------------


def test_a_text_is_the_mean_of_its_words(model: Model, folder: str) -> None:
    found = ContextualVectorizer(folder, layer="mean:-2:-1", pool="first").fit_transform(TEXTS)
    documents = model.embed(TEXTS, layer="mean:-2:-1", pool="first")
    assert (found.shape, found.dtype) == ((len(TEXTS), WIDTH), np.float32)
    np.testing.assert_allclose(found, [each.vectors.mean(axis=0) for each in documents], atol=1e-6)


def test_words_stand_one_below_the_other(model: Model, folder: str) -> None:
    found = ContextualVectorizer(folder, per="word").fit_transform(TEXTS)
    np.testing.assert_allclose(found, np.concatenate([each.vectors for each in model.embed(TEXTS)]), atol=1e-5)


@pytest.mark.parametrize("per", ["text", "word"])
def test_texts_come_in_many_forms(folder: str, per: Any) -> None:
    vectorizer = ContextualVectorizer(folder, per=per)
    expected = vectorizer.transform(TEXTS)
    for form in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object), pd.Series(TEXTS), iter(TEXTS)):
        np.testing.assert_array_equal(vectorizer.fit_transform(form), expected)


def test_lists_of_words_are_kept_as_they_are(model: Model, folder: str) -> None:
    words = [["Dawn", "broke."], ["We", "broke", "even."]]
    found = ContextualVectorizer(folder, per="word").transform(words)
    np.testing.assert_allclose(found, np.concatenate([each.vectors for each in model.embed(words)]), atol=1e-5)
    assert len(found) == 5


@pytest.mark.parametrize("per", ["text", "word"])
def test_many_texts_go_through_in_chunks(folder: str, per: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectorizer = ContextualVectorizer(folder, per=per)
    at_once = vectorizer.transform(TEXTS)
    monkeypatch.setattr(polyseme.sklearn.vectorizer, "CHUNK_CHARACTERS", 20)
    np.testing.assert_allclose(vectorizer.transform(TEXTS), at_once, atol=1e-5 * np.abs(at_once).max())


def test_a_text_without_words_gets_zeros_and_that_is_said_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polyseme.sklearn.vectorizer, "CHUNK_CHARACTERS", 1)
    with pytest.warns(PolysemeWarning) as said:
        found = ContextualVectorizer(folder).transform(["Dawn broke.", "", " \n", "Dawn broke."])
    [warning] = said
    assert str(warning.message).startswith("2 texts have no words")
    np.testing.assert_array_equal(found.any(axis=1), [True, False, False, True])


def test_words_of_a_text_without_words_are_none(folder: str) -> None:
    vectorizer = ContextualVectorizer(folder, per="word")
    np.testing.assert_array_equal(vectorizer.transform(["", "Dawn", ""]), vectorizer.transform(["Dawn"]))
    assert vectorizer.transform([""]).shape == vectorizer.transform([]).shape == (0, WIDTH)


def test_words_that_the_tokenizer_makes_nothing_of_are_counted_once(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polyseme.sklearn.vectorizer, "CHUNK_CHARACTERS", 1)
    with pytest.warns(PolysemeWarning, match="makes nothing of 2 words") as said:
        ContextualVectorizer(folder).transform([["\u200b"], ["Dawn"], ["\u200b"]])
    assert len(said) == 1


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("Dawn broke.", "must come as a list or another iterable. Got one str"),
        (None, "Got one NoneType"),
        (pd.DataFrame({"text": TEXTS}), "Got a DataFrame with 2 dimensions: choose one column"),
        (np.array(TEXTS)[:, None], "Got a ndarray with 2 dimensions"),
        (["Dawn broke.", None], "Text 1 must be a string or a list of words. Got a NoneType"),
        (["Dawn broke.", float("nan")], "Text 1 must be a string or a list of words. Got a float"),
        ([["Dawn", ""]], "Text 0: Word 1 of the list"),
        (np.arange(3), "Text 0 must be a string or a list of words."),
    ],
)
@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
def test_what_are_not_texts_is_refused(folder: str, method: str, texts: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        getattr(ContextualVectorizer(folder), method)(texts)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"per": "words"}, "Features are per text or per word. Got 'words'. Did you mean 'word'?"),
        ({"layer": "all"}, "Use concat:0:-1."),
        ({"layer": 99}, "Layer '99' is not there"),
        ({"pool": "men"}, "Did you mean 'mean'?"),
        ({"batch_pieces": 0}, "at least 1 piece"),
        ({"device": "gpu"}, "There is no device 'gpu'"),
        ({"dtype": "float32"}, "There is no dtype 'float32'"),
    ],
)
def test_settings_are_refused_by_fit(folder: str, settings: Any, said: str) -> None:
    """Not by the constructor: scikit-learn's estimators take any setting until they are fitted."""
    vectorizer = ContextualVectorizer(folder, **settings)
    with pytest.raises(OptionError) as refusal:
        vectorizer.fit(TEXTS)
    assert said in str(refusal.value)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    for name in [name for name in sys.modules if name.startswith("polyseme.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingPackageError, match=r"'sklearn' is needed .* pip install 'polyseme\[sklearn\]'"):
        importlib.import_module("polyseme.sklearn")


# --- an estimator -----------------------------------------------------------------------------------------------------


class OfNumbers(ContextualVectorizer):
    """Each row of numbers as a text of numerals, so that scikit-learn's checks, which feed numbers, have work to do."""

    def fit(self, X: Any, y: object = None) -> OfNumbers:  # noqa: N803
        super().fit(numerals(X), y)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        return super().transform(numerals(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def numerals(rows: Any) -> list[str]:
    return [" ".join(f"{number:.3g}" for number in row) for row in check_array(rows)]


NOT_HELD = dict.fromkeys(
    ["check_n_features_in", "check_n_features_in_after_fitting"],
    "a text has no number of features; scikit-learn's own text vectorizers set no n_features_in_ either",
)


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.EstimatorCheckFailedWarning")
def test_scikit_learn_finds_nothing_else_wrong(folder: str) -> None:
    """In fp64, since its checks of order and of parts allow for less than fp32 gives."""
    results = check_estimator(OfNumbers(folder, device="cpu", dtype="fp64"), expected_failed_checks=NOT_HELD)
    by_status = {status: {each["check_name"] for each in results if each["status"] == status} for status in STATUSES}
    assert by_status["xfail"] == set(NOT_HELD)
    assert by_status["skipped"] <= {"check_array_api_input"}
    assert len(by_status["passed"]) > 30


STATUSES = ("passed", "xfail", "skipped", "failed")


def test_scikit_learn_knows_that_it_takes_text(folder: str) -> None:
    """Then it checks nothing by itself but cloning, as for its own text vectorizers."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator"):
        results = check_estimator(ContextualVectorizer(folder))
    assert {each["status"] for each in results} == {"passed"}
    tags = get_tags(ContextualVectorizer())
    assert tags.input_tags.string
    assert not tags.requires_fit


def test_parameters_are_had_set_and_cloned(folder: str) -> None:
    settings = {"model": folder, "layer": 1, "pool": "max", "per": "word", "text_pool": "words", "batch_pieces": 64}
    vectorizer = ContextualVectorizer(**settings, device="cpu", dtype="fp64")
    assert vectorizer.get_params() == {**settings, "device": "cpu", "dtype": "fp64"}
    assert clone(vectorizer).get_params() == vectorizer.get_params()
    assert vectorizer.set_params(layer=0).layer == 0
    assert vectorizer.fit(TEXTS) is vectorizer


@pytest.mark.parametrize("layer", [-1, "concat:-2:-1"])
def test_features_have_names(folder: str, layer: Any) -> None:
    vectorizer = ContextualVectorizer(folder, layer=layer)
    width = vectorizer.transform(TEXTS).shape[1]
    assert list(vectorizer.get_feature_names_out()) == [f"contextualvectorizer{n}" for n in range(width)]


def test_features_come_as_a_frame(folder: str) -> None:
    vectorizer = ContextualVectorizer(folder)
    expected = vectorizer.transform(TEXTS)
    texts = pd.Series(TEXTS, index=list("abcde"))
    frame = vectorizer.set_output(transform="pandas").fit_transform(texts)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.index) == list("abcde")
    assert list(frame.columns) == list(vectorizer.get_feature_names_out())
    np.testing.assert_array_equal(frame, expected)
    assert isinstance(clone(vectorizer).transform(texts), pd.DataFrame)
    assert isinstance(vectorizer.set_output(transform="polars").transform(TEXTS), polars.DataFrame)


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_pickle_holds_no_weights_and_loads_its_model_when_it_is_used(folder: str, loads: list[str]) -> None:
    vectorizer = ContextualVectorizer(folder, layer=1, device="cpu")
    expected = vectorizer.fit_transform(TEXTS)
    written = pickle.dumps(vectorizer)
    assert len(written) < 1000 + len(folder)
    polyseme.sklearn.inputs._load_once.cache_clear()
    read = pickle.loads(written)
    assert len(loads) == 1
    np.testing.assert_array_equal(read.transform(TEXTS), expected)
    assert len(loads) == 2


def test_a_model_is_loaded_once_and_again_when_its_files_have_changed(tmp_path: Path, loads: list[str]) -> None:
    place = tmp_path / "bert"
    tiny_model("bert").save(place)
    first = ContextualVectorizer(place).transform(TEXTS)
    np.testing.assert_array_equal(ContextualVectorizer(str(place)).transform(TEXTS), first)
    assert len(loads) == 1
    tiny_model("bert", n_layers=1).save(place, force=True)
    assert not np.allclose(ContextualVectorizer(place).transform(TEXTS), first)
    assert len(loads) == 2


def test_a_model_that_is_not_there_is_explained() -> None:
    with pytest.raises(ModelError, match="There is no model at 'nowhere'"):
        ContextualVectorizer("nowhere").fit(TEXTS)


def test_a_loaded_model_is_shared_by_clones(model: Model) -> None:
    vectorizer = ContextualVectorizer(model)
    assert clone(vectorizer).model is model
    documents = model.embed(TEXTS)
    found = clone(vectorizer).fit_transform(TEXTS)
    np.testing.assert_allclose(found, [each.vectors.mean(axis=0) for each in documents], atol=1e-6)


@pytest.mark.parametrize("dump", [pickle.dumps, lambda each: joblib.dump(each, io.BytesIO())], ids=["pickle", "joblib"])
def test_a_loaded_model_is_not_pickled(folder: str, dump: Any) -> None:
    with pytest.raises(ModelError) as refusal:
        dump(ContextualVectorizer(polyseme.load(folder)))
    assert f"Give it the model's path instead: {folder!r}." in str(refusal.value)


def test_a_loaded_model_keeps_its_own_device_and_dtype(model: Model) -> None:
    with pytest.raises(OptionError, match="A loaded model has its own device and dtype"):
        ContextualVectorizer(model, dtype="bf16").fit(TEXTS)


# --- at work ----------------------------------------------------------------------------------------------------------


def test_in_a_pipeline_over_texts(folder: str) -> None:
    pipeline = make_pipeline(ContextualVectorizer(folder), KNeighborsClassifier(1)).fit(TEXTS, LABELS)
    assert pipeline.predict(TEXTS).tolist() == LABELS
    assert pickle.loads(pickle.dumps(pipeline)).predict(TEXTS).tolist() == LABELS


def test_in_a_pipeline_over_words(folder: str) -> None:
    """Tags of all words, one after another."""
    sentences = [["Dawn", "broke"], ["A", "crane", "caught", "a", "fish"]]
    tags = ["NOUN", "VERB", "DET", "NOUN", "VERB", "DET", "NOUN"]
    tagger = make_pipeline(ContextualVectorizer(folder, per="word"), KNeighborsClassifier(1)).fit(sentences, tags)
    assert tagger.predict(sentences).tolist() == tags
    assert tagger.predict(sentences[1:]).tolist() == tags[2:]
    assert tagger.score(sentences, tags) == 1


def test_on_one_column_of_a_table(folder: str) -> None:
    table = pd.DataFrame({"text": TEXTS, "length": [len(text) for text in TEXTS]})
    columns = ColumnTransformer(
        [("vectors", ContextualVectorizer(folder), "text"), ("rest", "passthrough", ["length"])]
    )
    assert columns.fit_transform(table).shape == (len(TEXTS), WIDTH + 1)
    with pytest.raises(InputError, match="choose one column"):
        columns.set_params(transformers=[("vectors", ContextualVectorizer(folder), ["text"])]).fit(table)


@pytest.mark.parametrize("given", ["path", "model"])
def test_in_a_search_over_layers_and_pools_one_model_is_loaded(
    folder: str, model: Model, given: str, loads: list[str]
) -> None:
    vectors = ContextualVectorizer(folder if given == "path" else model)
    pipeline = Pipeline([("vectors", vectors), ("classes", KNeighborsClassifier(1))])
    grid = {"vectors__layer": [0, 1, "mean:0:-1"], "vectors__pool": ["first", "mean"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS[:4] * 2, LABELS[:4] * 2)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_estimator_.predict(TEXTS[:4]).tolist() == LABELS[:4]
    assert len(loads) == (1 if given == "path" else 0)


def test_a_pipeline_remembers_vectors(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `memory`, a search over a classifier's settings embeds once."""
    calls: list[int] = []
    transform = ContextualVectorizer.transform

    def counted(self: ContextualVectorizer, X: Any) -> Any:  # noqa: N803
        calls.append(len(X))
        return transform(self, X)

    monkeypatch.setattr(ContextualVectorizer, "transform", counted)
    pipeline = make_pipeline(ContextualVectorizer(folder), LogisticRegression(), memory=str(tmp_path))
    for strength in (0.1, 1.0, 10.0):
        pipeline.set_params(logisticregression__C=strength).fit(TEXTS, LABELS)
    assert len(calls) == 1


@pytest.mark.slow
def test_workers_load_the_model_for_themselves(folder: str) -> None:
    pipeline = make_pipeline(ContextualVectorizer(folder, device="cpu"), KNeighborsClassifier(1))
    grid = {"contextualvectorizer__layer": [0, -1]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise").fit(TEXTS[:4] * 2, LABELS[:4] * 2)
    assert search.predict(TEXTS[:4]).tolist() == LABELS[:4]


def test_the_example_tells_praise_from_blame(data: Path) -> None:
    """On real sentences: far better than the most frequent label, and better than word counts."""
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "sklearn_sentiment.py"))
    example["compare"].__globals__["LAYERS"] = layers = (0, -1)  # two show that one is chosen
    accuracies, layer = example["compare"](data / "tasks" / "sst2", None, 120, 120)
    assert accuracies["word vectors"] > accuracies["the most frequent label"] + 0.1
    assert accuracies["word vectors"] > accuracies["word counts"] + 0.05
    assert layer in map(str, layers)

"""`ContextualClassifier` and `ContextualTagger`: what finetune does, and scikit-learn estimators by its own tests."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

import polyseme
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.metrics.task_metrics import count_spans
from polyseme.sklearn import ContextualClassifier, ContextualTagger
from polyseme.tasks.items import TaskData
from polyseme.tasks.splits import with_dev
from tiny_models import tiny_model
from transfer import small_tasks

FROZEN: dict[str, Any] = {"epochs": 10, "learning_rate": 0.03, "batch_size": 16}
TAGGING: dict[str, Any] = {**FROZEN, "layer": 0, "head": "linear"}
TUNED: dict[str, Any] = {"tune": True, "head": "linear", "epochs": 6, "learning_rate": 1e-2, "batch_size": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("models") / "t5"
    tiny_model("t5").save(place)
    return str(place)


def texts_and_labels(n: int, seed: int = 1) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    items = [small_tasks.classify(draw) for _ in range(n)]
    return [item.text for item in items], [item.gold for item in items]


def sentences_and_tags(n: int, seed: int = 1) -> tuple[list[list[str]], list[list[str]]]:
    draw = random.Random(seed)
    items = [small_tasks.tag(draw) for _ in range(n)]
    return [list(item.words) for item in items], [list(item.gold) for item in items]


TRAIN, TEST = texts_and_labels(160), texts_and_labels(60, seed=2)
TAGGED, TAGGED_TEST = sentences_and_tags(160), sentences_and_tags(40, seed=2)
FEW, FEW_TAGGED = ([each[:40] for each in of_all] for of_all in (TRAIN, TAGGED))
"""Where nothing is to be learned from them."""


# --- what they learn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [FROZEN, TUNED], ids=["frozen", "tuned"])
def test_a_classifier_learns(folder: str, how: dict[str, Any]) -> None:
    classifier = ContextualClassifier(folder, **how).fit(*TRAIN)
    assert classifier.classes_.tolist() == ["bad", "good"]
    assert classifier.score(*TEST) > 0.85
    shares = classifier.predict_proba(TEST[0])
    assert shares.shape == (60, 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert classifier.classes_[shares.argmax(axis=1)].tolist() == classifier.predict(TEST[0]).tolist()
    assert classifier.report_.mode == ("tuned" if how is TUNED else "frozen")


@pytest.mark.parametrize("how", [TAGGING, pytest.param(TUNED, marks=pytest.mark.slow)], ids=["frozen", "tuned"])
def test_a_tagger_learns(folder: str, how: dict[str, Any]) -> None:
    tagger = ContextualTagger(folder, **how).fit(*TAGGED)
    assert tagger.classes_.tolist() == ["B", "G", "O"]
    assert tagger.score(*TAGGED_TEST) > 0.7
    found = tagger.predict(TAGGED_TEST[0])
    shares = tagger.predict_proba(TAGGED_TEST[0])
    for words, tags, its in zip(TAGGED_TEST[0], found, shares, strict=True):
        assert its.shape == (len(words), 3)
        assert tagger.classes_[its.argmax(axis=1)].tolist() == tags
    assert tagger.score(*TAGGED_TEST) == pytest.approx(np.mean(np.concatenate(found) == np.concatenate(TAGGED_TEST[1])))


def test_it_is_what_finetune_gives(folder: str) -> None:
    """The same items, settings and seed: the same report."""
    items = [small_tasks.Item(text=text, gold=label) for text, label in zip(*TRAIN, strict=True)]
    train, dev = with_dev(items)
    data = TaskData(
        name="texts",
        kind="classify",
        labels=("bad", "good"),
        splits={"train": train, "dev": dev},
        metrics=("accuracy", "f1"),
    )
    settings: dict[str, Any] = {"epochs": 2, "learning_rate": 0.02, "head": "mlp", "layer": 1}
    expected = polyseme.finetune(data, model=folder, frozen=True, seeds=[7], **settings)
    report = ContextualClassifier(folder, seed=7, **settings).fit(*TRAIN).report_
    assert report.seeds[0].curve == expected.seeds[0].curve
    assert report.settings == expected.settings


def test_a_seed_decides_and_nothing_else(folder: str) -> None:
    def shares(seed: int) -> NDArray[np.float64]:
        return ContextualClassifier(folder, epochs=1, seed=seed).fit(*FEW).predict_proba(TEST[0])

    np.testing.assert_array_equal(shares(0), shares(0))
    assert np.abs(shares(0) - shares(1)).max() > 1e-3


def test_a_text_is_judged_by_itself(folder: str) -> None:
    """In another order, alone or among others: to what single precision allows."""
    for how in (FROZEN, TUNED):
        classifier = ContextualClassifier(folder, **{**how, "epochs": 1}).fit(*FEW)
        at_once = classifier.predict_proba(TEST[0])
        np.testing.assert_allclose(classifier.predict_proba(TEST[0][::-1])[::-1], at_once, atol=1e-5)
        np.testing.assert_allclose(classifier.predict_proba(TEST[0][:1]), at_once[:1], atol=1e-5)


@pytest.mark.parametrize(
    "labels", [[3, 1], np.array([2.0, 5.0]), [True, False], pd.Series(["x", "y"])], ids=["int", "float", "bool", "str"]
)
def test_classes_keep_their_kind(folder: str, labels: Any) -> None:
    given = np.array([labels[0] if label == "good" else labels[1] for label in FEW[1]])
    classifier = ContextualClassifier(folder, epochs=1).fit(pd.Series(FEW[0]), given)
    assert classifier.classes_.tolist() == sorted(set(given.tolist()))
    found = classifier.predict(TEST[0])
    assert found.dtype == given.dtype
    assert set(found.tolist()) <= set(given.tolist())


def test_tags_may_be_numbers(folder: str) -> None:
    numbers = [[("B", "G", "O").index(tag) for tag in tags] for tags in TAGGED[1]]
    tagger = ContextualTagger(folder, **TAGGING).fit(TAGGED[0], numbers)
    assert tagger.classes_.tolist() == [0, 1, 2]
    assert isinstance(tagger.predict(TAGGED[0][:1])[0][0], int)
    assert tagger.score(TAGGED[0], numbers) > 0.7


def test_words_that_are_given_are_kept(folder: str) -> None:
    classifier = ContextualClassifier(folder, epochs=1).fit([text.split() for text in FEW[0]], FEW[1])
    shares = classifier.predict_proba([["the", "crane", "."], "the crane ."])
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-5)


# --- spans ------------------------------------------------------------------------------------------------------------


def spans(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Neighbors that are good are a span."""
    sentences, tags = sentences_and_tags(n, seed)
    marked = [
        [
            tag if tag != "G" else f"{'I' if number and its[number - 1] == 'G' else 'B'}-G"
            for number, tag in enumerate(its)
        ]
        for its in tags
    ]
    return sentences, [[tag if tag != "B" else "O" for tag in its] for its in marked]


@pytest.mark.parametrize("head", ["linear", "crf"])
def test_spans_are_scored_as_conlleval_does(folder: str, head: str) -> None:
    tagger = ContextualTagger(folder, metric="span_f1", **{**TAGGING, "head": head}).fit(*spans(160, 1))
    sentences, gold = spans(40, 2)
    found = tagger.predict(sentences)
    assert tagger.score(sentences, gold) == count_spans(gold, found).all.f1 > 0.3
    assert tagger.report_.metrics == ("span_f1", "word_accuracy")
    if head == "crf":
        assert all(
            tag != "I-G" or (number and tags[number - 1] != "O") for tags in found for number, tag in enumerate(tags)
        )


def test_invalid_tags_are_refused_or_repaired(folder: str) -> None:
    sentences, tags = spans(60, 1)
    sentences.append(["the", "crane", "ball"])
    tags.append(["O", "I-G", "I-G"])
    with pytest.raises(InputError, match=r"^Text 60: .*, at word 2, 'crane'\. .* \(repair=True\)"):
        ContextualTagger(folder, epochs=1).fit(sentences, tags)
    tagger = ContextualTagger(folder, epochs=1, repair=True).fit(sentences, tags)
    assert any("repaired" in note for note in tagger.report_.notes)
    assert tagger.classes_.tolist() == ["B-G", "I-G", "O"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"head": "bilstms"}, "There is no head 'bilstms'. Did you mean 'bilstm'?"),
        ({"layer": 99}, "Layer '99' is not there"),
        ({"stack": "decodr"}, "There is no stack 'decodr'. Did you mean 'decoder'?"),
        ({"epochs": 0}, "The epochs of a fine-tuning must be at least 1. Got 0 instead."),
        ({"learning_rate": -1}, "must be above 0"),
        ({"dev": 1.0}, "must be from 0 to below 1. Got 1.0 instead."),
        ({"seed": 0.5}, "The seed must be a whole number. Got 0.5 instead."),
        ({"device": "gpu"}, "There is no device 'gpu'"),
    ],
)
def test_settings_are_refused_by_fit(folder: str, settings: Any, said: str) -> None:
    for estimator, data in (
        (ContextualClassifier(folder, **settings), TRAIN),
        (ContextualTagger(folder, **settings), TAGGED),
    ):
        with pytest.raises(OptionError) as refusal:
            estimator.fit(*data)
        assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["Dawn broke.", "I saw a crane."], ["a", "a"], "two classes or more"),
        (["Dawn broke.", "I saw a crane.", ""], ["a", "b", "a"], "Text 2: the text is empty"),
        (["Dawn broke.", "I saw a crane."], ["a"], "inconsistent numbers of samples"),
        (["Dawn broke.", "I saw a crane."], None, "y should be a 1d array"),
        (["Dawn broke.", "I saw a crane."], [0.5, 0.25], "Unknown label type"),
        ("Dawn broke.", ["a"], "must come as a list"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(folder: str, texts: Any, labels: Any, said: str) -> None:
    with pytest.raises((ValueError, InputError)) as refusal:
        ContextualClassifier(folder).fit(texts, labels)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("sentences", "tags", "said"),
    [
        (["Dawn broke"], [["N", "V"]], "Text 0 must be a list of words, each of which gets a tag. Got the string 'Da"),
        ([["Dawn", "broke"]], [["N"]], "Text 0: there are 2 words and 1 tags."),
        ([["Dawn", "broke"]], [["N", "V"], ["N"]], "There are 1 sentences and 2 lists of tags."),
        ([["Dawn", "broke"]], ["NV"], "Text 0: its tags must be a list, one per word. Got 'NV' instead."),
        ([["Dawn", "broke"]], [["N", None]], "must be a string or a whole number. Got None"),
        ([["Dawn", "broke"]], [["N", "N"]], "two tags or more"),
        ([["Dawn", "broke"]], None, "must come as one list of tags per sentence"),
    ],
)
def test_what_cannot_be_tagged_is_refused(folder: str, sentences: Any, tags: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        ContextualTagger(folder).fit(sentences, tags)
    assert said in str(refusal.value)


def test_a_metric_that_is_not_there(folder: str) -> None:
    with pytest.raises(OptionError, match="Did you mean 'span_f1'"):
        ContextualTagger(folder, metric="spanf1").fit(*TAGGED)


def test_what_is_not_fitted_says_so(folder: str) -> None:
    for estimator in (ContextualClassifier(folder), ContextualTagger(folder)):
        with pytest.raises(NotFittedError):
            estimator.predict([["Dawn", "broke"]])


def test_long_texts_to_learn_from_are_cut_where_the_encoder_is_tuned_and_that_is_said(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "bert")
    texts = ["the crane " * 20, "a fish " * 30, *TRAIN[0][2:]]
    tuned = ContextualClassifier(str(tmp_path / "bert"), **{**TUNED, "epochs": 1})
    with pytest.warns(PolysemeWarning, match=r"^2 texts were cut to 40 pieces \(max_pieces\)\.$") as said:
        tuned.fit(texts, TRAIN[1])
    assert [each.filename for each in said] == [__file__]
    frozen = ContextualClassifier(str(tmp_path / "bert"), **{**FROZEN, "epochs": 1}).fit(texts, TRAIN[1])
    one, other = frozen.predict_proba(["the crane " * 40 + "fish", "the crane " * 40 + "movie"])
    assert not np.array_equal(one, other)  # windows, to the end


def test_long_texts_are_cut_and_that_is_said(folder: str) -> None:
    classifier = ContextualClassifier(folder, **{**TUNED, "epochs": 1}, max_pieces=12)
    with pytest.warns(PolysemeWarning, match=r"^32 texts were cut to 12 pieces"):
        classifier.fit(*TRAIN)
    with pytest.warns(PolysemeWarning, match=r"^1 text was cut to 12 pieces \(max_pieces\)\.$"):
        classifier.predict(["the crane " * 20, "the crane"])


@pytest.mark.parametrize("how", [FROZEN, TUNED], ids=["frozen", "tuned"])
def test_an_empty_text_is_judged_and_that_is_said(folder: str, how: dict[str, Any]) -> None:
    classifier = ContextualClassifier(folder, **{**how, "epochs": 1}).fit(*FEW)
    with pytest.warns(PolysemeWarning, match=r"^1 text is empty\.$"):
        assert len(classifier.predict(["the crane", " "])) == 2
    assert len(classifier.predict([])) == 0


# --- estimators -------------------------------------------------------------------------------------------------------


class OfNumbers(ContextualClassifier):
    """Each row of numbers as a text of numerals, so that scikit-learn's checks, which feed numbers, have work to do."""

    def fit(self, X: Any, y: Any) -> OfNumbers:  # noqa: N803
        if y is None:
            raise ValueError("OfNumbers requires y to be passed, but the target y is None")
        checked, _ = validate_data(self, X, y, multi_output=True)
        super().fit(numerals(checked), y)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        if not hasattr(self, "classes_"):
            raise NotFittedError
        return super().predict_proba(numerals(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.classifier_tags.poor_score = True  # numerals, read by a tiny model that was never trained
        return tags


def numerals(rows: Any) -> list[str]:
    return [" ".join(f"{number:.2g}" for number in row) for row in rows]


NOT_HELD = {
    **dict.fromkeys(
        ["check_methods_subset_invariance", "check_methods_sample_order_invariance"],
        "in single precision a text's probabilities hang on its batch by 1e-7; see test_a_text_is_judged_by_itself",
    ),
}
STATUSES = ("passed", "xfail", "skipped", "failed")


@pytest.mark.filterwarnings("ignore:.* read as the unknown piece:polyseme.errors.PolysemeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.EstimatorCheckFailedWarning")
def test_scikit_learn_finds_nothing_else_wrong(folder: str) -> None:
    estimator = OfNumbers(folder, device="cpu", epochs=1, layer=0)
    results = check_estimator(estimator, expected_failed_checks=NOT_HELD, on_fail=None)
    wrong = {each["check_name"]: repr(each["exception"]) for each in results if each["status"] == "failed"}
    assert wrong == {}
    by_status = {status: {each["check_name"] for each in results if each["status"] == status} for status in STATUSES}
    assert by_status["xfail"] <= set(NOT_HELD)
    assert by_status["skipped"] <= {"check_array_api_input"}
    assert len(by_status["passed"]) > 40


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("kind", [ContextualClassifier, ContextualTagger])
def test_scikit_learn_knows_that_they_take_text(folder: str, kind: Any) -> None:
    """Then it checks nothing by itself but cloning, as for its own text vectorizers."""
    assert {each["status"] for each in check_estimator(kind(folder))} == {"passed"}
    tags = get_tags(kind())
    assert tags.input_tags.string
    assert tags.target_tags.required


@pytest.mark.parametrize("kind", [ContextualClassifier, ContextualTagger])
def test_parameters_are_had_set_and_cloned(kind: Any) -> None:
    settings: dict[str, Any] = {
        "model": "somewhere",
        "tune": True,
        "layer": 1,
        "head": "crf",
        "epochs": 3,
        "batch_size": 8,
    }
    settings["stack"] = "decoder"
    estimator = kind(**settings, learning_rate=1e-4, seed=5, device="cpu")
    assert {**estimator.get_params(), **settings} == estimator.get_params()
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(layer=0).layer == 0
    assert not hasattr(estimator, "classes_")


@pytest.mark.parametrize("how", [FROZEN, TUNED], ids=["frozen", "tuned"])
def test_pickles_hold_what_was_learnt(folder: str, how: dict[str, Any]) -> None:
    classifier = ContextualClassifier(folder, device="cpu", **{**how, "epochs": 1}).fit(*FEW)
    written = pickle.dumps(classifier)
    weights = (Path(folder) / "model.safetensors").stat().st_size
    assert (len(written) > weights) == (how is TUNED)
    read = pickle.loads(written)
    np.testing.assert_array_equal(read.predict_proba(TEST[0]), classifier.predict_proba(TEST[0]))
    assert read.classes_.tolist() == classifier.classes_.tolist()
    again = pickle.loads(pickle.dumps(pickle.loads(written)))
    np.testing.assert_array_equal(again.predict_proba(TEST[0]), classifier.predict_proba(TEST[0]))


def test_a_tuned_pickle_needs_no_model_and_a_frozen_one_the_same(tmp_path: Path) -> None:
    place = tmp_path / "bert"
    tiny_model("bert").save(place)
    frozen = ContextualTagger(place, epochs=1).fit(*FEW_TAGGED)
    tuned = ContextualTagger(place, **{**TUNED, "epochs": 1}).fit(*FEW_TAGGED)
    kept = pickle.dumps([frozen, tuned])
    tiny_model("bert", n_layers=1).save(place, force=True)
    frozen_again, tuned_again = pickle.loads(kept)
    assert tuned_again.predict(TAGGED_TEST[0]) == tuned.predict(TAGGED_TEST[0])
    with pytest.raises(
        ModelError, match=r"is not the one that this estimator's head was learned over.*fit the estimat"
    ):
        frozen_again.predict(TAGGED_TEST[0])


def test_a_loaded_model_stays_as_it_is_and_is_not_pickled(folder: str) -> None:
    model: Model = polyseme.load(folder)
    before = {name: each.clone() for name, each in model.bundle.named_parameters()}
    learns = {name: each.requires_grad for name, each in model.bundle.named_parameters()}
    for how in (FROZEN, TUNED):
        classifier = clone(ContextualClassifier(model, **{**how, "epochs": 1})).fit(*FEW)
        assert classifier.model is model
        with pytest.raises(ModelError, match="Give it the model's path instead"):
            pickle.dumps(classifier)
    assert all(each.equal(before[name]) for name, each in model.bundle.named_parameters())
    assert learns == {name: each.requires_grad for name, each in model.bundle.named_parameters()}


def test_either_stack_of_a_model_with_two_is_read(tmp_path: Path) -> None:
    tiny_model("bart").save(tmp_path / "bart")
    said = {}
    for stack in ("encoder", "decoder"):
        tagger = ContextualTagger(tmp_path / "bart", stack=stack, head="linear", epochs=1).fit(*FEW_TAGGED)
        assert tagger.report_.settings["stack"] == stack
        said[stack] = np.concatenate(tagger.predict_proba(TAGGED_TEST[0]))
        again = np.concatenate(pickle.loads(pickle.dumps(tagger)).predict_proba(TAGGED_TEST[0]))
        np.testing.assert_array_equal(again, said[stack])
    assert not np.allclose(said["encoder"], said["decoder"])


# --- at work ----------------------------------------------------------------------------------------------------------


def lowered(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]


def test_in_a_pipeline_and_a_search(folder: str, tmp_path: Path) -> None:
    classifier = ContextualClassifier(folder, cache=tmp_path / "vectors", **{**FROZEN, "epochs": 5})
    pipeline = make_pipeline(FunctionTransformer(lowered), classifier)
    grid = {"contextualclassifier__layer": [0, "mix"], "contextualclassifier__learning_rate": [1e-5, 0.02]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(*TRAIN)
    assert search.best_params_["contextualclassifier__learning_rate"] == 0.02
    assert search.score(*TEST) > 0.8
    assert (
        len(list((tmp_path / "vectors").iterdir())) == 2 * 2 * 3 + 2 + 1
    )  # layers, folds, their train, dev, rest; the whole; TEST
    read = pickle.loads(pickle.dumps(search))
    assert read.predict(TEST[0]).tolist() == search.predict(TEST[0]).tolist()


def test_a_tagger_in_a_search(folder: str) -> None:
    tagger = ContextualTagger(folder, **TAGGING)
    search = GridSearchCV(tagger, {"learning_rate": [1e-5, 0.02]}, cv=2, error_score="raise").fit(*TAGGED)
    assert search.best_params_ == {"learning_rate": 0.02}
    assert search.score(*TAGGED_TEST) > 0.7
    assert len(cross_val_score(clone(tagger).set_params(epochs=1), *FEW_TAGGED, cv=2)) == 2

"""spaCy's documents get one vector per token of theirs: that of `embed` with the same words."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.errors import InputError, ModelError, OptionError
from tiny_models import tiny_model

spacy = pytest.importorskip("spacy")

from polyseme.spacy import TokenVectors  # noqa: E402

TEXTS = [
    "Dawn broke. I didn't see any!",
    "",
    "A  crane\n\ncaught a fish .",
    "the vase, the vases! " * 30,
    "\n",
    "naïve Zoë broke $3.50",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spacy") / "model"
    tiny_model("bert").save(folder)
    return folder


def pipeline(model: Path, language: str = "xx", **options: Any) -> Any:
    nlp = spacy.blank(language)
    nlp.add_pipe("polyseme", config={"model": str(model), "device": "cpu", **options})
    return nlp


def assert_as_embedded(docs: list[Any], model: polyseme.Model, **options: Any) -> None:
    """Every token has the vector of `embed` with the same words, to 1e-6; blanks have zeros."""
    words = [[token for token in doc if not token.text.isspace()] for doc in docs]
    embedded = model.embed([[token.text for token in each] for each in words], **options)
    for doc, tokens, document in zip(docs, words, embedded, strict=True):
        assert len(doc.tensor) == len(doc)
        blanks = [token for token in doc if token.text.isspace()]
        assert not any(token.vector.any() or token.has_vector for token in blanks)
        assert all(token.has_vector for token in tokens)
        for token, vector in zip(tokens, document.vectors, strict=True):
            assert np.abs(token.vector - vector).max() <= 1e-6 * max(1, np.abs(vector).max())


@pytest.mark.parametrize("options", [{}, {"layer": "concat:0:-1", "pool": "first"}], ids=["usual", "layers"])
def test_every_token_has_the_vector_of_embed(tiny: Path, options: dict[str, Any]) -> None:
    nlp, model = pipeline(tiny, "en", **options), polyseme.load(tiny, device="cpu")
    assert_as_embedded([nlp(text) for text in TEXTS], model, **options)
    assert_as_embedded(list(nlp.pipe(TEXTS, batch_size=4)), model, **options)


def test_spans_and_documents_are_means_of_their_tokens(tiny: Path) -> None:
    doc = pipeline(tiny)(TEXTS[0])
    assert np.allclose(doc[1:4].vector, doc.tensor[1:4].mean(axis=0))
    assert np.allclose(doc.vector, doc.tensor.mean(axis=0))
    expected = doc[0].vector @ doc[1].vector / np.linalg.norm(doc[0].vector) / np.linalg.norm(doc[1].vector)
    assert doc[0].similarity(doc[1]) == pytest.approx(expected, abs=1e-5)
    assert doc.similarity(doc[:]) == pytest.approx(1, abs=1e-5)


def test_a_document_without_tokens_has_zeros(tiny: Path) -> None:
    nlp = pipeline(tiny)
    empty, full = nlp(""), nlp("Dawn broke")
    assert len(empty) == 0
    assert empty.vector.shape == full.vector.shape
    assert not empty.vector.any()
    assert not empty.has_vector
    assert empty.similarity(full) == 0


def test_static_vectors_give_way(tiny: Path) -> None:
    nlp = pipeline(tiny)
    nlp.vocab.set_vector("Dawn", np.ones(7, dtype=np.float32))
    doc = nlp("Dawn broke")
    assert doc[0].vector.shape == doc[:1].vector.shape == doc.vector.shape == (32,)
    assert doc[0].has_vector
    assert doc[:1].has_vector


@pytest.mark.parametrize("through", ["disk", "bytes"])
def test_a_pipeline_is_saved_by_reference(tiny: Path, tmp_path: Path, through: str) -> None:
    nlp = pipeline(tiny, layer=1)
    nlp(TEXTS[0])
    if through == "disk":
        nlp.to_disk(tmp_path / "pipeline")
        assert sum(path.stat().st_size for path in (tmp_path / "pipeline" / "polyseme").iterdir()) < 1000
        loaded = spacy.load(tmp_path / "pipeline")
    else:
        loaded = spacy.blank("xx")
        loaded.add_pipe("polyseme")
        loaded.from_bytes(nlp.to_bytes())
    assert loaded.get_pipe("polyseme").options == nlp.get_pipe("polyseme").options
    assert np.array_equal(loaded(TEXTS[0]).tensor, nlp(TEXTS[0]).tensor)


def test_what_the_config_says_comes_before_what_was_saved(tiny: Path, tmp_path: Path) -> None:
    """So that a pipeline can be opened where its model is in another place."""
    pipeline(tmp_path / "elsewhere", pool="last").to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline", config={"components": {"polyseme": {"model": str(tiny)}}})
    options = loaded.get_pipe("polyseme").options
    assert (options.model, options.pool) == (str(tiny), "last")
    assert loaded("Dawn broke")[0].has_vector


def test_it_pickles_without_the_model(tiny: Path) -> None:
    component = TokenVectors(model=str(tiny), device="cpu")
    before = component(spacy.blank("xx")("Dawn broke")).tensor
    pickled = pickle.dumps(component)
    assert len(pickled) < 1000
    assert np.array_equal(pickle.loads(pickled)(spacy.blank("xx")("Dawn broke")).tensor, before)


def test_what_cannot_be(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"spaCy has one per token. Use concat:0:-1"):
        pipeline(tiny, layer="all")
    with pytest.raises(ModelError, match="There is no model at"):
        pipeline(tmp_path / "nothing")("Dawn broke")
    with pytest.raises(InputError, match="Is the pipeline's folder whole"):
        TokenVectors().from_disk(tmp_path)
    with pytest.raises(OptionError, match=r"has no option 'poll'. Did you mean 'pool'"):
        TokenVectors().from_bytes(b'{"poll": "first"}')


def test_tokens_without_pieces_are_reported_once(tiny: Path) -> None:
    with pytest.warns(polyseme.PolysemeWarning, match="no pieces for 3 words ") as warned:
        list(pipeline(tiny).pipe(["日", "Dawn", "日", "日"], batch_size=1))
    assert len(warned) == 1
    with pytest.warns(polyseme.PolysemeWarning, match=r"no pieces for 1 word \(100\.0% of 1\),"):
        pipeline(tiny)("日")


def test_a_batch_that_fails_goes_to_the_handler(tiny: Path) -> None:
    nlp = pipeline(tiny)
    failed: list[str] = []
    nlp.set_error_handler(lambda name, component, docs, error: failed.extend(doc.text for doc in docs))
    nlp.get_pipe("polyseme")._embed = lambda docs, embedder: 1 / (len(docs) - 1)
    assert [doc.text for doc in nlp.pipe(["One.", "Two.", "Three."], batch_size=2)] == ["One.", "Two."]
    assert failed == ["Three."]


def test_the_pipeline_finds_it_by_its_name() -> None:
    """The entry point names the factory."""
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.spacy_factories]\npolyseme = "polyseme.spacy:make_component"' in pyproject


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The model.s tokenizer has no pieces:polyseme.PolysemeWarning")
def test_a_thousand_documents(real_text: Callable[[str, int], str]) -> None:
    lines = [line for line in real_text("wiki-00", 1_000_000).splitlines() if line.strip()][:1000]
    assert len(lines) == 1000
    nlp = spacy.blank("en")
    nlp.add_pipe("polyseme", config={"device": "cpu"})
    assert_as_embedded(list(nlp.pipe(lines, batch_size=64)), polyseme.load(device="cpu"))

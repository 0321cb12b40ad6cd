"""Results are short when they are printed, whatever their size, and a notebook shows them as tables and pictures."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.errors import PolysemeWarning
from polyseme.result_tables import MOST_ROWS, ResultList, Table
from tiny_models import tiny_model
from transfer.small_tasks import small_task


def lines_of(result: Any) -> list[str]:
    return repr(result).splitlines()


def test_a_model_says_family_size_and_path(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "model")
    shown = repr(polyseme.load(tmp_path / "model", device="cpu"))
    assert re.fullmatch(
        rf"Model\(bert, 3 layers of width 32, [\d.]+ K parameters, float32 on cpu, {tmp_path}/model\)", shown
    )
    assert "from no folder" in repr(tiny_model("bert"))
    assert str(tmp_path / "model") in repr(polyseme.load(tmp_path / "model", device="cpu").show())


def test_many_documents_are_a_short_table() -> None:
    model = tiny_model("bert")
    with pytest.warns(PolysemeWarning, match="no pieces for"):
        documents = model.embed(["the <b>vase"] * 500 + ["the vase"])
    assert isinstance(documents, list)
    lines = lines_of(documents)
    assert lines[0] == "501 documents, 2,502 vectors of 32 float32"
    assert lines[1].split() == ["id", "vectors", "text"]
    assert len(lines) == 2 + MOST_ROWS
    assert lines[-1].split() == ["500", "2", "the", "vase"]
    html = documents._repr_html_()
    assert html.count("<tr>") == 1 + MOST_ROWS
    assert "&lt;b&gt;" in html
    assert "<b>vase" not in html
    assert repr(documents[-1]) == "EmbeddedDocument('the vase', id '500', 2 words, vectors 2×32 float32)"
    assert "<" in str(documents[0]._repr_html_())
    assert type(pickle.loads(pickle.dumps(documents))) is list


def test_a_long_text_takes_one_line() -> None:
    [document] = tiny_model("bert").embed(["word " * 3000])
    assert len(repr(document)) < 150
    assert len(lines_of(tiny_model("bert").pieces("the vase broke " * 5))) <= 2 + MOST_ROWS


def test_a_fine_tuning_is_a_few_lines_and_in_a_notebook_its_page() -> None:
    report = polyseme.finetune(
        small_task("classify", n_train=32, n_dev=8), model=tiny_model("bert"), frozen=True, epochs=1, device="cpu"
    )
    assert len(lines_of(report)) < 15
    assert "baseline on dev" in repr(report)
    page = report._repr_html_()
    assert page.startswith('<iframe sandbox="allow-scripts"')
    assert "&lt;svg" in page


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
def test_senses_and_neighbors_are_a_few_lines_and_in_a_notebook_a_page() -> None:
    model = tiny_model("bert")
    texts = [f"the vase broke {number}" for number in range(60)]
    senses = polyseme.senses("broke", source=texts, model=model, n_senses=2)
    near = polyseme.similar("the dawn [broke]", source=texts, model=model, top=30)
    lines = lines_of(senses)
    assert lines[0] == "broke in the list of texts: 2 senses in 60 uses"
    assert lines[2].split()[:3] == ["1", str(senses.senses[0].n_uses), senses.senses[0].id]
    assert len(lines) == 5
    assert senses._repr_html_().startswith('<iframe sandbox="allow-scripts"')
    assert lines_of(near)[0] == "uses near the dawn [broke]"
    assert len(lines_of(near)) == 2 + MOST_ROWS


def test_a_list_of_results_is_a_list() -> None:
    results: ResultList[int] = ResultList([1, 2], lambda items: Table(title=f"{len(items)} numbers"))
    assert results == [1, 2]
    results.append(3)
    assert repr(results) == "3 numbers"


def test_scores_are_a_table_and_in_a_notebook_shaded_words() -> None:
    model = tiny_model("gpt2")
    scores = model.score(["the vase broke", "Dawn"] * 30)
    assert len(lines_of(scores)) == 2 + MOST_ROWS
    assert repr(scores[1]).startswith("ScoredDocument('Dawn', id '1', 1 word, log-probability -")
    assert "how surprising" in str(scores[0]._repr_html_()).lower()
    result = polyseme.score(["the vase broke", "Dawn"], model=model)
    first, header, *rows, cost = lines_of(result)
    assert first.startswith("2 texts, scored left to right: perplexity per word ")
    assert header.split()[:2] == ["id", "words"]
    assert [row.split()[:2] for row in rows] == [["1", "3"], ["2", "1"]]
    assert cost.startswith("2 texts, 4 words")
    assert "<iframe" in str(result._repr_html_())


def test_what_fills_a_mask_is_a_table() -> None:
    [filled] = tiny_model("bert").fill("the [MASK] broke", top=3)
    title, header, *rows = lines_of(filled)
    assert (title, header.split(), len(rows)) == ("mask at 4", ["candidate", "probability"], 3)

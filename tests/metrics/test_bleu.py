"""BLEU and chrF: those of sacrebleu, from files, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyseme.cli import main
from polyseme.errors import InputError, OptionError
from polyseme.verbs.evaluate import evaluate

sacrebleu = pytest.importorskip("sacrebleu")

HYPOTHESES = ["Der Morgen brach an.", "Die Vase ist zerbrochen.", "", "Ein Kran hob den Balken."]
REFERENCES = ["Der Morgen brach an.", "Die Vase zerbrach.", "Nichts.", "Ein Kran hob den stählernen Balken hoch."]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    for name, lines in (("hyp", HYPOTHESES), ("de", REFERENCES)):
        (tmp_path / f"test.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "test.hyp", tmp_path / "test.de"


def test_it_is_what_sacrebleu_says(sides: tuple[Path, Path]) -> None:
    report = evaluate("bleu", source=sides[0], reference=sides[1])
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    assert report["all"]["bleu"] == pytest.approx(bleu.score)
    assert report["all"]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert 10 < bleu.score < 90
    assert report["all"]["brevity_penalty"] == pytest.approx(bleu.bp)
    assert [item["line"] for item in report.items] == [1, 2, 3, 4]
    assert report.items[0]["bleu"] == pytest.approx(100)
    two = evaluate("bleu", source=sides[0], reference=[sides[1], sides[0]])
    assert two["all"]["bleu"] == pytest.approx(100)


def test_the_command_prints_the_signature(sides: tuple[Path, Path], tmp_path: Path) -> None:
    line = ["evaluate", "bleu", "--in", str(sides[0]), "--reference", str(sides[1])]
    result = CliRunner().invoke(main, [*line, "-o", str(tmp_path / "bleu.json")])
    assert result.exit_code == 0, result.stderr
    assert "bleu" in result.stdout.splitlines()[0]
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in result.stderr
    assert json.loads((tmp_path / "bleu.json").read_text())["evaluation"] == "bleu"


@pytest.mark.parametrize(("n_texts", "place"), [(3, "test.de, line 4"), (6, "test.hyp, line 5")])
def test_sides_of_different_length(sides: tuple[Path, Path], n_texts: int, place: str) -> None:
    sides[0].write_text("Ja.\n" * n_texts, encoding="utf-8")
    with pytest.raises(InputError, match=place):
        evaluate("bleu", source=sides[0], reference=sides[1])


def test_what_makes_no_sense(sides: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="file of their references"):
        evaluate("bleu", source=sides[0])
    with pytest.raises(OptionError, match="no use for a model"):
        evaluate("bleu", source=sides[0], reference=sides[1], model=tmp_path)
    with pytest.raises(OptionError, match="are for bleu, not for blimp"):
        evaluate("blimp", source=sides[0], reference=sides[1])
    for each in sides:
        each.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is empty"):
        evaluate("bleu", source=sides[0], reference=sides[1])

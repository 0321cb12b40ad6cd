"""BabyLM's pairs: its own layout of files, BLiMP as published, and what is missing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from polyseme.datasets.babylm import SUPPLEMENT_PARADIGMS, find_babylm, read_babylm
from polyseme.errors import InputError

PHENOMENA = {
    "anaphor_agreement": 2,
    "argument_structure": 9,
    "binding": 7,
    "control_raising": 5,
    "determiner_noun_agreement": 8,
    "ellipsis": 2,
    "filler_gap": 7,
    "irregular_forms": 2,
    "island_effects": 8,
    "npi_licensing": 7,
    "quantifiers": 4,
    "subject_verb_agreement": 6,
}
"""The twelve files of BabyLM's first evaluation, with the paradigms of each."""


def write_rows(file: Path, *rows: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def blimp_row(uid: str, term: str, good: str = "Dawn broke.") -> dict[str, object]:
    """A row with the fields of `blimp_filtered`."""
    return {
        "sentence_good": good,
        "sentence_bad": f"{good} not",
        "field": "syntax",
        "linguistics_term": term,
        "UID": uid,
        "pair_id": "0",
    }


def supplement_row(good: str = "A: Who broke it?\nB: Sandy did.") -> dict[str, object]:
    """A row with the fields of `supplement_filtered`: neither UID nor field."""
    return {"row": 0, "fragment": "sentence", "contrast": "x", "sentence_good": good, "sentence_bad": f"{good} No."}


@pytest.fixture
def evaluation_data(tmp_path: Path) -> Path:
    """Both folders as BabyLM publishes them, with one pair per file; the folder above them."""
    full = tmp_path / "evaluation_data" / "full_eval"
    write_rows(full / "blimp_filtered" / "passive_1.jsonl", blimp_row("passive_1", "argument_structure"))
    write_rows(
        full / "blimp_filtered" / "animate_subject_trans.jsonl", blimp_row("animate_subject_trans", "s-selection")
    )
    write_rows(
        full / "blimp_filtered" / "wh_vs_that_no_gap.jsonl", blimp_row("wh_vs_that_no_gap", "filler_gap_dependency")
    )
    for name in SUPPLEMENT_PARADIGMS:
        write_rows(full / "supplement_filtered" / f"{name}.jsonl", supplement_row())
    return tmp_path


@pytest.mark.slow
def test_the_published_blimp_has_twelve_phenomena(data: Path) -> None:
    [blimp] = read_babylm(find_babylm(data))
    assert (blimp.name, blimp.levels) == ("blimp", ("phenomenon", "paradigm"))
    assert len(blimp.pairs) == 67_000
    assert Counter(phenomenon for phenomenon, _ in {pair.groups for pair in blimp.pairs}) == PHENOMENA
    [note] = blimp.notes
    assert note.startswith("The supplement part (hypernym, ")
    assert "is missing" in note


@pytest.mark.parametrize("below", ["", "evaluation_data", "evaluation_data/full_eval"])
def test_babylms_own_layout(evaluation_data: Path, below: str) -> None:
    blimp, supplement = read_babylm(find_babylm(evaluation_data / below))
    assert {pair.groups for pair in blimp.pairs} == {
        ("argument_structure", "passive_1"),
        ("argument_structure", "animate_subject_trans"),
        ("filler_gap", "wh_vs_that_no_gap"),
    }
    assert blimp.notes == ("The blimp data has 3 paradigms; BabyLM's mean is over 67.",)
    assert (supplement.name, supplement.levels, supplement.notes) == ("supplement", ("paradigm",), ())
    assert [pair.groups for pair in supplement.pairs] == [(name,) for name in SUPPLEMENT_PARADIGMS]
    assert supplement.pairs[0].good == "A: Who broke it?\nB: Sandy did."


def test_the_filtered_pairs_come_before_the_published_ones(evaluation_data: Path) -> None:
    """Both are never read together: a pair would count twice."""
    write_rows(evaluation_data / "blimp" / "blimp.jsonl", blimp_row("passive_2", "argument_structure"))
    blimp, _ = read_babylm(find_babylm(evaluation_data))
    assert len(blimp.pairs) == 3


def test_the_supplement_alone(evaluation_data: Path) -> None:
    [supplement] = read_babylm(find_babylm(evaluation_data / "evaluation_data/full_eval/supplement_filtered"))
    assert supplement.notes == ("The blimp part is missing: there is no folder blimp_filtered or blimp in the data.",)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold BabyLM's pairs. Looked for blimp_filtered/\*.jsonl"):
        find_babylm(tmp_path)
    with pytest.raises(InputError, match="babylm needs its data"):
        find_babylm(None)
    row = blimp_row("passive_1", "x")
    del row["linguistics_term"]
    write_rows(tmp_path / "blimp" / "passive_1.jsonl", row)
    with pytest.raises(InputError, match=r"passive_1.jsonl, line 1: 'linguistics_term' is missing"):
        read_babylm(find_babylm(tmp_path))
    write_rows(tmp_path / "blimp" / "passive_1.jsonl", {"sentence_good": "Dawn broke."})
    with pytest.raises(InputError, match="has no column 'sentence_bad'"):
        read_babylm(find_babylm(tmp_path))

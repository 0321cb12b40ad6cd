"""BabyLM's zero-shot pairs: BLiMP by its twelve phenomena, and the supplement.

BabyLM's evaluation has two folders with one JSONL file per paradigm: `blimp_filtered/`, the pairs of BLiMP whose words
occur in its training text, and `supplement_filtered/`, whose rows have only the two sentences and whose paradigm is the
file's name. BLiMP as published is read too, in one file or in one per paradigm. BLiMP's `s-selection` counts as
argument structure, as in its paper and in BabyLM's first evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from polyseme.datasets.benchmark import data_place, files_in
from polyseme.datasets.minimal_pairs import MinimalPair, PairSet, checked, table_rows
from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath
from polyseme.files.rows import Row

FILES = ("*.jsonl",)
BLIMP, SUPPLEMENT = "blimp", "supplement"
FOLDERS: Mapping[str, Sequence[str]] = {
    BLIMP: ("blimp_filtered", "blimp"),
    SUPPLEMENT: ("supplement_filtered", "blimp_supplement", "supplement"),
}
"""A part → what its folder is called, BabyLM's own name first."""
PLACES = ("", "tasks", "babylm", "tasks/babylm", "full_eval", "evaluation_data", "evaluation_data/full_eval")
"""Where these folders are, below the one that a user names."""
SUPPLEMENT_PARADIGMS = (
    "hypernym",
    "qa_congruence_easy",
    "qa_congruence_tricky",
    "subject_aux_inversion",
    "turn_taking",
)
N_PARADIGMS = 67
PHENOMENA = {"s-selection": "argument_structure", "filler_gap_dependency": "filler_gap"}
"""Terms of BLiMP's files that BabyLM groups, or calls, otherwise."""


def find_babylm(data: AnyPath | None, name: str = "babylm", patterns: Sequence[str] = FILES) -> list[Path]:
    """The files of both parts below a folder; a folder without either is taken for one of them."""
    place = data_place(data, name)
    if not place.is_dir():
        return [place]
    files = [file for part in FOLDERS for file in _files_of(place, part, patterns)] or files_in(place, patterns)
    if not files:
        looked = ", ".join(f"{folder}/{patterns[0]}" for folders in FOLDERS.values() for folder in folders)
        below = ", ".join(each for each in PLACES if each)
        raise InputError(
            f"{place} does not hold BabyLM's pairs. Looked for {looked}, plain or compressed, in it and below it in "
            f"{below}."
        )
    return files


def _files_of(place: Path, part: str, patterns: Sequence[str]) -> list[Path]:
    """The files of a part, from the first of its folders that is there."""
    folders = (place / below / name for name in FOLDERS[part] for below in PLACES)
    return next((files for folder in folders if (files := files_in(folder, patterns))), [])


def read_babylm(files: Sequence[Path]) -> list[PairSet]:
    """Both parts, or the one that is there with a note on the other."""
    pairs: dict[str, list[MinimalPair]] = {part: [] for part in FOLDERS}
    for file in files:
        for row in table_rows(file, "sentence_good", noun="BabyLM's pairs", needs=("sentence_bad",)):
            part, groups = _groups(row, file)
            good, bad = row.content, row.fields["sentence_bad"]
            pairs[part].append(
                MinimalPair(
                    good=checked(row, good, "sentence_good"),
                    bad=(checked(row, bad, "sentence_bad"),),
                    groups=groups,
                    place=str(row.place),
                )
            )
    missing = tuple(_missing_note(part) for part, theirs in pairs.items() if not theirs)
    levels = {BLIMP: ("phenomenon", "paradigm"), SUPPLEMENT: ("paradigm",)}
    return [
        PairSet(part, levels[part], theirs, (*_notes(part, theirs), *missing))
        for part, theirs in pairs.items()
        if theirs
    ]


def _groups(row: Row, file: Path) -> tuple[str, tuple[str, ...]]:
    """The part that a row belongs to, and its groups there: a row of the supplement names neither."""
    if "UID" not in row.fields:
        return SUPPLEMENT, (file.name.partition(".")[0],)
    term = row.fields.get("linguistics_term")
    if term is None:
        raise InputError(f"{row.place}: 'linguistics_term' is missing, by which BabyLM groups BLiMP's paradigms.")
    return BLIMP, (PHENOMENA.get(str(term), str(term)), str(row.fields["UID"]))


def _notes(part: str, pairs: Sequence[MinimalPair]) -> tuple[str, ...]:
    """What is unusual about a part's paradigms."""
    paradigms = {pair.groups[-1] for pair in pairs}
    expected = N_PARADIGMS if part == BLIMP else len(SUPPLEMENT_PARADIGMS)
    if len(paradigms) == expected:
        return ()
    return (f"The {part} data has {len(paradigms)} paradigms; BabyLM's mean is over {expected}.",)


def _missing_note(part: str) -> str:
    names = f" ({', '.join(SUPPLEMENT_PARADIGMS)})" if part == SUPPLEMENT else ""
    return f"The {part} part{names} is missing: there is no folder {' or '.join(FOLDERS[part])} in the data."

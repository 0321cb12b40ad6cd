"""Sets of subject–verb agreement and its kin: Linzen et al. 2016, Gulordava et al. 2018, Marvin and Linzen 2018.

In the first two the two forms of the verb are compared in their place, given what a model sees of the rest; in the
third, whole sentences. A file is known by its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from polyseme.datasets.minimal_pairs import MinimalPair, PairSet, checked, number_of, table_rows
from polyseme.errors import InputError
from polyseme.files.rows import Row

FILES = ("linzen*.tsv", "colorless*.tab", "marvin*.jsonl")
END = "<eos>"
"""What ends a sentence of Gulordava's."""


def read_agreement(files: Sequence[Path]) -> list[PairSet]:
    """One set per file."""
    return [_reader(file)(file) for file in files]


def _reader(file: Path) -> Callable[[Path], PairSet]:
    names = {part for part in file.name.split(".") if part}
    for ending, read in READERS.items():
        if ending in names:
            return read
    raise InputError(f"{file} is none of the agreement sets, which end in .{', .'.join(READERS)}, plain or compressed.")


def read_linzen(file: Path) -> PairSet:
    """A sentence, the place of its verb, and its two forms; by how many nouns of the other number come between."""
    pairs: list[MinimalPair] = []
    skipped = 0
    rows = table_rows(
        file, "sentence", noun="Linzen's", needs=("position", "correct", "wrong", "n_attractors"), quotes="none"
    )
    for row in rows:
        words = _words(row)
        place = number_of(row, "position")
        correct, wrong = (str(checked(row, row.fields[name], name)) for name in ("correct", "wrong"))
        if not 0 <= place < len(words) or words[place] != correct:
            skipped += 1
            continue
        attractors = number_of(row, "n_attractors")
        pairs.append(
            MinimalPair(
                good=words,
                bad=((*words[:place], wrong, *words[place + 1 :]),),
                groups=(f"{attractors} attractor{'' if attractors == 1 else 's'}",),
                focus=place,
                place=str(row.place),
            )
        )
    notes = (f"{skipped} rows are left out, in which the word at the position is not the correct form.",)
    return PairSet("linzen", ("attractors",), pairs, notes if skipped else ())


def read_gulordava(file: Path) -> PairSet:
    """Sentences as they were found, and nonsense made of them; one row per form."""
    needs = ("form", "class", "type", "constr_id", "sent_id", "pattern", "len_prefix")
    sentences: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in table_rows(file, "sent", noun="Gulordava's", needs=needs):
        key = tuple(str(row.fields[name]) for name in ("pattern", "constr_id", "sent_id", "type"))
        form = str(row.fields["class"])
        if form not in ("correct", "wrong"):
            raise InputError(f"{row.place}: 'class' must be correct or wrong. Got {form!r} instead.")
        sentences.setdefault(key, {})[form] = row
    pairs = [_gulordava_pair(forms) for forms in sentences.values()]
    return PairSet("gulordava", ("kind", "pattern"), pairs)


def _gulordava_pair(forms: Mapping[str, Row]) -> MinimalPair:
    missing = [form for form in ("correct", "wrong") if form not in forms]
    if missing:
        [row] = forms.values()
        raise InputError(f"{row.place}: the {missing[0]} form of this sentence is missing. A pair needs both.")
    good, bad = (_with_form(forms[form]) for form in ("correct", "wrong"))
    row = forms["correct"]
    kind = {"generated": "nonce"}.get(str(row.fields["type"]), str(row.fields["type"]))
    groups = (kind, f"{kind} {row.fields['pattern']}")
    return MinimalPair(good, (bad,), groups, focus=number_of(row, "len_prefix"), place=str(row.place))


def _with_form(row: Row) -> tuple[str, ...]:
    """The sentence with this form of its verb in its place."""
    words = tuple(word for word in _words(row) if word != END)
    place = number_of(row, "len_prefix")
    if not 0 <= place < len(words):
        raise InputError(f"{row.place}: 'len_prefix' is {place}, and the sentence has {len(words)} words.")
    return (*words[:place], str(checked(row, row.fields["form"], "form")), *words[place + 1 :])


def read_marvin(file: Path) -> PairSet:
    """Whole sentences by construction, and within it by case: which numbers, which verbs."""
    pairs = [
        MinimalPair(
            good=checked(row, row.content, "good"),
            bad=tuple(checked(row, bad, "bad") for bad in _split_names(row)),
            groups=(str(row.fields["construction"]), f"{row.fields['construction']} {row.fields['case']}"),
            place=str(row.place),
        )
        for row in table_rows(file, "good", noun="Marvin and Linzen's", needs=("bad", "construction", "case"))
    ]
    return PairSet("marvin", ("construction", "case"), pairs)


READERS: Mapping[str, Callable[[Path], PairSet]] = {"tsv": read_linzen, "tab": read_gulordava, "jsonl": read_marvin}
"""From the ending of a file to how it is read."""


def _words(row: Row) -> tuple[str, ...]:
    text = checked(row, row.content, "sentence")
    return tuple(text.split()) if isinstance(text, str) else text


def _split_names(row: Row) -> list[str]:
    bad = row.fields["bad"]
    if isinstance(bad, str) or bad is None:
        return [bad]  # type: ignore[list-item]
    if not bad:
        raise InputError(f"{row.place}: 'bad' is missing or empty. A pair needs both of its sides.")
    return list(bad)

"""Users' own files as tasks: every format and kind, columns by name and number, and what is not in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, OptionError
from polyseme.tasks.items import Answer, Item
from polyseme.tasks.own_data import read_own
from polyseme.tasks.splits import with_dev

REVIEWS = [{"review": f'Review, {n} "x"', "stars": n % 3 + 1, "source": "s"} for n in range(30)]


def write_table(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    names = list(rows[0])
    if file.suffix == ".parquet":
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in names}), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if file.suffix == ".csv" else "\t"
        quoted = [['"{}"'.format(str(row[name]).replace('"', '""')) for name in names] for row in rows]
        file.write_text("\n".join(mark.join(row) for row in [names, *quoted]) + "\n")
    return file


def simple(item: Item) -> tuple[Any, ...]:
    return item.text, item.second, item.gold


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize(("text", "label"), [("review", "stars"), (1, 2), ("1", "2")])
def test_texts_with_labels_in_every_format(tmp_path: Path, ending: str, text: Any, label: Any) -> None:
    train = write_table(tmp_path / f"train.{ending}", REVIEWS)
    dev = write_table(tmp_path / f"dev.{ending}", REVIEWS[:6])
    task = read_own("classify", {"train": train, "dev": dev}, text=text, label=label)
    assert (task.name, task.kind, task.labels) == (f"train.{ending}", "classify", ("1", "2", "3"))
    assert task.metrics == ("accuracy", "macro_f1")
    assert all("was read as the names" in note for note in task.notes)
    assert [simple(item) for item in task.splits["dev"]] == [
        (f'Review, {n} "x"', None, str(n % 3 + 1)) for n in range(6)
    ]
    unit = "row 1" if ending == "parquet" else "line 1" if ending == "jsonl" else "line 2"
    assert task.splits["train"][0].place == f"{train}, {unit}"


def test_usual_names_need_not_be_said_and_others_are_asked_for(tmp_path: Path) -> None:
    rows = [{"sentence1": f"a {n}", "sentence2": f"b {n}", "label": "yn"[n % 2]} for n in range(10)]
    file = write_table(tmp_path / "p.jsonl", rows)
    task = read_own("pair", {"train": file})
    assert (task.labels, task.metrics) == (("n", "y"), ("accuracy", "f1"))
    assert simple(task.splits["dev"][0])[1].startswith("b ")
    with pytest.raises(
        OptionError, match=r"Which column of .* is the text of classify\? .* There are: sentence1, sentence2, label"
    ):
        read_own("classify", {"train": file})
    with pytest.raises(InputError, match=r"there is no field 'lable'. Did you mean 'label'"):
        read_own("pair", {"train": file}, label="lable")
    with pytest.raises(OptionError, match=r"has 3 columns .* counted from 1. Got 4 for 'label'"):
        read_own("pair", {"train": file}, label=4)
    with pytest.raises(OptionError, match=r"'label' of .* is both 'second' and 'label'"):
        read_own("pair", {"train": file}, second="label")


def test_dev_is_made_of_train_by_hash_and_that_is_said(tmp_path: Path) -> None:
    file = write_table(tmp_path / "train.csv", REVIEWS)
    task = read_own("classify", {"train": file}, text="review", label="stars")
    assert list(task.splits) == ["train", "dev"]
    assert [len(task.splits[split]) for split in ("train", "dev")] == [27, 3]
    assert task.notes == (
        "There is no dev split: 3 of the 30 training items were set aside as one, by a hash of their texts, "
        "stratified by label (seed 0).",
    )
    turned = write_table(tmp_path / "turned.csv", REVIEWS[::-1])
    other = read_own("classify", {"train": turned}, text="review", label="stars")
    assert {item.text for item in other.splits["dev"]} == {item.text for item in task.splits["dev"]}
    third = read_own("classify", {"train": file}, text="review", label="stars", seed=1, dev_share=0.5)
    assert len(third.splits["dev"]) == 15
    assert "(seed 1)" in third.notes[0]
    with pytest.raises(OptionError, match=r"must be between 0 and 1. Got 1.5"):
        read_own("classify", {"train": file}, text="review", label="stars", dev_share=1.5)


def test_rows_of_one_text_stay_together_and_lone_labels_in_train() -> None:
    items = [Item(text=f"passage {n // 4}", gold=f"rare {n}" if n % 10 == 0 else "common") for n in range(80)]
    train, dev = with_dev(items, share=0.25)
    assert len(train) + len(dev) == 80
    assert 8 <= len(dev) <= 24
    assert {item.gold for item in dev} <= {item.gold for item in train}
    apart = {item.text for item in train if item.gold == "common"} & {item.text for item in dev}
    assert apart == set()
    assert with_dev(items, share=0.25) == (train, dev)
    assert with_dev(items[:1]) == (tuple(items[:1]), ())
    triples = [Item(text=f"premise {n // 3}", gold="abc"[n % 3]) for n in range(12)]
    assert [len(part) for part in with_dev(triples)] == [9, 3]


@given(st.lists(st.sampled_from("aaab"), min_size=2, max_size=80), st.floats(0.05, 0.6))
def test_each_label_has_its_share_of_dev(labels: list[str], share: float) -> None:
    items = [Item(text=f"text {n}", gold=label) for n, label in enumerate(labels)]
    train, dev = with_dev(items, share=share)
    assert sorted([*train, *dev], key=items.index) == items
    wanted = max(1, round(len(items) * share))
    for label in set(labels):
        exact = wanted * labels.count(label) / len(labels)
        there = sum(item.gold == label for item in dev)
        assert there <= labels.count(label) - 1
        if len(set(labels)) > wanted or min(map(labels.count, labels)) == 1:
            assert abs(there - min(exact, labels.count(label) - 1)) < 1
        else:
            assert there >= 1
    if min(map(labels.count, labels)) > 1:
        assert len(dev) == wanted


def test_a_rare_label_is_in_dev_too_where_that_goes() -> None:
    items = [Item(text=f"text {n}", gold="b" if n in (3, 4) else "a") for n in range(20)]
    _, dev = with_dev(items)
    assert sorted(str(item.gold) for item in dev) == ["a", "b"]


def test_the_first_line_is_said_to_be_names_where_columns_are_numbers(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.csv", REVIEWS)
    assert any("was read as the names" in note for note in read_own("classify", {"train": file}, text=1, label=2).notes)
    named = read_own("classify", {"train": file}, text="review", label="stars")
    assert not any("was read as the names" in note for note in named.notes)


def test_scores_are_known_by_their_fractions_or_asked_for(tmp_path: Path) -> None:
    rows = [{"text": f"t {n}", "label": n / 2} for n in range(12)]
    task = read_own("classify", {"train": write_table(tmp_path / "a.csv", rows)})
    assert task.regression
    assert (task.labels, task.metrics) == ((), ("spearman", "pearson"))
    assert sorted(item.gold for items in task.splits.values() for item in items) == [n / 2 for n in range(12)]
    assert "they are taken for scores (regression)" in task.notes[0]
    whole = write_table(tmp_path / "b.csv", REVIEWS)
    assert not read_own("classify", {"train": whole}, text="review", label="stars").regression
    scored = read_own("classify", {"train": whole}, text="review", label="stars", regression=True)
    assert {type(item.gold) for item in scored.splits["train"]} == {float}
    rows = [*REVIEWS, {"review": "x", "stars": "many", "source": ""}]
    with pytest.raises(InputError, match=r"c.csv, line 32: the score must be a number, for regression. Got 'many'"):
        read_own(
            "classify", {"train": write_table(tmp_path / "c.csv", rows)}, text="review", label="stars", regression=True
        )
    with pytest.raises(OptionError, match=r"Regression is for classify and pair"):
        read_own("tag", {"train": conll(tmp_path / "t.conll", TAGGED)}, regression=True)


def test_several_labels_as_lists_and_with_a_separator(tmp_path: Path) -> None:
    rows = [{"text": f"t {n}", "label": ["b", "a"] if n % 2 else []} for n in range(10)]
    listed = read_own("classify", {"train": write_table(tmp_path / "a.jsonl", rows)})
    split = [{"text": row["text"], "label": " | ".join(row["label"])} for row in rows]
    separated = read_own("classify", {"train": write_table(tmp_path / "b.csv", split)}, separator="|")
    for task in (listed, separated):
        assert task.multi
        assert (task.labels, task.metrics) == (("a", "b"), ("micro_f1", "multi_macro_f1", "accuracy"))
        assert {item.gold for item in task.splits["train"]} == {(), ("a", "b")}


# --- tags -------------------------------------------------------------------------------------------------------------

TAGGED = [
    [("Bo", "NNP", "B-PER"), ("saw", "VBD", "O"), ("Rome", "NNP", "B-LOC")],
    [("New", "NNP", "B-LOC"), ("York", "NNP", "I-LOC")],
    [("no", "UH", "O"), ("one", "NN", "O")],
] * 4


def conll(file: Path, sentences: list[list[tuple[str, ...]]]) -> Path:
    distinct = [[(f"{word}{n}", *others) for word, *others in sentence] for n, sentence in enumerate(sentences)]
    file.write_text("\n\n".join("\n".join(" ".join(columns) for columns in each) for each in distinct) + "\n")
    return file


def test_conll_columns_count_from_1(tmp_path: Path) -> None:
    train = conll(tmp_path / "train.txt", TAGGED)
    task = read_own("tag", {"train": train})
    assert (task.scheme, task.metrics[0]) == ("BIO", "span_f1")
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER")
    words = {item.words for items in task.splits.values() for item in items}
    assert len(words) == 12
    assert ("Bo0", "saw0", "Rome0") in words
    speech = read_own("tag", {"train": train}, text=1, label=2)
    assert (speech.scheme, speech.metrics) == (None, ("word_accuracy",))
    assert speech.labels == ("NN", "NNP", "UH", "VBD")
    turned = read_own("tag", {"train": train}, scheme="bioes")
    assert turned.scheme == "BIOES"
    assert turned.labels == ("O", "B-LOC", "E-LOC", "S-LOC", "S-PER")
    assert "Tags were turned from BIO into BIOES." in turned.notes
    with pytest.raises(InputError, match=r"there is no field '7'"):
        read_own("tag", {"train": train}, label=7)
    with pytest.raises(InputError, match=r"there is no field 'nan'"):
        read_own("tag", {"train": train}, marks="nan")
    with pytest.raises(InputError, match=r"do not mark spans, .* into BIO"):
        read_own("tag", {"train": train}, label=2, scheme="BIO")


def test_invalid_tags_are_refused_with_their_line_or_repaired(tmp_path: Path) -> None:
    broken = [*TAGGED, [("so", "RB", "O"), ("Al", "NNP", "I-PER"), ("Bo", "NNP", "I-PER")], [("Di", "NNP", "I-LOC")]]
    train = conll(tmp_path / "train.conll", broken)
    line = train.read_text().split("\n").index("Al12 NNP I-PER") + 1
    with pytest.raises(
        InputError,
        match=rf"train.conll, line {line}: 'I-PER' may not stand after 'O' in BIO, at word 2, 'Al12'. There is 1 other",
    ):
        read_own("tag", {"train": train})
    task = read_own("tag", {"train": train}, repair=True)
    tags = {item.words: item.gold for items in task.splits.values() for item in items}
    assert tags["so12", "Al12", "Bo12"] == ("O", "B-PER", "I-PER")
    assert tags["Di13",] == ("B-LOC",)
    assert task.notes[0].startswith("2 invalid sequences of tags were repaired, as conlleval reads them; the first: ")


def test_bilou_is_read_as_bioes(tmp_path: Path) -> None:
    file = tmp_path / "train.conll"
    file.write_text("a\tU-X\nb\tB-Y\nc\tI-Y\nd\tL-Y\n\ne\tO\n\n" * 2)
    task = read_own("tag", {"test": file})
    assert task.splits["test"][0].gold == ("S-X", "B-Y", "I-Y", "E-Y")
    assert (task.scheme, task.notes) == ("BIOES", ("Tags were turned from BILOU into BIOES.",))
    assert read_own("tag", {"test": file}, scheme="BIO").splits["test"][0].gold == ("B-X", "B-Y", "I-Y", "I-Y")
    with pytest.raises(OptionError, match=r"Ask for BIOES"):
        read_own("tag", {"test": file}, scheme="bilou")


def test_ragged_columns_are_refused_with_their_line(tmp_path: Path) -> None:
    train = tmp_path / "train.conll"
    train.write_text("a O\nb O\n\nc O\nd\n")
    with pytest.raises(InputError, match=r"train.conll, line 5: the line has 1 columns, separated by blanks"):
        read_own("tag", {"train": train})
    table = tmp_path / "train.csv"
    table.write_text("text,label\na,x\nb,c,y\n")
    with pytest.raises(InputError, match=r"train.csv, line 3: there are 3 fields, and the header has 2"):
        read_own("classify", {"train": table})


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_lists_of_words_and_tags_with_marks(tmp_path: Path, ending: str) -> None:
    rows = [{"words": [f"w{n}", "x"], "tags": ["A", "B"], "at": [0, 1]} for n in range(10)]
    task = read_own("tag", {"train": write_table(tmp_path / f"t.{ending}", rows)}, marks="at")
    item = task.splits["dev"][0]
    assert (item.words[1], item.gold, item.marks) == ("x", ("A", "B"), (0, 1))
    rows[3]["tags"] = ["A"]
    with pytest.raises(InputError, match=r"(line|row) 4: there are 2 words and 1 tags"):
        read_own("tag", {"train": write_table(tmp_path / f"t.{ending}", rows)})


def test_what_a_mark_may_be(tmp_path: Path) -> None:
    """Numbers as they are; of other things, whether there is one."""
    given = [0, 2, "3", "_", "-", "O", "", "V", None, True, False]
    rows = [{"words": [f"w{n}"] * len(given), "tags": ["A", *"B" * (len(given) - 1)], "at": given} for n in range(4)]
    task = read_own("tag", {"train": write_table(tmp_path / "t.jsonl", rows)}, marks="at")
    assert task.splits["train"][0].marks == (0, 2, 3, 0, 0, 0, 0, 1, 0, 1, 0)


def test_treebanks_by_name_and_number_of_column(tmp_path: Path) -> None:
    lines = [f"1\tw{n}\tw\tNOUN\tNN\t_\t0\troot\t_\t_\n2\tx\tx\tVERB\tVB\t_\t1\tdep\t_\t_\n" for n in range(10)]
    file = tmp_path / "a.conllu"
    file.write_text("\n".join(lines) + "\n")
    assert read_own("tag", {"train": file}).labels == ("NOUN", "VERB")
    assert read_own("tag", {"train": file}, label=5).labels == ("NN", "VB")
    assert read_own("tag", {"train": file}, label="deprel").labels == ("dep", "root")


# --- answers and choices ----------------------------------------------------------------------------------------------


def test_answers_in_columns_in_objects_and_in_squads_layout(tmp_path: Path) -> None:
    passage = "Bo saw Al and Bo."
    plain = [{"context": f"{passage} {n}", "question": "Who?", "answer": "Al" if n % 2 else ""} for n in range(10)]
    for ending in ("csv", "jsonl"):
        task = read_own("span", {"train": write_table(tmp_path / f"a.{ending}", plain)})
        assert {item.gold for item in task.splits["train"]} == {(), (Answer(7, "Al"),)}
        assert task.metrics == ("answer_f1", "exact_match")
    twice = [{**row, "answer": ["Bo", "Al"]} for row in plain]
    task = read_own("span", {"train": write_table(tmp_path / "b.jsonl", twice)})
    assert task.splits["train"][0].gold == (Answer(0, "Bo"), Answer(7, "Al"))
    assert task.notes[0].startswith("10 × an answer that occurs in the passage more than once")
    starts = [{**row, "answer": "Bo", "start": 14} for row in plain]
    task = read_own("span", {"train": write_table(tmp_path / "c.csv", starts)}, start="start")
    assert task.splits["train"][0].gold == (Answer(14, "Bo"),)
    objects = [{**row, "answers": {"text": ["Bo"], "answer_start": [14]}} for row in plain]
    task = read_own("span", {"train": write_table(tmp_path / "d.parquet", objects)})
    assert task.splits["train"][0].gold == (Answer(14, "Bo"),)
    questions = [
        {"id": f"q{n}", "question": "Who?", "answers": [{"text": "Bo", "answer_start": 13}]} for n in range(10)
    ]
    paragraphs = [{"context": f"{passage} {n}", "qas": [question]} for n, question in enumerate(questions)]
    whole = tmp_path / "e.json"
    whole.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    with pytest.raises(InputError, match=r"question q0: the answer 'Bo' is not at character 13"):
        read_own("span", {"train": whole})
    task = read_own("span", {"train": whole}, repair=True)
    assert {item.gold for item in task.splits["train"]} == {(Answer(14, "Bo"),)}
    assert "of which the nearest place was taken" in task.notes[0]
    plain[4]["answer"] = "Eve"
    with pytest.raises(InputError, match=r"a.csv, line 6: the answer 'Eve' does not occur in its passage"):
        read_own("span", {"train": write_table(tmp_path / "a.csv", plain)})


@pytest.mark.parametrize("answer", [1, "1", "B", "blue"])
def test_choices_in_a_list_or_in_columns(tmp_path: Path, answer: Any) -> None:
    rows = [{"question": f"q {n}", "choices": ["red", "blue"], "answer": answer} for n in range(10)]
    task = read_own("choose", {"train": write_table(tmp_path / "a.jsonl", rows)})
    assert {item.gold for item in task.splits["train"]} == {1}
    wide = [{"question": f"q {n}", "one": "red", "two": "blue", "answer": answer} for n in range(10)]
    task = read_own("choose", {"train": write_table(tmp_path / "b.csv", wide)}, choices=["one", "two"])
    assert task.splits["train"][0].choices == ("red", "blue")
    assert task.splits["train"][0].gold == 1
    if str(answer) == "1":
        counted = read_own("choose", {"train": tmp_path / "b.csv"}, choices=[2, 3], first=1)
        assert counted.splits["train"][0].gold == 0


@pytest.mark.parametrize(
    ("answer", "said"), [(5, "the answer is '5', and there are 2"), ("pink", "neither a letter"), ("", "is empty")]
)
def test_answers_that_are_no_choice(tmp_path: Path, answer: Any, said: str) -> None:
    rows = [{"question": "q", "choices": ["red", "blue"], "answer": answer}]
    with pytest.raises(InputError, match=f"line 1: .*{said}"):
        read_own("choose", {"train": write_table(tmp_path / "a.jsonl", rows)})


# --- what is not in order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", "x"), ("b", "x"), ("c", "x")], "have the one label 'x' .*line 2.* is it the right column"),
        ([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")], "4 labels on 4 training items"),
        ([("a", "x"), ("  ", "y"), ("c", "x")], "line 3: the text is empty"),
        ([("a", "x"), ("b", ""), ("c", "x")], "line 3: the label, in 'label', is empty"),
    ],
)
def test_data_that_cannot_be_learnt_from(tmp_path: Path, rows: list[tuple[str, str]], said: str) -> None:
    file = write_table(tmp_path / "t.csv", [{"text": text, "label": label} for text, label in rows])
    dev = write_table(tmp_path / "d.csv", [{"text": "a", "label": "x"}])
    with pytest.raises(InputError, match=said):
        read_own("classify", {"train": file, "dev": dev})


def test_what_is_said_of_train_is_said_of_all_of_it_before_dev_is_set_aside(tmp_path: Path) -> None:
    file = write_table(tmp_path / "t.csv", [{"text": text, "label": "x"} for text in "ab"])
    with pytest.raises(InputError, match=r"^All 2 training items of t.csv have the one label 'x'"):
        read_own("classify", {"train": file})


def test_labels_of_dev_that_train_lacks(tmp_path: Path) -> None:
    train = write_table(tmp_path / "t.csv", [{"text": f"t{n}", "label": "xy"[n % 2]} for n in range(8)])
    dev = write_table(tmp_path / "d.csv", [{"text": "a", "label": "x"}, {"text": "b", "label": "z"}])
    with pytest.raises(InputError, match=r"d.csv, line 3: dev has 1 label that train lacks: 'z'. No model can learn"):
        read_own("classify", {"train": train, "dev": dev})
    task = read_own("classify", {"train": train, "dev": dev}, unseen="keep")
    assert task.labels == ("x", "y", "z")
    assert task.notes == ("dev has 1 label that train lacks ('z'): it counts as wrong.",)
    with pytest.raises(OptionError, match=r"unseen cannot be 'drop'"):
        read_own("classify", {"train": train, "dev": dev}, unseen="drop")  # type: ignore[arg-type]


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", [{"text": f"t{n}", "label": "xy"[n % 2]} for n in range(8)])
    with pytest.raises(OptionError, match=r"no kind of task 'clasify'. Did you mean 'classify'"):
        read_own("clasify", {"train": table})
    with pytest.raises(OptionError, match=r"is both train and dev"):
        read_own("classify", {"train": table, "dev": str(table)})
    with pytest.raises(OptionError, match=r"is read as csv, and tags come as CoNLL"):
        read_own("tag", {"train": table})
    with pytest.raises(OptionError, match=r"is read as conll, and the data of pair comes as CSV"):
        read_own("pair", {"train": conll(tmp_path / "a.conll", TAGGED)})
    with pytest.raises(InputError, match=r"no file was named"):
        read_own("pair", {})
    with pytest.raises(InputError, match=r"There is no file"):
        read_own("pair", {"train": tmp_path / "gone.csv"})
    alone = read_own("classify", {"test": table})
    assert list(alone.splits) == ["test"]

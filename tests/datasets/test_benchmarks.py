"""Every benchmark by name: the whole shared data, with its counts, and files laid out as the official downloads are."""

from __future__ import annotations

import csv
import json
import lzma
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from polyseme.datasets.named_benchmarks import BENCHMARKS, named_benchmark, read_benchmark
from polyseme.datasets.suites import SUITES
from polyseme.errors import InputError, OptionError
from polyseme.metrics.task_metrics import METRICS
from polyseme.tasks.items import Answer, Item, TaskData
from polyseme.tasks.kinds import baseline_scores
from polyseme.tasks.own_data import checked_data
from polyseme.text.tag_schemes import spans_of

# --- the shared data, all of it ---------------------------------------------------------------------------------------

COUNTS: Mapping[str, tuple[dict[str, int], tuple[str, ...]]] = {
    "cola": ({"train": 8551, "dev": 1043}, ()),
    "sst2": ({"train": 67349, "dev": 872, "test": 1821}, ()),
    "mrpc": ({"train": 3668, "dev": 408, "test": 1725}, ()),
    "stsb": ({"train": 5749, "dev": 1500, "test": 1379}, ()),
    "qqp": ({"train": 19696, "dev": 10000}, ("train", "dev")),
    "mnli": ({"train": 9999, "dev": 9815, "dev_mismatched": 1000}, ("train", "dev_mismatched")),
    "qnli": ({"train": 10000, "dev": 5463}, ("train",)),
    "rte": ({"train": 2490, "dev": 277}, ()),
    "wnli": ({"train": 635, "dev": 71}, ()),
    "snli": ({"train": 20000, "dev": 9842}, ("train",)),
    "sick": ({"train": 4439, "dev": 495, "test": 4906}, ()),
    "sick-relatedness": ({"train": 4439, "dev": 495, "test": 4906}, ()),
    "sst5": ({"train": 8544, "dev": 1101, "test": 2210}, ()),
    "sst3": ({"train": 8544, "dev": 1101, "test": 2210}, ()),
    "sst2-trees": ({"train": 6920, "dev": 872, "test": 1821}, ()),
    "trec": ({"train": 4907, "dev": 545, "test": 500}, ()),
    "trec-fine": ({"train": 4905, "dev": 547, "test": 500}, ()),
    "imdb": ({"train": 1800, "dev": 200, "test": 2000}, ("train", "dev", "test")),
    "ud-ewt": ({"train": 12544, "dev": 2001, "test": 2077}, ()),
    "wnut17": ({"train": 3394, "dev": 1009, "test": 1287}, ()),
    "wikigold": ({"train": 1152, "dev": 263, "test": 281}, ()),
    "srl": ({"train": 40424, "dev": 4963, "test": 4795}, ()),
    "squad": ({"train": 11877, "dev": 10570}, ("train",)),
    "squad2": ({"dev": 11873}, ()),
    "arc-easy": ({"train": 2251, "dev": 570, "test": 2376}, ()),
    "arc-challenge": ({"train": 1119, "dev": 299, "test": 1172}, ()),
    "csqa": ({"train": 9741, "dev": 1221}, ()),
    "swag": ({"dev": 500}, ("dev",)),
    "gap": ({"train": 4000, "dev": 908, "test": 4000}, ()),
    "wsc": ({"train": 2632, "dev": 1128, "test": 538}, ()),
    "wic": ({"train": 5428, "dev": 638, "test": 1400}, ()),
}
LABELS = {
    ("cola", "train"): {"1": 6023, "0": 2528},
    ("sst2", "test"): {"1": 909, "0": 912},
    ("mrpc", "dev"): {"1": 279, "0": 129},
    ("qqp", "dev"): {"1": 3797, "0": 6203},
    ("mnli", "dev"): {"entailment": 3479, "neutral": 3123, "contradiction": 3213},
    ("rte", "train"): {"entailment": 1249, "not_entailment": 1241},
    ("snli", "dev"): {"entailment": 3329, "neutral": 3235, "contradiction": 3278},
    ("sick", "test"): {"neutral": 2790, "entailment": 1404, "contradiction": 712},
    ("sst5", "test"): {"0": 279, "1": 633, "2": 389, "3": 510, "4": 399},
    ("sst3", "test"): {"negative": 912, "neutral": 389, "positive": 909},
    ("trec", "test"): {"DESC": 138, "NUM": 113, "ENTY": 94, "LOC": 81, "HUM": 65, "ABBR": 9},
    ("imdb", "test"): {"pos": 1000, "neg": 1000},
    ("gap", "test"): {"true": 1773, "false": 2227},
    ("wic", "test"): {"T": 700, "F": 700},
}
SIZES = {"ud-ewt": 17, "trec-fine": 50, "trec": 6, "wnut17": 13, "wikigold": 9}
ENTITIES = {"wnut17": (1975, 836, 1079), "wikigold": (2438, 540, 580), "srl": (81409, 9583, 9337)}
MAJORITIES = {
    "sst2": ("accuracy", 50.9),
    "mrpc": ("f1", 81.2),
    "rte": ("accuracy", 52.7),
    "wnli": ("accuracy", 56.3),
    "qnli": ("accuracy", 50.5),
    "mnli": ("accuracy", 35.4),
    "cola": ("matthews", 0),
    "stsb": ("spearman", 0),
    "swag": ("accuracy", 28.8),
}


LARGE = ("srl", "ud-ewt", "sst2", "snli", "qqp", "gap")
"""Large files, whose readers have small tests besides."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in COUNTS]
)
def test_the_whole_of_the_shared_data(name: str, data: Path) -> None:
    read = read_benchmark(name, data)
    counts, sampled = COUNTS[name]
    assert {split: len(items) for split, items in read.splits.items()} == counts
    assert list(read.splits) == list(counts)
    assert read.sampled == sampled
    assert read.metrics == BENCHMARKS[name].metrics
    assert set(read.metrics) <= set(METRICS)
    assert any("not comparable" in note for note in read.notes) == bool(sampled)
    checked_data(read, unseen="keep", needs=tuple(split for split in ("train", "dev") if split in counts))
    for (task, split), labels in LABELS.items():
        if task == name:
            assert Counter(item.gold for item in read.splits[split]) == labels
    assert len(read.labels) == SIZES.get(name, len(read.labels))
    if name in ENTITIES:
        spans = [sum(len(spans_of(item.gold)) for item in items) for items in read.splits.values()]
        assert tuple(spans) == ENTITIES[name]
    if name in MAJORITIES:
        metric, figure = MAJORITIES[name]
        assert round(100 * baseline_scores(read)[metric], 1) == pytest.approx(figure, abs=0.051)


def test_every_benchmark_is_read_from_the_shared_data_but_those_that_are_cuts_of_others() -> None:
    assert set(BENCHMARKS) - set(COUNTS) == {"conll", "ud-ewt-xpos", "sst5-phrases", "sst3-phrases", "sst2-phrases"}
    assert SUITES["glue"].names == tuple(BENCHMARKS)[:9]


def test_words_and_answers_of_the_shared_data(data: Path) -> None:
    squad = read_benchmark("squad2", data)
    assert sum(bool(item.gold) for item in squad.splits["dev"]) == 5928
    assert squad.kind == "span"
    item = squad.splits["dev"][0]
    assert item.second == "In what country is Normandy located?"
    assert all(item.text[answer.start : answer.end] == answer.text for answer in item.gold)
    arc = read_benchmark("arc-challenge", data / "tasks").splits["train"][0]
    assert arc.choices[arc.gold] == "dry palms"
    wikigold = read_benchmark("conll", data / "tasks" / "wikigold")
    assert (wikigold.scheme, len(wikigold.splits["train"])) == ("BIO", 1152)
    swag = read_benchmark("swag", data / "tasks" / "swag").splits["dev"][0]
    assert swag.text.endswith("nervously. She")
    assert len(swag.choices) == 4


@pytest.mark.slow
def test_phrases_of_the_trees(data: Path) -> None:
    read = read_benchmark("sst2-phrases", data)
    roots = read_benchmark("sst2-trees", data)
    assert len(read.splits["train"]) == 77616
    assert read.splits["test"] == roots.splits["test"]
    texts = {item.text: item.gold for item in read.splits["train"]}
    assert sum(texts[item.text] == item.gold for item in roots.splits["train"]) > 6900


# --- the layouts of the official downloads ----------------------------------------------------------------------------


def write(file: Path, *rows: str, encoding: str = "utf-8", start: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((start + "".join(f"{row}\n" for row in rows)).encode(encoding))


def tabs(*values: str) -> str:
    return "\t".join(values)


def simple(item: Item) -> tuple[Any, ...]:
    return (item.text, item.gold) if item.second is None else (item.text, item.second, item.gold)


def read(name: str, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {split: [simple(item) for item in items] for split, items in read_benchmark(name, folder).splits.items()}


def test_cola_has_no_header_and_four_columns(tmp_path: Path) -> None:
    folder = tmp_path / "CoLA"
    write(
        folder / "train.tsv",
        tabs("gj04", "1", "", 'Our "friends" won\'t.'),
        tabs("gj04", "0", "*", "They drank the pub."),
    )
    write(folder / "dev.tsv", tabs("bc01", "0", "*", "Him goed."))
    write(folder / "test.tsv", tabs("index", "sentence"), tabs("0", "Bill ran."))
    found = read_benchmark("cola", tmp_path)
    assert read("cola", tmp_path) == {
        "train": [('Our "friends" won\'t.', "1"), ("They drank the pub.", "0")],
        "dev": [("Him goed.", "0")],
        "test_unlabeled": [("Bill ran.", None)],
    }
    assert found.splits["train"][1].fields == {"source": "gj04"}
    assert found.splits["train"][1].place == f"{folder / 'train.tsv'}, line 2"
    assert found.splits["test_unlabeled"][0].id == "0"


def test_sst2(tmp_path: Path) -> None:
    folder = tmp_path / "SST-2"
    write(folder / "train.tsv", tabs("sentence", "label"), tabs('hide "new" secretions ', "0"), tabs("good", "1"))
    write(folder / "dev.tsv", tabs("sentence", "label"), tabs("bad", "0"))
    write(folder / "test.tsv", tabs("index", "sentence"), tabs("0", "so so"))
    assert read("SST-2", folder)["train"] == [('hide "new" secretions ', "0"), ("good", "1")]
    assert read("sst2", tmp_path)["test_unlabeled"] == [("so so", None)]
    for start in ("", "\n", " \n\n"):  # labels are found below blank lines, as the rows are
        write(folder / "test.tsv", tabs("sentence", "label"), tabs("so so", "1"), start=start)
        assert read("sst2", tmp_path)["test"] == [("so so", "1")]


def test_mrpc_from_glue_and_from_microsoft(tmp_path: Path) -> None:
    header = tabs("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    rows = [tabs(str(n % 2), "7", "8", f'"The {n} rose .', f"It, {n}, rose .") for n in range(20)]
    write(tmp_path / "MRPC" / "train.tsv", header, *rows, start="\ufeff")
    write(tmp_path / "MRPC" / "dev.tsv", header, rows[1], start="\ufeff")
    write(
        tmp_path / "MRPC" / "test.tsv",
        tabs("index", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        tabs("0", "1", "2", "a", "b"),
        start="\ufeff",
    )
    found = read("mrpc", tmp_path)
    assert found["dev"] == [('"The 1 rose .', "It, 1, rose .", "1")]
    assert found["test_unlabeled"] == [("a", "b", None)]
    assert len(found["train"]) == 20
    own = tmp_path / "own" / "MSRParaphraseCorpus"
    write(own / "msr_paraphrase_train.txt", header, *rows, start="\ufeff")
    write(own / "msr_paraphrase_test.txt", header, *rows[:3], start="\ufeff")
    read_own = read_benchmark("mrpc", tmp_path / "own")
    assert {split: len(items) for split, items in read_own.splits.items()} == {"train": 18, "dev": 2, "test": 3}
    assert "There is no dev split: 2 of the 20 training items" in read_own.notes[0]


def test_stsb_from_glue_and_from_its_own_files(tmp_path: Path) -> None:
    header = (
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    )
    row = ("0", "main-captions", "MSRvid", "2012test", "0001", "none", "none", 'A "plane".', "An air plane.", "5.000")
    write(tmp_path / "STS-B" / "train.tsv", tabs(*header), tabs(*row))
    write(tmp_path / "STS-B" / "dev.tsv", tabs(*header), tabs(*row[:-1], "2.5"))
    write(tmp_path / "STS-B" / "test.tsv", tabs(*header[:-1]), tabs(*row[:-1]))
    found = read("stsb", tmp_path)
    assert found == {
        "train": [('A "plane".', "An air plane.", 5.0)],
        "dev": [('A "plane".', "An air plane.", 2.5)],
        "test_unlabeled": [('A "plane".', "An air plane.", None)],
    }
    own = tmp_path / "stsbenchmark"
    short = ("main-captions", "MSRvid", "2012test", "0001", "5.000", "A plane.", "An air plane.")
    for split in ("train", "dev", "test"):
        write(own / f"sts-{split}.csv", tabs(*short), tabs(*short[:4], "3.2", "a", "b", "http://x", "http://y"))
    assert read("stsb", own)["test"] == [("A plane.", "An air plane.", 5.0), ("a", "b", 3.2)]


def test_qqp_with_rows_that_lack_columns_and_texts(tmp_path: Path) -> None:
    header = tabs("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    write(
        tmp_path / "QQP" / "train.tsv",
        header,
        tabs("1", "2", "3", "How?", 'Why "so"?', "0"),
        tabs("1", "2", "3", "cut off"),
        tabs("1", "2", "3", "How?", "", "0"),
    )
    write(tmp_path / "QQP" / "dev.tsv", header, tabs("9", "2", "3", "Who?", "Who is it?", "1"))
    write(tmp_path / "QQP" / "test.tsv", tabs("id", "question1", "question2"), tabs("0", "x", "y"))
    found = read_benchmark("qqp", tmp_path)
    assert [simple(item) for item in found.splits["train"]] == [("How?", 'Why "so"?', "0")]
    assert found.splits["train"][0].id == "1"
    assert found.notes == (
        f"1 × a row left out that lacks columns, as published (first: {tmp_path / 'QQP' / 'train.tsv'}, line 3).",
        f"1 × a row left out in which a text is empty (first: {tmp_path / 'QQP' / 'train.tsv'}, line 4).",
    )


MNLI = ("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse")
MNLI = (*MNLI, "sentence2_parse", "sentence1", "sentence2")


def test_mnli_from_glue(tmp_path: Path) -> None:
    row = ("0", "1", "1n", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", "It's a.", 'A "b".')
    folder = tmp_path / "MNLI"
    write(folder / "train.tsv", tabs(*MNLI, "label1", "gold_label"), tabs(*row, "neutral", "entailment"))
    many = [f"label{n}" for n in range(1, 6)]
    for name in ("dev_matched", "dev_mismatched"):
        write(folder / f"{name}.tsv", tabs(*MNLI, *many, "gold_label"), tabs(*row, *["neutral"] * 5, "contradiction"))
    write(folder / "test_matched.tsv", tabs(*MNLI), tabs(*row))
    assert read("mnli", tmp_path) == {
        "train": [("It's a.", 'A "b".', "entailment")],
        "dev": [("It's a.", 'A "b".', "contradiction")],
        "dev_mismatched": [("It's a.", 'A "b".', "contradiction")],
        "test_unlabeled": [("It's a.", 'A "b".', None)],
    }
    assert read_benchmark("mnli", tmp_path).splits["train"][0].fields == {"genre": "fiction"}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("QNLI", ("question", "sentence")),
        ("RTE", ("sentence1", "sentence2")),
        ("WNLI", ("sentence1", "sentence2")),
    ],
)
def test_tasks_with_an_index(name: str, columns: tuple[str, str], tmp_path: Path) -> None:
    labels = BENCHMARKS[name.lower()].labels
    write(tmp_path / name / "train.tsv", tabs("index", *columns, "label"), tabs("0", 'a "q', "b", labels[1]))
    write(tmp_path / name / "dev.tsv", tabs("index", *columns, "label"), tabs("0", "c", "d", labels[0]))
    write(tmp_path / name / "test.tsv", tabs("index", *columns), tabs("0", "e", "f"))
    assert read(name.lower(), tmp_path) == {
        "train": [('a "q', "b", labels[1])],
        "dev": [("c", "d", labels[0])],
        "test_unlabeled": [("e", "f", None)],
    }


@pytest.mark.parametrize("ending", ["jsonl", "txt"])
@pytest.mark.parametrize(("name", "start"), [("snli", "snli_1.0"), ("mnli", "multinli_1.0")])
def test_snli_and_multinli_drop_pairs_without_a_gold_label(name: str, start: str, ending: str, tmp_path: Path) -> None:
    dev = "dev" if name == "snli" else "dev_matched"
    rows = [("neutral", "A man.", 'A "boy".'), ("-", "A cat.", "A dog."), ("entailment", "B", "C")]
    for split in ("train", dev):
        file = tmp_path / start / f"{start}_{split}.{ending}"
        if ending == "jsonl":
            keys = ("gold_label", "sentence1", "sentence2")
            write(file, *(json.dumps({**dict(zip(keys, row, strict=True)), "pairID": "x#1"}) for row in rows))
        else:
            header = tabs(
                "gold_label", "sentence1_binary_parse", "sentence1", "sentence2", "pairID", "label1", "label2"
            )
            write(file, header, *(tabs(row[0], "(p)", row[1], row[2], "x#1", "neutral") for row in rows))
    found = read_benchmark(name, tmp_path)
    assert [simple(item) for item in found.splits["dev"]] == [
        ("A man.", 'A "boy".', "neutral"),
        ("B", "C", "entailment"),
    ]
    assert found.splits["dev"][0].id == "x#1"
    assert found.notes[0].startswith("2 × a row left out that has no gold label (-)")


def test_sick_in_one_file_and_in_three(tmp_path: Path) -> None:
    one = tmp_path / "one"
    header = (
        "pair_ID",
        "sentence_A",
        "sentence_B",
        "entailment_label",
        "relatedness_score",
        "entailment_AB",
        "SemEval_set",
    )
    rows = [
        tabs(str(n), f"a {n}", f"b {n}", label, f"{n}.5", "A_x_B", split)
        for n, (label, split) in enumerate([("NEUTRAL", "TRAIN"), ("ENTAILMENT", "TRIAL"), ("CONTRADICTION", "TEST")])
    ]
    write(one / "SICK" / "SICK.txt", tabs(*header), *rows)
    assert read("sick", one) == {
        "train": [("a 0", "b 0", "neutral")],
        "dev": [("a 1", "b 1", "entailment")],
        "test": [("a 2", "b 2", "contradiction")],
    }
    assert read("sick-relatedness", one)["test"] == [("a 2", "b 2", 2.5)]
    three = tmp_path / "three"
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
        write(three / f"{name}.txt", tabs(*header), tabs("1", "a", "b", "4.1", "NEUTRAL"))
    assert read("sick", three) == {split: [("a", "b", "neutral")] for split in ("train", "dev", "test")}
    write(one / "SICK" / "SICK.txt", tabs(*header), tabs("1", "a", "b", "4.1", "NEUTRAL"))
    with pytest.raises(InputError, match=r"line 2: 'SemEval_set' must be TRAIN, TRIAL, TEST"):
        read("sick", one)


def test_trec_in_latin_1(tmp_path: Path) -> None:
    rows = [f"{kind}:x{n} How café {n} ?" for n, kind in enumerate(["DESC", "NUM"] * 10)]
    write(tmp_path / "train_5500.label", *rows, encoding="latin-1")
    write(tmp_path / "TREC_10.label", "NUM:dist How far is it ?", encoding="latin-1")
    found = read_benchmark("trec", tmp_path)
    assert sum(len(found.splits[split]) for split in ("train", "dev")) == 20
    assert simple(found.splits["test"][0]) == ("How far is it ?", "NUM")
    assert simple(read_benchmark("trec-fine", tmp_path).splits["test"][0]) == ("How far is it ?", "NUM:dist")
    assert "How café 0 ?" in {item.text for split in ("train", "dev") for item in found.splits[split]}
    write(tmp_path / "TREC_10.label", "NUM:dist How far ?", "how far")
    with pytest.raises(InputError, match=r"TREC_10.label, line 2: a question begins with its class"):
        read_benchmark("trec", tmp_path)


def test_imdb_as_folders_of_reviews(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("pos", "neg"):
            for number in range(12):
                file = tmp_path / "aclImdb" / split / label / f"{number}_{9 if label == 'pos' else 2}.txt"
                write(file, f"It was {label} {number}.<br /><br />Really.")
    found = read_benchmark("imdb", tmp_path)
    assert {split: len(items) for split, items in found.splits.items()} == {"train": 22, "dev": 2, "test": 24}
    item = found.splits["test"][0]
    assert (item.text, item.gold, item.fields, item.id) == ("It was neg 0.  Really.", "neg", {"rating": "2"}, "neg/0")
    assert [each.id for each in found.splits["test"][:12]] == [f"neg/{n}" for n in range(12)]
    (tmp_path / "bare" / "aclImdb" / "train" / "pos").mkdir(parents=True)
    with pytest.raises(InputError, match=r"has no reviews in it"):
        read_benchmark("imdb", tmp_path / "bare")


def test_sst_trees_their_roots_and_phrases(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(
            tmp_path / "trees" / f"{split}.txt",
            "(3 (2 It) (4 (2 's) (3 (2 -LRB-) (4 1\\/2))))",
            "(2 (2 It) (1 (0 bad) (2 .)))",
            "(1 bad)",
        )
    assert read("sst5", tmp_path)["train"] == [("It 's ( 1/2", "3"), ("It bad .", "2"), ("bad", "1")]
    assert read("sst3", tmp_path)["dev"] == [("It 's ( 1/2", "positive"), ("It bad .", "neutral"), ("bad", "negative")]
    assert read("sst2-trees", tmp_path)["dev"] == [("It 's ( 1/2", "positive"), ("bad", "negative")]
    phrases = read("sst5-phrases", tmp_path)
    assert phrases["dev"] == read("sst5", tmp_path)["dev"]
    assert phrases["train"] == [
        ("It 's ( 1/2", "3"),
        ("It", "2"),
        ("'s ( 1/2", "4"),
        ("'s", "2"),
        ("( 1/2", "3"),
        ("(", "2"),
        ("1/2", "4"),
        ("It bad .", "2"),
        ("bad .", "1"),
        ("bad", "0"),
        (".", "2"),
    ]


@pytest.mark.parametrize(
    "tree", ["(3 (2 a) (2 b)", "(3 (2 a) (2 b)))", "(7 (2 a) (2 b))", "no tree", "(3 (2 ) (2 b))", "(3 a) (2 b)"]
)
def test_broken_trees(tree: str, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.txt", "(3 (2 a) (2 b))", tree)
    with pytest.raises(InputError, match=r"train.txt, line 2: this is no tree"):
        read("sst5", tmp_path)


def arc(stem: str, choices: list[str], labels: str, key: str, **others: str) -> str:
    given = [{"text": text, "label": label} for text, label in zip(choices, labels, strict=True)]
    return json.dumps({"id": "Mercury_1", "question": {"stem": stem, "choices": given}, "answerKey": key, **others})


def test_arc_with_letters_and_digits(tmp_path: Path) -> None:
    for split in ("Train", "Dev", "Test"):
        write(
            tmp_path / "ARC-V1-Feb2018-2" / "ARC-Easy" / f"ARC-Easy-{split}.jsonl",
            arc("Which?", ["a", "b", "c"], "ABC", "C"),
            arc("What?", ["d", "e"], "12", "1"),
        )
    found = read_benchmark("arc-easy", tmp_path)
    assert [(item.text, item.choices, item.gold) for item in found.splits["dev"]] == [
        ("Which?", ("a", "b", "c"), 2),
        ("What?", ("d", "e"), 0),
    ]
    with pytest.raises(InputError, match=r"does not hold the data of arc-challenge"):
        read_benchmark("arc-challenge", tmp_path)


def test_commonsenseqa_and_its_unlabeled_test(tmp_path: Path) -> None:
    row = json.loads(arc("Where?", ["bank", "mall"], "AB", "B"))
    row["question"]["question_concept"] = "door"
    for split in ("train", "dev"):
        write(tmp_path / f"{split}_rand_split.jsonl", json.dumps(row))
    del row["answerKey"]
    write(tmp_path / "test_rand_split_no_answers.jsonl", json.dumps(row))
    found = read_benchmark("csqa", tmp_path)
    assert [(split, items[0].gold) for split, items in found.splits.items()] == [
        ("train", 1),
        ("dev", 1),
        ("test_unlabeled", None),
    ]
    write(tmp_path / "dev_rand_split.jsonl", arc("Where?", ["bank", "mall"], "AB", "E"))
    with pytest.raises(InputError, match=r"line 1: the answer 'E' is none of its choices: A, B"):
        read_benchmark("csqa", tmp_path)


def test_swag_is_csv_with_quotes(tmp_path: Path) -> None:
    header = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
    header += [f"ending{n}" for n in range(4)] + ["label"]
    for name in ("train", "val"):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerow(
                ["0", "lsmdc", "17", 'He says, "so". He', "He says", "He", "gold", "a, b", "c", "d", 'e "f"', "3"]
            )
    [item] = read_benchmark("swag", tmp_path).splits["dev"]
    assert (item.text, item.choices, item.gold) == ('He says, "so". He', ("a, b", "c", "d", 'e "f"'), 3)


def squad(answers: list[tuple[str, int]], /, **others: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    question = {"id": "q1", "question": "Who?", "answers": given, **others}
    return {"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": "Bo saw Bo.", "qas": [question]}]}]}


def test_squad_of_both_versions(tmp_path: Path) -> None:
    for version in ("v1.1", "v2.0"):
        for split in ("train", "dev"):
            write(tmp_path / f"{split}-{version}.json", json.dumps(squad([("Bo", 7), ("Bo", 0)])))
    none = squad([("Bo", 0)], is_impossible=True, plausible_answers=[{"text": "saw", "answer_start": 3}])
    with lzma.open(tmp_path / "dev-v2.0.json.xz", "wt") as file:
        file.write(json.dumps(none))
    (tmp_path / "dev-v2.0.json").unlink()
    [item] = read_benchmark("squad", tmp_path).splits["dev"]
    assert (item.text, item.second, item.id) == ("Bo saw Bo.", "Who?", "q1")
    assert item.gold == (Answer(7, "Bo"), Answer(0, "Bo"))
    assert read_benchmark("squad2", tmp_path).splits["dev"][0].gold == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            squad([("saw", 4)]),
            r"question q1: the answer 'saw' is not at character 4 .* there is 'aw'. It is at 3",
        ),
        (squad([("gone", 0)]), "It is nowhere in it"),
        (squad([("", 0)]), "the text of an answer is empty"),
        (squad([("Bo", -3)]), "is not at character -3"),
        (squad([], answers=["a"]), r"question q1: there is no list 'answers' of objects in it"),
        (squad([], answers="a"), r"question q1: there is no list 'answers' of objects in it"),
        (squad([], answers={"text": ["Bo"], "answer_start": [0]}), r"question q1: there is no list 'answers'"),
        ({"data": [{"title": "T"}]}, "no list 'paragraphs'"),
        ([1], "not laid out as SQuAD is"),
    ],
)
def test_answers_that_are_not_in_the_passage(content: Any, said: str, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write(tmp_path / f"{split}-v1.1.json", json.dumps(content))
    with pytest.raises(InputError, match=said):
        read_benchmark("squad", tmp_path)
    write(tmp_path / "train-v1.1.json", '{"data": [')
    with pytest.raises(InputError, match=r"train-v1.1.json is not JSON"):
        read_benchmark("squad", tmp_path)


def test_conll_2003_with_four_columns_turned_from_iob1(tmp_path: Path) -> None:
    lines = [
        "-DOCSTART- -X- -X- O",
        "",
        "U.N. NNP I-NP I-ORG",
        "saw VBD I-VP O",
        "Bo NNP I-NP I-PER",
        "Al NNP B-NP B-PER",
        "",
    ]
    lines += ["-DOCSTART- -X- O O", "", "EU NNP I-NP I-ORG", ""]
    for name in ("eng.train", "eng.testa", "eng.testb"):
        write(tmp_path / name, *lines)
    found = read_benchmark("conll", tmp_path)
    assert [(item.words, item.gold) for item in found.splits["test"]] == [
        (("U.N.", "saw", "Bo", "Al"), ("B-ORG", "O", "B-PER", "B-PER")),
        (("EU",), ("B-ORG",)),
    ]
    assert found.scheme == "BIO"
    assert found.labels == ("O", "B-ORG", "B-PER")
    assert found.notes == ("Tags were turned from IOB1 into BIO.",)


def test_a_benchmark_with_an_invalid_sequence_is_repaired_and_that_is_said(tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        write(
            tmp_path / f"{name}.conll", tabs("Bo", "B-PER"), tabs("ran", "O"), "", tabs("so", "O"), tabs("Al", "I-PER")
        )
    found = read_benchmark("wnut17", tmp_path)
    assert found.splits["dev"][1].gold == ("O", "B-PER")
    assert "3 invalid sequences of tags were repaired" in found.notes[0]
    assert "train.conll, line 5: 'I-PER' may not stand after 'O' in BIO, at word 2, 'Al'" in found.notes[0]


CONLLU = (
    "# sent_id = s{n}\n# text = I saw.\n1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n"
    "2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\tSpaceAfter=No\n3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_\n"
)


def treebank(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        write(folder / f"en_ewt-ud-{split}.conllu", CONLLU.format(n=1), CONLLU.format(n=2))


def test_treebanks_and_roles_joined_to_their_words(tmp_path: Path) -> None:
    treebank(tmp_path / "UD_English-EWT")
    assert read_benchmark("ud-ewt", tmp_path).splits["dev"][0].gold == ("PRON", "VERB", "PUNCT")
    assert read_benchmark("ud-ewt-xpos", tmp_path).splits["dev"][0].gold == ("PRP", "VBD", ".")
    props = [{"pred": 1, "sense": "see.01", "args": [["ARG0", 0, 0], ["ARGM-TMP", 2, 2], ["ARG1", 2, 2]]}]
    for split in ("train", "dev", "test"):
        write(tmp_path / "srl" / f"ewt-propbank-{split}.jsonl", json.dumps({"id": "s2", "n": 3, "props": props}))
    found = read_benchmark("srl", tmp_path)
    [item] = found.splits["train"]
    assert (item.words, item.marks, item.gold) == (("I", "saw", "."), (0, 1, 0), ("B-ARG0", "O", "B-ARGM-TMP"))
    assert (item.id, item.fields) == ("s2:1", {"sense": "see.01"})
    assert found.notes[0].startswith("3 × an argument left out that overlaps")
    write(tmp_path / "srl" / "ewt-propbank-dev.jsonl", json.dumps({"id": "s3", "n": 3, "props": props}))
    with pytest.raises(InputError, match=r"no sentence with the id 's3'"):
        read_benchmark("srl", tmp_path)
    (tmp_path / "srl").rename(tmp_path / "alone")
    with pytest.raises(InputError, match=r"has roles and no words"):
        read_benchmark("srl", shut(tmp_path))


def shut(folder: Path) -> Path:
    """The roles in a folder with no treebank near."""
    away = folder / "far" / "away"
    away.parent.mkdir()
    return (folder / "alone").rename(away)


# --- names and places -------------------------------------------------------------------------------------------------


def test_names_and_their_typos() -> None:
    assert named_benchmark("SST-2").name == "sst2"
    assert named_benchmark("STS_B").name == "stsb"
    with pytest.raises(OptionError, match=r"There is no task 'ret'. Did you mean 'rte'"):
        named_benchmark("ret")
    with pytest.raises(OptionError, match=r"Did you mean 'rte'\? There are: rte, mrpc\.$"):
        named_benchmark("rtee", among=("rte", "mrpc"))
    with pytest.raises(OptionError, match=r"Did you mean 'squad"):
        read_benchmark("squda2", None)


def test_where_data_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rte needs its data: name the folder"):
        read_benchmark("rte", None)
    with pytest.raises(InputError, match=r"There is no folder"):
        read_benchmark("rte", tmp_path / "gone")
    with pytest.raises(
        InputError, match=r"does not hold the data of rte. Looked for train.tsv, train.sample.tsv.*tasks/rte"
    ):
        read_benchmark("rte", tmp_path)
    write(tmp_path / "x.tsv", "a")
    with pytest.raises(InputError, match=r"is a file. The data of rte is a folder"):
        read_benchmark("rte", tmp_path / "x.tsv")
    row = tabs("index", "sentence1", "sentence2", "label"), tabs("0", "a", "b", "entailment")
    for split in ("train", "dev"):
        write(tmp_path / "tasks" / "rte" / f"{split}.tsv", *row)
    for folder in (tmp_path, tmp_path / "tasks", tmp_path / "tasks" / "rte"):
        assert read("rte", folder)["train"] == [("a", "b", "entailment")]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            (tabs("index", "sentence1", "sentence2", "label"), tabs("0", "a", "b")),
            r"line 2: the columns, .* are 3, .* be 4",
        ),
        (
            (tabs("index", "sentence1", "sentence2", "label"), tabs("0", "a", "b", "perhaps")),
            r"line 2: 'perhaps' is no label",
        ),
        ((tabs("sentence", "label"), tabs("a", "1")), r"of another layout: it has no column 'premise' or 'sentence1'"),
        ((tabs("sentence1", "label"), tabs("a", "1")), r"no column 'hypothesis' or 'sentence2'"),
        ((tabs("index", "sentence1", "sentence2", "label"),), "has a header and no rows"),
    ],
)
def test_tables_that_are_not_in_order(rows: tuple[str, ...], said: str, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.tsv", *rows)
    with pytest.raises(InputError, match=said):
        read_benchmark("rte", tmp_path)


def test_items_are_light_to_import() -> None:
    import subprocess
    import sys

    code = "import sys, polyseme.tasks.items; print(sorted({'torch', 'numpy', 'pyarrow'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_task_needs_its_words_once() -> None:
    item = Item.of_words(["a", "b"], gold=("X", "Y"))
    assert (item.text, item.words) == ("a b", ("a", "b"))
    task = TaskData(name="t", kind="tag", splits={"train": [item]}, metrics=("word_accuracy",))
    assert task.labels == ()

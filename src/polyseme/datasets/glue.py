"""GLUE's nine tasks (Wang et al. 2019), from GLUE's own files, the corpora they were made of, or tables like them."""

from __future__ import annotations

from polyseme.datasets.benchmark import Benchmark, table_reader
from polyseme.datasets.nli import NLI_LABELS, read_inference
from polyseme.datasets.tab_separated import Columns, a_number, one_label
from polyseme.tasks.splits import Patterns

_FILES: Patterns = {
    "train": ("train.tsv", "train.sample.tsv"),
    "dev": ("dev.tsv", "dev.sample.tsv"),
    "test": ("test.tsv", "test.sample.tsv"),
}
_YES_NO = ("0", "1")
_STS_COLUMNS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")
"""Of the files of the STS Benchmark itself; some rows have sources behind them."""
_ENTAILED = ("entailment", "not_entailment")

GLUE: tuple[Benchmark, ...] = (
    Benchmark(
        name="cola",
        kind="classify",
        about="is the sentence English? (linguists' examples)",
        metrics=("matthews", "accuracy"),
        folders=("cola", "CoLA", "cola_public/raw"),
        files={
            "train": (*_FILES["train"], "in_domain_train.tsv"),
            "dev": (*_FILES["dev"], "in_domain_dev.tsv"),
            "test": _FILES["test"],
        },
        labels=_YES_NO,
        reader=table_reader(
            Columns(
                text=("sentence",), fields=("source",), headerless={4: ("source", "label", "author's mark", "sentence")}
            ),
            one_label(_YES_NO),
        ),
    ),
    Benchmark(
        name="sst2",
        kind="classify",
        about="is the review good or bad? (phrases and sentences)",
        metrics=("accuracy",),
        folders=("sst2", "SST-2"),
        files=_FILES,
        labels=_YES_NO,
        reader=table_reader(Columns(text=("sentence",)), one_label(_YES_NO)),
    ),
    Benchmark(
        name="mrpc",
        kind="pair",
        about="do the two sentences say the same? (news)",
        metrics=("f1", "accuracy"),
        folders=("mrpc", "MRPC", "MSRParaphraseCorpus"),
        files={
            "train": (*_FILES["train"], "msr_paraphrase_train.txt"),
            "dev": _FILES["dev"],
            "test": (*_FILES["test"], "msr_paraphrase_test.txt"),
        },
        labels=_YES_NO,
        reader=table_reader(
            Columns(text=("sentence1", "#1 String"), second=("sentence2", "#2 String"), label=("label", "Quality")),
            one_label(_YES_NO),
        ),
    ),
    Benchmark(
        name="stsb",
        kind="pair",
        about="how alike are the two sentences, from 0 to 5?",
        metrics=("spearman", "pearson"),
        folders=("stsb", "STS-B", "stsbenchmark"),
        files={
            "train": (*_FILES["train"], "sts-train.csv"),
            "dev": (*_FILES["dev"], "sts-dev.csv"),
            "test": (*_FILES["test"], "sts-test.csv"),
        },
        regression=True,
        reader=table_reader(
            Columns(
                text=("sentence1",),
                second=("sentence2",),
                label=("score",),
                fields=("genre", "source"),
                headerless=dict.fromkeys((7, 8, 9), _STS_COLUMNS),
                ragged=True,
            ),
            a_number,
        ),
    ),
    Benchmark(
        name="qqp",
        kind="pair",
        about="do the two questions ask the same? (Quora)",
        metrics=("f1", "accuracy"),
        folders=("qqp", "QQP"),
        files=_FILES,
        labels=_YES_NO,
        reader=table_reader(
            Columns(text=("question1",), second=("question2",), label=("label", "is_duplicate"), ragged=True),
            one_label(_YES_NO),
        ),
    ),
    Benchmark(
        name="mnli",
        kind="pair",
        about="does the first sentence entail or contradict the second, or neither? (ten genres)",
        metrics=("accuracy",),
        folders=("mnli", "MNLI", "multinli_1.0"),
        files={
            "train": (*_FILES["train"], "multinli_1.0_train.jsonl", "multinli_1.0_train.txt"),
            "dev": (
                "dev_matched.tsv",
                "dev_matched.sample.tsv",
                "multinli_1.0_dev_matched.jsonl",
                "multinli_1.0_dev_matched.txt",
            ),
            "dev_mismatched": (
                "dev_mismatched.tsv",
                "dev_mismatched.sample.tsv",
                "multinli_1.0_dev_mismatched.jsonl",
                "multinli_1.0_dev_mismatched.txt",
            ),
            "test": ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
        },
        labels=NLI_LABELS,
        reader=read_inference,
    ),
    Benchmark(
        name="qnli",
        kind="pair",
        about="does the sentence answer the question? (Wikipedia)",
        metrics=("accuracy",),
        folders=("qnli", "QNLI"),
        files=_FILES,
        labels=_ENTAILED,
        reader=table_reader(Columns(text=("question",), second=("sentence",)), one_label(_ENTAILED)),
    ),
    Benchmark(
        name="rte",
        kind="pair",
        about="does the first text entail the second? (news, Wikipedia; small)",
        metrics=("accuracy",),
        folders=("rte", "RTE"),
        files=_FILES,
        labels=_ENTAILED,
        reader=table_reader(
            Columns(text=("premise", "sentence1"), second=("hypothesis", "sentence2")), one_label(_ENTAILED)
        ),
    ),
    Benchmark(
        name="wnli",
        kind="pair",
        about="does the pronoun stand for this? (Winograd's schemas; dev contradicts train on purpose)",
        metrics=("accuracy",),
        folders=("wnli", "WNLI"),
        files=_FILES,
        labels=_YES_NO,
        reader=table_reader(Columns(text=("sentence1",), second=("sentence2",)), one_label(_YES_NO)),
    ),
)

"""GLUE's nine tasks (Wang et al. 2019), from GLUE's own files, the corpora they were made of, or tables like them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from polyseme.datasets.benchmark import Benchmark, Columns, a_number, one_label, table_reader
from polyseme.datasets.nli import NLI_LABELS, read_inference

_YES_NO = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")
_STS_COLUMNS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")
"""Of the files of the STS Benchmark itself; some rows have sources behind them."""


def _glue(
    name: str,
    kind: str,
    description: str,
    metrics: tuple[str, ...],
    *folders: str,
    columns: Columns,
    labels: tuple[str, ...] = _YES_NO,
    to_gold: Callable[..., object] | None = None,
    others: Mapping[str, str] = MappingProxyType({}),
    **fields: Any,
) -> Benchmark:
    """A task whose splits are tables: `train.tsv`, `dev.tsv` and `test.tsv`, or files of `others`."""
    return Benchmark(
        name=name,
        kind=kind,
        description=description,
        metrics=metrics,
        folders=(name, *folders),
        files={
            split: (f"{split}.tsv", f"{split}.sample.tsv", *([others[split]] if split in others else []))
            for split in ("train", "dev", "test")
        },
        labels=labels,
        reader=table_reader(columns, to_gold or one_label(labels)),
        **fields,
    )


GLUE: tuple[Benchmark, ...] = (
    _glue(
        "cola", "classify", "is the sentence English? (linguists' examples)", ("matthews", "accuracy"),
        "CoLA", "cola_public/raw",
        columns=Columns(
            text=("sentence",), fields=("source",), headerless={4: ("source", "label", "author's mark", "sentence")}
        ),
        others={"train": "in_domain_train.tsv", "dev": "in_domain_dev.tsv"},
    ),
    _glue(
        "sst2", "classify", "is the review good or bad? (phrases and sentences)", ("accuracy",), "SST-2",
        columns=Columns(text=("sentence",)),
    ),
    _glue(
        "mrpc", "pair", "do the two sentences say the same? (news)", ("f1", "accuracy"), "MRPC", "MSRParaphraseCorpus",
        columns=Columns(
            text=("sentence1", "#1 String"), second=("sentence2", "#2 String"), label=("label", "Quality")
        ),
        others={"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"},
    ),
    _glue(
        "stsb", "pair", "how alike are the two sentences, from 0 to 5?", ("spearman", "pearson"),
        "STS-B", "stsbenchmark",
        columns=Columns(
            text=("sentence1",),
            second=("sentence2",),
            label=("score",),
            fields=("genre", "source"),
            headerless=dict.fromkeys((7, 8, 9), _STS_COLUMNS),
            ragged=True,
        ),
        labels=(),
        to_gold=a_number,
        others={"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"},
        regression=True,
    ),
    _glue(
        "qqp", "pair", "do the two questions ask the same? (Quora)", ("f1", "accuracy"), "QQP",
        columns=Columns(text=("question1",), second=("question2",), label=("label", "is_duplicate"), ragged=True),
    ),
    Benchmark(
        name="mnli",
        kind="pair",
        description="does the first sentence entail or contradict the second, or neither? (ten genres)",
        metrics=("accuracy",),
        folders=("mnli", "MNLI", "multinli_1.0"),
        files={
            "train": ("train.tsv", "train.sample.tsv", "multinli_1.0_train.jsonl", "multinli_1.0_train.txt"),
            **{
                f"dev{split}": (
                    f"dev_{name}.tsv",
                    f"dev_{name}.sample.tsv",
                    f"multinli_1.0_dev_{name}.jsonl",
                    f"multinli_1.0_dev_{name}.txt",
                )
                for split, name in (("", "matched"), ("_mismatched", "mismatched"))
            },
            "test": ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
        },
        labels=NLI_LABELS,
        reader=read_inference,
    ),
    _glue(
        "qnli", "pair", "does the sentence answer the question? (Wikipedia)", ("accuracy",), "QNLI",
        columns=Columns(text=("question",), second=("sentence",)),
        labels=_ENTAILED,
    ),
    _glue(
        "rte", "pair", "does the first text entail the second? (news, Wikipedia; small)", ("accuracy",), "RTE",
        columns=Columns(text=("premise", "sentence1"), second=("hypothesis", "sentence2")),
        labels=_ENTAILED,
    ),
    _glue(
        "wnli", "pair", "does the pronoun stand for this? (Winograd's schemas; dev contradicts train on purpose)",
        ("accuracy",), "WNLI",
        columns=Columns(text=("sentence1",), second=("sentence2",)),
    ),
)  # fmt: skip

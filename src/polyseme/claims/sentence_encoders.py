"""What teaches an LSTM most about sentences: language modeling, translation, copying, or the sentences around."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab, of_row, pretraining_rows
from polyseme.claims.rule import Rule, above
from polyseme.sweeps.sweep_report import RunResult
from polyseme.text.sentences import split_sentences
from polyseme.verbs.corpus import build_corpus

LM, TRANSLATION, COPY, SKIP = "language model", "translation", "autoencoder", "skip-thoughts"
ACCURACY = "trec accuracy on test"
SHARE = "1%"
WORDS = 380_000
"""As many as the English side of Multi30k has."""
SMALL_LACKS = "Encoders that have learned enough to differ: each takes a hundredth of the operations of the full size."
_ENCODER: Mapping[str, Any] = {"reads": "forwards", "memory": "state", "decoder_layers": 1}
_DROPOUT: Mapping[str, Any] = {"dropout_rate": 0.3, "embedding_dropout_rate": 0.3}
Pairs = Sequence[tuple[str, str]]


def encoders(lab: Lab, name: str, lines: Sequence[str], pairs: Mapping[str, Pairs]) -> list[RunResult]:
    """One LSTM with every objective and seed, read frozen for 1% of TREC's labels.

    Args:
        lab: the place of the claim.
        name: of the texts.
        lines: the texts of the language model, and of the tokenizer.
        pairs: of each other objective what it reads, and what it writes.
    """
    width, budget = (128, 3e12) if lab.small else (512, 3e14)
    shape = {"n_layers": 1, "token_width": width, "width": width}
    rows: dict[str, dict[str, Any]] = {}
    tokenizers = {frame: _tokenizer(lab, name, lines, frame) for frame in ("transformer", "lm")}
    for row, each in pairs.items():
        source, target = ([pair[side] for pair in each] for side in (0, 1))
        rows[row] = {
            "recipe": "seq2seq",
            "source": _written(lab, f"{name}.{row}.source", source),
            "target": _written(lab, f"{name}.{row}.target", target),
            "tokenizer": tokenizers["transformer"],
            "shape": {**shape, **_ENCODER},
        }
    rows[LM] = {
        "recipe": "lstm-tiny",
        "sources": [_written(lab, f"{name}.lines", lines)],
        "tokenizer": tokenizers["lm"],
        "shape": {**shape, **_DROPOUT},
        "documents": "line",
    }
    runs = lab.sweep(f"encoders-{name}", "pretrain", None, rows=rows, budget=lab.budget(budget, "flops"))
    options = {"frozen": True, "stack": "encoder", "layer": "-1", "head": "linear", "readout": "concat"}
    fitted = [
        lab.finetune(
            row, seed, "trec", model=lab.model(of_row(runs, row, seed)), train_share=SHARE, unseen="keep",
            shared=f"encoders-{name}", **options,
        )
        for row in rows
        for seed in lab.seeds
    ]  # fmt: skip
    return [*pretraining_rows(runs), *fitted]


def _tokenizer(lab: Lab, name: str, lines: Sequence[str], frame: str) -> str:
    place = lab.folder / f"{name}.{frame}.corpus"
    texts = _written(lab, f"{name}.lines", lines)
    settings: dict[str, Any] = {"tokenizer": "byte-bpe", "vocab_size": 8192, "documents": "line"}
    build_corpus(texts, output=place, frame=frame, reuse=True, **settings)
    return str(place / "tokenizer")


def _written(lab: Lab, name: str, lines: Sequence[str]) -> str:
    file: Path = lab.folder / f"{name}.txt".replace(" ", "-")
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(file)


def run_captions(lab: Lab) -> list[RunResult]:
    """On the English side of Multi30k."""
    english, german = (
        [" ".join(line.split()) for line in _read(lab.file("tasks/multi30k", f"train.{side}")).splitlines()]
        for side in ("en", "de")
    )
    pairs = {TRANSLATION: list(zip(english, german, strict=True)), COPY: [(each, each) for each in english]}
    return encoders(lab, "multi30k", english, pairs)


def run_documents(lab: Lab) -> list[RunResult]:
    """On as many words of documents in their order."""
    documents: list[list[str]] = []
    for name in ("wiki-00", "books-00"):
        n_words = WORDS // 2
        for document in _read(lab.file("corpus", f"{name}.")).split("\n\n"):
            sentences = [" ".join(document[start:end].split()) for start, end in split_sentences(document)]
            documents.append([each for each in sentences if each])
            n_words -= len(document.split())
            if n_words <= 0:
                break
    pairs = []
    for sentences in documents:
        pairs += [(one, f"<next> {other}") for one, other in pairwise(sentences)]
        pairs += [(other, f"<previous> {one}") for one, other in pairwise(sentences)]
    return encoders(lab, "documents", [" ".join(each) for each in documents], {SKIP: pairs})


def _read(file: Path) -> str:
    with lzma.open(file, "rt", encoding="utf-8") as opened:
        return opened.read()


def _claim(name: str, rival: str, activity: str, runs: str, run: Any, data: Sequence[str]) -> Claim:
    return Claim(
        name=name,
        text=f"Language modeling teaches an encoder of sentences more than {activity}.",
        source="Zhang and Bowman 2018",
        runs=f"{runs} The frozen encoder is read for TREC with {SHARE} of the labels, five seeds.",
        rule=Rule(conditions=(above(LM, rival, ACCURACY),)),
        run=run,
        data=data,
        seeds=5,
        minutes=20,
        small_minutes=60,
        small_lacks=SMALL_LACKS,
        observed="experiments/rival_objectives.py: all labels, one seed of each encoder (docs: Pretraining).",
    )


_DOCUMENTS = ("corpus", "tasks/trec")
_CAPTIONS = ("tasks/multi30k", "tasks/trec")
_ONE_ON_CAPTIONS = "One LSTM on Multi30k's English, by either."
_ONE_ON_DOCUMENTS = "One LSTM on documents, by either."
CLAIMS = (
    _claim("lm-beats-translation", TRANSLATION, "translation does", _ONE_ON_CAPTIONS, run_captions, _CAPTIONS),
    _claim("lm-beats-autoencoder", COPY, "autoencoding does", _ONE_ON_CAPTIONS, run_captions, _CAPTIONS),
    _claim("lm-beats-skip-thoughts", SKIP, "skip-thoughts do", _ONE_ON_DOCUMENTS, run_documents, _DOCUMENTS),
)

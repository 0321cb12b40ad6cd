"""The tokenizer of a corpus: a kind that is trained on the text, or one that exists."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from polyseme.corpus.document_reader import within_limit
from polyseme.corpus.partial_corpus import AnySource
from polyseme.corpus.tokenizer_training import KINDS, frame_for, get_tokenizer_kind, sample_of, train_tokenizer
from polyseme.errors import OptionError, nearest
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.verb_options.pretraining_options import CorpusOptions

VOCABULARY = 30_522
"""Pieces of a tokenizer that is trained here, by default: as many as BERT's has."""


@dataclass(frozen=True)
class TokenizerChoice:
    """The choice of the options: the kind of a new tokenizer with its settings, or an existing tokenizer."""

    settings: Mapping[str, Any]
    kind: str | None = None
    ready: PieceTokenizer | None = None

    @classmethod
    def of(cls, options: CorpusOptions) -> TokenizerChoice:
        name = os.fspath(options.tokenizer)
        if name in KINDS:
            frame, lowercase = frame_for(name, options.frame), options.lowercase
            settings = {
                "tokenizer": name,
                "vocab_size": VOCABULARY if options.vocab_size is None else options.vocab_size,
                "frame": frame,
                "lowercase": get_tokenizer_kind(name).lowercase(frame) if lowercase is None else lowercase,
                "sample": options.sample,
                **({"min_count": options.min_count} if options.min_count > 1 else {}),
            }
            return cls(settings, kind=name)
        if not Path(name).is_dir():
            raise OptionError(
                f"There is no kind of tokenizer {name!r}, and no such folder. {nearest(name, KINDS)} Or give a folder "
                "with a tokenizer's files."
            )
        run = Path(name) / "run.json"
        ready = load_tokenizer(Path(name) / "model" if run.is_file() else name)  # of a run, that of its model
        return cls({"tokenizer": ready.fingerprint}, ready=ready)

    def create(self, texts: Sequence[AnySource], limit: int | None) -> tuple[PieceTokenizer, list[str]]:
        """The tokenizer, and notes about it."""
        if self.kind is None:
            return cast(PieceTokenizer, self.ready), []
        reads_all, n_pieces = get_tokenizer_kind(self.kind).reads_all, self.settings["vocab_size"]
        sample = None if reads_all else sample_of(texts, self.settings["sample"], limit)
        trained = train_tokenizer(
            self.kind,
            _all_of(texts, limit) if sample is None else sample.texts,
            vocab_size=n_pieces,
            frame=self.settings["frame"],
            lowercase=self.settings["lowercase"],
            min_count=self.settings.get("min_count", 1),
        )
        notes = [f"The tokenizer was trained on {'all of the text' if sample is None else sample.in_words}."]
        if sample is not None and trained.n_pieces < n_pieces:
            notes.append(
                f"The text gives a vocabulary of {trained.n_pieces:,} pieces, fewer than the {n_pieces:,} requested."
            )
        return trained, notes


def _all_of(sources: Sequence[AnySource], limit: int | None) -> Iterator[str]:
    """Every document, one after another."""
    for source in sources:
        for stretch in within_limit(source.stretches(), limit):
            for text in stretch.texts:
                yield text.decode()

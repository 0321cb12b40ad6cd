"""Tokenizers learned from text, by the trainers of the `tokenizers` library.

| kind | splits text | usual frame |
|---|---|---|
| wordpiece | as BERT does: words and marks, then pieces with `##` inside a word | bert |
| bpe | likewise, then pairs of letters that are joined, `</w>` at the end of a word (GPT) | gpt |
| byte-bpe | as GPT-2 does: words with the blank before them, over bytes, so that nothing is unknown | roberta |
| unigram | words with the blank before them, the likeliest pieces (SentencePiece) | albert |
| words | words and marks, whole | lm |
| blanks | everything between blanks, whole: for text that was split before | lm |
| characters | single characters | lm |

Training gives the same vocabulary each time for all kinds but one. The library goes through words in an order that is
another one in every process, so the pieces whose numbers would depend on it, those of single characters, are numbered
here beforehand, by how frequent they are and then by their code points. In a unigram model the order also decides how
sums of fractions are rounded: two of the same text may differ in a few pieces.

Kinds of whole words and characters are numbered by how frequent they are. Their table holds every type it can, however
rare: what predicts words takes only the first of them (`n_outputs` of ELMo's config), and what reads words by their
characters reads all. They are trained on all of the text, the other kinds on a sample from all over it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyseme.corpus.document_reader import TextSource
from polyseme.corpus.parallel_text import PairSource
from polyseme.errors import InputError, OptionError, PolysemeError, nearest
from polyseme.text.character_dictionary import EDGES
from polyseme.text.cut_points import CHARACTER, EXTRA_BLANKS, WORD
from polyseme.text.framing import FRAMES, Frame
from polyseme.text.specials import mark_specials
from polyseme.text.tokenizer import PieceTokenizer

_ALPHABET = 1000
"""Characters that are taken in at most, where a vocabulary has characters."""
_SHARE = 4
"""At most one in so many pieces is a character."""
_MIN_FREQUENCY = 2
_SEEDS = 10
"""How many times the vocabulary a unigram model starts with, before it throws out what it can best spare."""
_PART = 1 << 14
"""Bytes of a document that are taken or left together."""
_CONTROL_BLANKS = r"[\x{9}\x{a}\x{b}\x{c}\x{d}]"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How one kind of tokenizer is set up and trained."""

    frame: str
    """The default; another can be chosen."""
    lowercase: Callable[[str], bool] = lambda frame: False
    """Whether text is lower-cased by default, by frame."""
    build: Callable[[Frame, bool], Tokenizer]
    trainer: Callable[[Mapping[str, Any], Frame, Sequence[str]], Any]
    """From the options that all trainers take, the frame, and the alphabet."""
    n_least: int = 1
    """Pieces that are there besides specials, whatever the text."""
    has_alphabet: bool = False
    has_unknown: bool = True
    masks_take_blanks: bool = True
    reads_all: bool = False
    """Whether it is trained on all of the text, of which it keeps only counts, and not on a sample."""


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    *,
    vocab_size: int,
    frame: str | None = None,
    lowercase: bool | None = None,
    min_count: int = 1,
) -> PieceTokenizer:
    """A tokenizer of a kind (`KINDS`) with at most `vocab_size` pieces, learned from `texts`.

    Of whole words, those that occur fewer than `min_count` times are unknown.
    """
    chosen = get_tokenizer_kind(kind)
    name = frame_for(kind, frame)
    its_frame = FRAMES[name]
    if min_count > 1 and not chosen.reads_all:
        raise OptionError(f"Only whole words are counted, and {kind} has parts of words. Leave min_count out.")
    specials, sentinels = list(_FIRST.get(name, _specials(its_frame))), _SENTINELS.get(name, ())
    least = chosen.n_least + len(specials) + 1 + len(sentinels)
    if vocab_size < least:
        raise OptionError(
            f"A vocabulary of {kind} with the frame {name!r} has at least {least} pieces. Got {vocab_size} instead."
        )
    vocab_size -= len(sentinels)
    lowers = chosen.lowercase(name) if lowercase is None else lowercase
    backend = chosen.build(its_frame, lowers)
    texts = texts if chosen.reads_all else list(texts)
    alphabet = _alphabet(list(texts), backend, min(_ALPHABET, vocab_size // _SHARE)) if chosen.has_alphabet else []
    try:
        shared = {"vocab_size": vocab_size, "special_tokens": specials, "show_progress": False}
        shared |= {"min_frequency": min_count} if chosen.reads_all else {}
        backend.train_from_iterator(texts, chosen.trainer(shared, its_frame, alphabet))
    except (PolysemeError, OSError):
        raise  # from where the texts come from
    except Exception as error:  # noqa: BLE001 - the library has no class of its own for this
        raise OptionError(
            f"A vocabulary of {kind} with {vocab_size:,} pieces besides {len(sentinels)} last ones cannot be learned "
            f"from this text ({error}). Ask for more pieces (--vocab-size), or choose the kind 'byte-bpe'."
        ) from None
    if min_count > 1 and backend.get_vocab_size() <= len(specials):
        raise InputError(
            f"No word occurs {min_count} times in this text, so that no vocabulary is left. Give more text, or count "
            "rarer words in (--min-count 1)."
        )
    if chosen.has_alphabet or chosen.reads_all:
        backend = _without_added(backend, first=specials if chosen.reads_all else ())
    mark_specials(backend, its_frame.specials, masks_take_blanks=chosen.masks_take_blanks)
    backend.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in sentinels])
    return PieceTokenizer(backend, its_frame)


def tokenizer_of_words(words: Iterable[str], frame: str = "lm") -> PieceTokenizer:
    """A tokenizer of the kind `blanks` with these words after its specials, as one that was trained has them."""
    its_frame = FRAMES[frame]
    pieces = dict.fromkeys([*_specials(its_frame), *words])
    backend = KINDS["blanks"].build(its_frame, False)
    backend.model = models.WordLevel({piece: id for id, piece in enumerate(pieces)}, its_frame.specials["unknown"])
    mark_specials(backend, its_frame.specials, masks_take_blanks=KINDS["blanks"].masks_take_blanks)
    return PieceTokenizer(backend, its_frame)


def get_tokenizer_kind(name: str) -> Kind:
    """A kind of tokenizer by its name."""
    if name not in KINDS:
        raise OptionError(f"There is no kind of tokenizer {name!r}. {nearest(name, KINDS)}")
    return KINDS[name]


def frame_for(kind: str, frame: str | None) -> str:
    """The frame that a kind of tokenizer is given, by name."""
    chosen = get_tokenizer_kind(kind)
    name = frame or chosen.frame
    if name not in FRAMES:
        raise OptionError(f"There is no frame {name!r}. {nearest(name, FRAMES)}")
    if chosen.has_unknown and "unknown" not in FRAMES[name].specials:
        raise OptionError(
            f"A tokenizer of the kind {kind!r} needs a piece for what is unknown, and the frame {name!r} has none. "
            f"Choose the frame {chosen.frame!r}, or the kind 'byte-bpe', to which nothing is unknown."
        )
    return name


# --- the kinds -------------------------------------------------------------------------------------------------------


def _bert_like(model: Any, decoder: Any, lowercase: bool) -> Tokenizer:
    backend = Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoder
    return backend


def _wordpiece(frame: Frame, lowercase: bool) -> Tokenizer:
    return _bert_like(models.WordPiece(unk_token=frame.specials["unknown"]), decoders.WordPiece(), lowercase)


def _bpe(frame: Frame, lowercase: bool) -> Tokenizer:
    model = models.BPE(unk_token=frame.specials["unknown"], end_of_word_suffix="</w>")
    return _bert_like(model, decoders.BPEDecoder(suffix="</w>"), lowercase)


def _byte_bpe(frame: Frame, lowercase: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _unigram(frame: Frame, lowercase: bool) -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    folding: list[Any] = [normalizers.NFKC()]
    if lowercase:  # as ALBERT does
        folding = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    blanks = [normalizers.Replace(Regex(_CONTROL_BLANKS), " "), normalizers.Replace(Regex(EXTRA_BLANKS), " ")]
    backend.normalizer = normalizers.Sequence([blanks[0], *folding, blanks[1]])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def _with_alphabet(shared: Mapping[str, Any], alphabet: Sequence[str], inside_words: str) -> dict[str, Any]:
    """The options of a trainer whose characters, also as they are written inside or at the end of words, are given."""
    return {
        **shared,
        "min_frequency": _MIN_FREQUENCY,
        "special_tokens": [*shared["special_tokens"], *(inside_words.format(character) for character in alphabet)],
        "initial_alphabet": list(alphabet),
        "limit_alphabet": len(alphabet),
    }


def _word_level(frame: Frame, lowercase: bool, splitting: Any) -> Tokenizer:
    backend = Tokenizer(models.WordLevel({}, unk_token=frame.specials["unknown"]))
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = splitting
    return backend


def _words(frame: Frame, lowercase: bool) -> Tokenizer:
    """Words and marks, each by itself."""
    words = pre_tokenizers.Split(Regex(WORD), "isolated")
    return _word_level(frame, lowercase, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words]))


def _blanks(frame: Frame, lowercase: bool) -> Tokenizer:
    """Everything between blanks: for text that was split into words before, as WikiText is."""
    return _word_level(frame, lowercase, pre_tokenizers.WhitespaceSplit())


def _characters(frame: Frame, lowercase: bool) -> Tokenizer:
    """Every character, blanks and the ends of lines among them."""
    backend = _word_level(frame, lowercase, pre_tokenizers.Split(Regex(CHARACTER), "isolated"))
    backend.decoder = decoders.Fuse()
    return backend


def _without_added(backend: Tokenizer, *, first: Sequence[str]) -> Tokenizer:
    """The same tokenizer, with its pieces in the vocabulary only, none of them known as special, and some first.

    So the specials of whole words are numbered first, also where the text spells one out. WikiText does: its rare words
    are written `<unk>`, which training then counts as a word like any other.
    """
    settings = json.loads(backend.to_str())
    settings["added_tokens"] = []
    if first:
        ids = settings["model"]["vocab"]
        others = [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in first]
        settings["model"]["vocab"] = {piece: id for id, piece in enumerate([*first, *others])}
    return Tokenizer.from_str(json.dumps(settings))


KINDS: Mapping[str, Kind] = {
    "wordpiece": Kind(
        frame="bert",
        lowercase=lambda frame: True,
        build=_wordpiece,
        trainer=lambda shared, _, alphabet: trainers.WordPieceTrainer(**_with_alphabet(shared, alphabet, "##{}")),
        has_alphabet=True,
        masks_take_blanks=False,
    ),
    "bpe": Kind(
        frame="gpt",
        lowercase=lambda frame: True,
        build=_bpe,
        trainer=lambda shared, _, alphabet: trainers.BpeTrainer(
            **_with_alphabet(shared, alphabet, "{}</w>"), end_of_word_suffix="</w>"
        ),
        has_alphabet=True,
    ),
    "byte-bpe": Kind(
        frame="roberta",
        build=_byte_bpe,
        trainer=lambda shared, *_: trainers.BpeTrainer(
            **shared, min_frequency=_MIN_FREQUENCY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
        ),
        n_least=256,
        has_unknown=False,
    ),
    "unigram": Kind(
        frame="albert",
        lowercase=lambda frame: frame == "albert",
        build=_unigram,
        trainer=lambda shared, frame, _: trainers.UnigramTrainer(
            **shared,
            unk_token=frame.specials["unknown"],
            seed_size=_SEEDS * shared["vocab_size"],  # type: ignore[call-arg]
        ),
    ),
    **{
        name: Kind(
            frame="lm",
            build=build,
            trainer=lambda shared, *_: trainers.WordLevelTrainer(**shared),
            reads_all=True,
        )
        for name, build in (("words", _words), ("blanks", _blanks), ("characters", _characters))
    },
}
"""The kinds of tokenizer that can be learned from text."""


# --- inside ----------------------------------------------------------------------------------------------------------

_ORDERS = {
    "bert": ("pad", "unknown", "start", "end", "mask"),
    "roberta": ("start", "pad", "end", "unknown", "mask"),
    "t5": ("pad", "end", "unknown", "start", "mask"),
}
_FIRST = {"flair": (FRAMES["flair"].specials["unknown"], *EDGES)}
"""Pieces that come first and are always there, by frame, where these are not just its special ones."""
_SENTINELS = {
    "t5": tuple(f"<extra_id_{number}>" for number in reversed(range(100))),
    "flair": tuple(FRAMES["flair"].specials[role] for role in ("start", "end")),
}
"""Pieces that come last, by frame: those that stand for spans, the first one at the end, and Flair's markers."""


def _specials(frame: Frame) -> list[str]:
    """The special pieces, in the order in which the models that have them number them."""
    order = _ORDERS["bert"]
    if frame.specials.get("pad") == "<pad>":
        order = _ORDERS["roberta" if "start" in frame.specials else "t5"]
    return list(dict.fromkeys(frame.specials[role] for role in order if role in frame.specials))


def _alphabet(texts: Sequence[str], backend: Tokenizer, most: int) -> list[str]:
    """The most frequent characters, after normalizing; of equally frequent ones those with smaller numbers."""
    counts = np.zeros(0x110000, np.int64)
    for text in texts:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        if len(codes) > len(counts):
            counts += np.bincount(codes, minlength=len(counts))
        else:
            unique, n = np.unique(codes, return_counts=True)
            counts[unique] += n
    normalized: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        for character in backend.normalizer.normalize_str(chr(code)):
            if not character.isspace():
                normalized[character] = normalized.get(character, 0) + int(counts[code])
    return sorted(normalized, key=lambda character: (-normalized[character], character))[:most]


# --- the sample that a tokenizer is trained on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Texts, and how much of the whole they are."""

    texts: list[str]
    n_bytes: int
    n_all: int

    @property
    def in_words(self) -> str:
        """In words."""
        if self.n_bytes == self.n_all:
            return f"all of the text, {_megabytes(self.n_bytes)}"
        return f"a sample of {_megabytes(self.n_bytes)} from all over the text, which has {_megabytes(self.n_all)}"


def sample_of(sources: Sequence[TextSource | PairSource], most: int, limit: int | None = None) -> Sample:
    """About `most` bytes of text at most.

    Of every stretch of the input the same share is taken, counted by the position in the files: a part is taken
    where less has been taken than is due by then. So there is no need to know beforehand how much text there is. With
    its last stretch all of a source is due, whatever position its reader reports.
    """
    total = sum(source.total for source in sources) or 1
    taken = _Taken()
    n_all = before = 0
    for source in sources:
        n_source = 0
        left: list[bytes] = []
        for stretch in source.stretches():
            n_stretch = sum(map(len, stretch.texts))
            n_all += n_stretch
            n_source += n_stretch
            left = taken.take(stretch.texts, most * min((before + stretch.done) / total, 1.0))
            if limit is not None and n_source >= limit:
                break
        before += source.total
        taken.take(left, most * min(before / total, 1.0))
    if not taken.texts:
        raise InputError("There is no text to train a tokenizer on: all documents are empty. Give files with text.")
    return Sample(taken.texts, taken.n_bytes, n_all)


@dataclass
class _Taken:
    """What has been taken so far."""

    texts: list[str] = field(default_factory=list)
    n_bytes: int = 0

    def take(self, texts: list[bytes], due: float) -> list[bytes]:
        """Take of texts until as much has been taken as is due; those that are left."""
        for number, text in enumerate(texts):
            if self.n_bytes >= due:
                return texts[number:]
            part = text[: max(int(due - self.n_bytes), _PART)]
            self.texts.append(part.decode(errors="ignore"))
            self.n_bytes += len(part)
        return []


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 100_000 else f"{n_bytes:,} bytes"

"""Tokenizers learned from text, by the trainers of the `tokenizers` library.

| kind | splits text | usual frame |
|---|---|---|
| wordpiece | as BERT does: words and marks, then pieces with `##` inside a word | bert |
| bpe | likewise, then pairs of letters that are joined, `</w>` at the end of a word (GPT) | gpt |
| byte-bpe | as GPT-2 does: words with the blank before them, over bytes, so that nothing is unknown | roberta |
| unigram | words with the blank before them, the likeliest pieces (SentencePiece) | albert |
| words | words and marks, whole (`corpus.words`) | lm |
| blanks | what stands between blanks, whole: for text that was split before | lm |
| characters | single characters | lm |

Training gives the same vocabulary each time for all kinds but one. The library goes through words in an order that is
another one in every process, so the pieces whose numbers would depend on it, those of single characters, are numbered
here beforehand, by how frequent they are and then by their code points. In a unigram model the order also decides how
sums of fractions are rounded: two of the same text may differ in a few pieces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyseme.corpus import word_vocabulary
from polyseme.errors import OptionError, PolysemeError, nearest
from polyseme.text.cut_points import EXTRA_BLANKS
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
_CONTROL_BLANKS = r"[\x{9}\x{a}\x{b}\x{c}\x{d}]"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How one kind of tokenizer is set up and trained."""

    frame: str
    """The usual one; another can be asked for."""
    lowercase: Callable[[str], bool]
    """Whether text is lower-cased where nothing is said, by frame."""
    build: Callable[[Frame, bool], Tokenizer]
    trainer: Callable[[Frame, int, list[str], Sequence[str]], Any]
    n_least: int
    """Pieces that are there besides specials, whatever the text."""
    has_alphabet: bool = True
    has_unknown: bool = True
    masks_take_blanks: bool = True
    reads_all: bool = False
    """Whether it is trained on all of the text, of which it keeps only counts, and not on a sample."""


def train_tokenizer(
    kind: str, texts: Iterable[str], *, vocab_size: int, frame: str | None = None, lowercase: bool | None = None
) -> PieceTokenizer:
    """A tokenizer of a kind (`KINDS`) with at most `vocab_size` pieces, learned from `texts`."""
    chosen = kind_named(kind)
    name = frame_for(kind, frame)
    its_frame = FRAMES[name]
    specials, sentinels = _specials(its_frame), _SENTINELS.get(name, ())
    least = chosen.n_least + len(specials) + 1 + len(sentinels)
    if vocab_size < least:
        raise OptionError(
            f"A vocabulary of {kind} with the frame {name!r} has at least {least} pieces. Got {vocab_size} instead."
        )
    vocab_size -= len(sentinels)
    lowers = chosen.lowercase(name) if lowercase is None else lowercase
    backend = chosen.build(its_frame, lowers)
    kept = texts if chosen.reads_all else list(texts)
    alphabet = _alphabet(list(kept), backend, min(_ALPHABET, vocab_size // _SHARE)) if chosen.has_alphabet else []
    try:
        backend.train_from_iterator(kept, chosen.trainer(its_frame, vocab_size, specials, alphabet))
    except (PolysemeError, OSError):
        raise  # from where the texts come from
    except Exception as error:  # noqa: BLE001 - the library has no class of its own for this
        raise OptionError(
            f"A vocabulary of {kind} with {vocab_size:,} pieces besides {len(sentinels)} sentinels cannot be learned "
            f"from this text ({error}). Ask for more pieces (--vocab-size), or choose the kind 'byte-bpe'."
        ) from None
    if chosen.has_alphabet:
        backend = _without_added(backend)
    if chosen.reads_all:
        backend = word_vocabulary.numbered_anew(backend, specials)
    mark_specials(backend, its_frame.specials, masks_take_blanks=chosen.masks_take_blanks)
    backend.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in sentinels])
    return PieceTokenizer(backend, its_frame)


def kind_named(name: str) -> Kind:
    """A kind of tokenizer by its name."""
    if name not in KINDS:
        raise OptionError(f"There is no kind of tokenizer {name!r}. {nearest(name, KINDS)}")
    return KINDS[name]


def frame_for(kind: str, frame: str | None) -> str:
    """The frame that a kind of tokenizer is given, by name."""
    chosen = kind_named(kind)
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


def _wordpiece(frame: Frame, lowercase: bool) -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token=frame.specials["unknown"]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def _bpe(frame: Frame, lowercase: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token=frame.specials["unknown"], end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return backend


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
    if lowercase:  # ALBERT's way
        folding = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    blanks = [normalizers.Replace(Regex(_CONTROL_BLANKS), " "), normalizers.Replace(Regex(EXTRA_BLANKS), " ")]
    backend.normalizer = normalizers.Sequence([blanks[0], *folding, blanks[1]])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def _wordpiece_trainer(frame: Frame, vocab_size: int, specials: list[str], alphabet: Sequence[str]) -> Any:
    return trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=[*specials, *(f"##{character}" for character in alphabet)],
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )


def _bpe_trainer(frame: Frame, vocab_size: int, specials: list[str], alphabet: Sequence[str]) -> Any:
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=[*specials, *(f"{character}</w>" for character in alphabet)],
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        end_of_word_suffix="</w>",
        show_progress=False,
    )


def _byte_bpe_trainer(frame: Frame, vocab_size: int, specials: list[str], alphabet: Sequence[str]) -> Any:
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )


def _unigram_trainer(frame: Frame, vocab_size: int, specials: list[str], alphabet: Sequence[str]) -> Any:
    return trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        unk_token=frame.specials["unknown"],
        seed_size=_SEEDS * vocab_size,  # type: ignore[call-arg]
        show_progress=False,
    )


KINDS: Mapping[str, Kind] = {
    "wordpiece": Kind(
        frame="bert",
        lowercase=lambda frame: True,
        build=_wordpiece,
        trainer=_wordpiece_trainer,
        n_least=1,
        masks_take_blanks=False,
    ),
    "bpe": Kind(frame="gpt", lowercase=lambda frame: True, build=_bpe, trainer=_bpe_trainer, n_least=1),
    "byte-bpe": Kind(
        frame="roberta",
        lowercase=lambda frame: False,
        build=_byte_bpe,
        trainer=_byte_bpe_trainer,
        n_least=256,
        has_alphabet=False,
        has_unknown=False,
    ),
    "unigram": Kind(
        frame="albert",
        lowercase=lambda frame: frame == "albert",
        build=_unigram,
        trainer=_unigram_trainer,
        n_least=1,
        has_alphabet=False,
    ),
    **{
        name: Kind(
            frame="lm",
            lowercase=lambda frame: False,
            build=build,
            trainer=word_vocabulary.by_frequency,
            n_least=1,
            has_alphabet=False,
            reads_all=True,
        )
        for name, build in (
            ("words", word_vocabulary.words),
            ("blanks", word_vocabulary.blanks),
            ("characters", word_vocabulary.characters),
        )
    },
}
"""The kinds of tokenizer that can be learned from text."""


# --- inside ----------------------------------------------------------------------------------------------------------

_ORDERS = {
    "bert": ("pad", "unknown", "start", "end", "mask"),
    "roberta": ("start", "pad", "end", "unknown", "mask"),
    "t5": ("pad", "end", "unknown", "start", "mask"),
}
_SENTINELS = {"t5": tuple(f"<extra_id_{number}>" for number in reversed(range(100)))}
"""Pieces that stand for spans, by frame; as in the models that have them they come last, the first one at the end."""


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
        counts += np.bincount(codes, minlength=len(counts)) if len(codes) > len(counts) else 0
        if len(codes) <= len(counts):
            found, n = np.unique(codes, return_counts=True)
            counts[found] += n
    normalized: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        for character in backend.normalizer.normalize_str(chr(code)):
            if not character.isspace():
                normalized[character] = normalized.get(character, 0) + int(counts[code])
    return sorted(normalized, key=lambda character: (-normalized[character], character))[:most]


def _without_added(backend: Tokenizer) -> Tokenizer:
    """The same tokenizer, with its pieces in the vocabulary only, and none of them known as special."""
    settings = json.loads(backend.to_str())
    settings["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(settings))

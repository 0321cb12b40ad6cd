"""Small whole models of every registered family: a tokenizer of its kind, random weights, all outputs.

Weights are redrawn with a wide spread (`spread`), norms around one, so that a piece taken from the wrong
window, or a wrong neighbor, shows in the vectors of every layer. Vocabularies are made by rule, since those that the
library trains differ a little from one process to the next.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import nn

from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.text.character_dictionary import dictionary_tokenizer
from polyseme.text.character_ngrams import CharacterNgrams
from polyseme.text.character_tokenizer import CharacterTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.text.word_tokenizer import WordTokenizer
from spread import SPREAD

TEXT = """
The vase broke. Dawn broke. The news broke. Sandy broke the world record. Sandy broke the law. The burglar broke into
the house. The newscaster broke into the movie broadcast. We broke even. A crane caught a fish. A crane picked up the
steel beam. I saw a crane. The tire is flat, the beer is flat, the note is flat and so is the surface. They throw a
party; they throw a ball! Did they dance at balls, or hit the balls? "Are there typos? I didn't see any." Are there
bookstores downtown? It cost $3.50 (or 4,200 of them) in 1998: unbelievable, misunderstandings, well-known, naïve, Zoë.
"""

BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
XLNET = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]


def vocabulary(text: str) -> tuple[list[str], list[str]]:
    """The characters of a text, and the words that occur in it more than once; other words take several pieces."""
    counts = Counter(re.findall(r"\w+", text))
    return sorted(set(text) - {" ", "\n"}), sorted(word for word, count in counts.items() if count > 1 < len(word))


def wordpiece(*, lowercase: bool = True) -> Tokenizer:
    """BERT's kind."""
    characters, words = vocabulary(TEXT.lower() if lowercase else TEXT)
    pieces = [*BRACKETS, *characters, *words, *(f"##{character}" for character in characters)]
    tokenizer = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_bpe(specials: list[str] = ANGLES) -> Tokenizer:
    """RoBERTa's and GPT-2's kind; merges build up the common words letter by letter."""
    _, words = vocabulary(TEXT)
    spelled = [f"{blank}{word}" for word in words for blank in ("", "Ġ")]
    merges = dict.fromkeys((word[:end], word[end]) for word in spelled for end in range(1, len(word)))
    pieces = dict.fromkeys([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)])
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def letter_bpe() -> Tokenizer:
    """GPT's kind: a word's last letter carries its end."""
    characters, words = vocabulary(TEXT.lower())
    spelled = [[*word[:-1], f"{word[-1]}</w>"] for word in words]
    merges = dict.fromkeys(("".join(word[:end]), word[end]) for word in spelled for end in range(1, len(word)))
    ends = [f"{character}</w>" for character in characters]
    pieces = dict.fromkeys(["<unk>", *characters, *ends, *map("".join, merges)])
    model = models.BPE(
        {piece: id for id, piece in enumerate(pieces)}, list(merges), unk_token="<unk>", end_of_word_suffix="</w>"
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def unigram(specials: list[str], unknown: str) -> Tokenizer:
    """SentencePiece's kind: XLM-R's and ALBERT's."""
    characters, words = vocabulary(TEXT)
    scores = {**dict.fromkeys(specials, 0.0), **dict.fromkeys(["▁", *characters], -9.0)}
    scores |= {f"{blank}{word}": -4.0 - len(blank) / 2 for word in words for blank in ("", "▁")}
    tokenizer = Tokenizer(models.Unigram(list(scores.items()), unk_id=specials.index(unknown)))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("\u200b", ""), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(specials)
    return tokenizer


def with_sentinels(tokenizer: Tokenizer, n: int = 12) -> Tokenizer:
    """T5's: pieces that stand for spans, the first one last."""
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in reversed(range(n))])
    return tokenizer


def word_level() -> Tokenizer:
    """Whole words and marks, and one unknown piece for all others: a word-level language model's kind."""
    words = dict.fromkeys(["<unk>", "</s>", *re.findall(r"\w+|[^\w\s]", TEXT)])
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def characters() -> Tokenizer:
    """Flair's kind: single characters, the end of a line and the blank among them."""
    return dictionary_tokenizer(["<unk>", "\n", " ", *vocabulary(TEXT)[0]], "the tests").backend


def table_of_words() -> WordTokenizer:
    """Static vectors' kind, with character n-grams, as in fastText."""
    words = dict.fromkeys(re.findall(r"\w+|[^\w\s]", TEXT))
    return WordTokenizer(list(words)[:38], lowercase=True, ngrams=CharacterNgrams(3, 4, 60))


BACKENDS: dict[str, Callable[[], Tokenizer] | None] = {
    "bert": wordpiece,
    "roberta": byte_bpe,
    "xlm-roberta": lambda: unigram(ANGLES, "<unk>"),
    "electra": wordpiece,
    "albert": lambda: unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>"),
    "distilbert": wordpiece,
    "modernbert": lambda: byte_bpe(BRACKETS),
    "openai-gpt": letter_bpe,
    "gpt2": lambda: byte_bpe(["<|endoftext|>"]),
    "causal-transformer": lambda: byte_bpe(["<|endoftext|>"]),
    "transfo-xl": word_level,
    "xlnet": lambda: unigram(XLNET, "<unk>"),
    "bart": byte_bpe,
    "t5": lambda: with_sentinels(unigram(["<pad>", "</s>", "<unk>"], "<unk>")),
    "transformer": lambda: byte_bpe(ANGLES[:4]),
    "lstm": word_level,
    "awd-lstm": word_level,
    "nnlm": word_level,
    "seq2seq": lambda: byte_bpe(ANGLES[:4]),
    "flair": characters,
    "elmo": None,
    "static": None,
}
"""The kind of tokenizer that goes with each family; a family that is registered needs a line here. Those of ELMo and of
static vectors are of no library's making, and have no file of its kind."""


@cache
def _tokenizer_json(family: str) -> str:
    backend = BACKENDS[family]
    assert backend is not None
    return str(backend().to_str())


def write_tokenizer(family: str, folder: Path) -> None:
    """A family's tokenizer as its file, as others would have put it there."""
    (folder / "tokenizer.json").write_text(_tokenizer_json(family), encoding="utf-8")


def tiny_tokenizer(family: str) -> Any:
    """A small tokenizer of the family's kind."""
    if BACKENDS[family] is None:
        return {"elmo": CharacterTokenizer, "static": table_of_words}[family]()
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(family, Path(folder))
        return load_tokenizer(folder, frame=FAMILIES[family].frame)


ONE_WIDTH = {"awd-lstm": {"width": 16}}
"""What gives the layers of a family's small config one width, so that all of them can be asked for together."""


def tiny_config(family: str, **changes: Any) -> Any:
    """The family's small config, with as many pieces as its small tokenizer has, and layers of one width."""
    own = {"n_pieces": tiny_tokenizer(family).n_pieces, **ONE_WIDTH.get(family, {})}
    return FAMILIES[family].tiny().replace(**{**own, **changes})


def tiny_model(family: str = "bert", **changes: Any) -> Model:
    """A whole small model with every output its family has; `changes` are of the config."""
    chosen = FAMILIES[family]
    torch.manual_seed(11)
    bundle = new_bundle(chosen, tiny_config(family, **changes), chosen.outputs, tiny_tokenizer(family))
    for name, parameter in bundle.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=SPREAD)
    return Model(bundle.eval())

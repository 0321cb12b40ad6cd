"""Texts that SentencePiece treats in ways of its own: marks in odd orders, blanks, ties, pieces written out."""

from __future__ import annotations

import random
import unicodedata

FIXED = (
    "", " ", "  ", "   a", "a   ", "a  b", "\x09", "\x0a", "a\x09b\x0ac\x0d\x0ad", "\xa0a\xa0b\xa0", "\u3000日本\u3000",
    "\u2003a\u2009b\u200a", "e\u0301", "e\u0323\u0301", "e\u0301\u0323", "a\u0327\u0301\u0323", "\u0301",
    "\u0301\u0327", " \u0301", "a \u0301b", "o\u0308\u0304", "o\u0304\u0308", "ḉ", "c\u0327\u0301", "c\u0301\u0327",
    "q\u0307\u0323", "\u0344", "\u0340a\u0341", "\ufb01n \ufb02 \ufb00 \ufb03", "½ ¼ ①②③ ㋿ ㍿ ℃ ™ № ℡",
    "\uff21\uff42\uff43\uff11\uff12\uff13\uff01", "\uff76\uff9e\uff77\uff9e \uff8a\uff9f", "가", "각", "각",
    "न\u093f न\u093c क़", "ไทย กำ", "ລາວ \u0ecdາ", "日本語テキスト", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd", "❤\ufe0f",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\xad", "so\xadft", "\u200b", "a\u200bb", "a\u200cb\u200dc",
    "\ufeffa", "\u200f\u202eabc\u202c", "\x01\x02a\x1f", "\x7f\x85\u2028\u2029b", "\x00", "a\x00b", "\ufffd",
    "\ufffe\uffff", "\U0010ffff", "\ue000", "▁", "▁▁", "a▁b", "▁a", "a▁", " ▁ ", "a ▁ b", "▁ ▁", "the▁the", "<unk>",
    "<s>a</s>", "<pad>", "[MASK]", "<0x41>", "<0xE2><0x96><0x81>", "<new>", "a<new>b", " <new> ", "New York",
    "NewYork", "new york", "Newer", "abc", "abcabcbc", "bcab", "①", "a①e", " x", "a x", "x x x", "  x", "▁the",
    "bathe", "aaaaaaaa", "-----------", "..............", "hahahahaha", "=====   =====", "!!!!!!???", "ababababab",
    "eeeeeee", "nananananana", "0000000000", "______", "lalalalalala!", "the the the the", "ssssssstttttt",
    "nnnnnnnnnnnnnn", "ininininin", "ererererer", "İstanbul ı ß ſ ŉ ǆ \ufb05", "ΑΣ ΌΔΟΣ \u0345 \u037a", "ẛ\u0323",
    "\ufdfa \ufdfb", "a\ufc5eb", "\ufe70a", "x\ufe7e y", "`` '' \" “q” ‘q’", "… — – ‐ ‑ ⁃", "\uff5e 〜 \uffe3 \uffe5",
    "²³¹ ⁴₅", "Å Å", "Ω Ω", "ǅ ǈ", "q\u0300\u0301\u0302\u0303\u0304\u0305", "\u0f71\u0f72\u0f74", "\u0f73",
    "א\u05b7\u05bc א\u05bc\u05b7", "ا\u0653 آ \u0654\u0651", "\u0600\u06dd", "ΩK", "⼀⺟", "ㄱㅣ", "\uffa1\uffc2",
    "The New York Times said so.", " naïve Übung — 3,000 <new>\x09x", "don't U.S. 3.14 x_y",
    "Mixed ΕΛΛΗΝΙΚΑ и Русский текст",
    "a" * 60, "ab " * 30, "-" * 70 + " x", "word " * 20 + "-------" + " word" * 20 + " hahahaha",
)  # fmt: skip
_ATOMS = (
    "e", "a", "the", "The", " ", "  ", "\u0301", "\u0323", "\u0327", "\u0308", "ﬁ", "½", "\xa0", "\u3000", "\u200b",
    "\xad", "\t", "\n", "▁", "<new>", "New", "ab", "bc", "x", " x", "日", "本", "ｶ", "\uff9e", "नि", "👩", "\u200d",
    "É", "ß", "İ", "～", "\u037a", "ﷺ", "ing", "er", "s", "-", "--", "\x01", "\u0344", "\u1100\u1161", "각", "\u0e33",
    "\ufeff", "<unk>", "<s>", "①", "１", "Ａ", "\u0f73", "\u05b7", "\u05bc", "York",
)  # fmt: skip
_RANGES = ((1, 0x250), (0x300, 0x370), (0x2000, 0x2100), (0xF900, 0xFFFF), (1, 0x20000))

USER_DEFINED = ["<new>", "New", "ab", "bc", "e", "New York", " x", "①", "▁the"]


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of these parts, and every fifth of any characters."""
    rng = random.Random(seed)
    return [_any_text(rng) if place % 5 == 4 else _text_of_atoms(rng) for place in range(count)]


def _text_of_atoms(rng: random.Random) -> str:
    return "".join(rng.choice(_ATOMS) for _ in range(rng.randint(1, 14)))


def _any_text(rng: random.Random) -> str:
    chars = [chr(rng.randrange(*rng.choice(_RANGES))) for _ in range(rng.randint(1, 12))]
    return "".join(char for char in chars if unicodedata.category(char) != "Cs")

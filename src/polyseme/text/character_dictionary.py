"""Tokenizers of single characters with a dictionary that is given, as Flair's language models have one.

What the dictionary lacks is the unknown piece. The two markers of a row's ends come after all characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from polyseme.errors import ModelError
from polyseme.text.cut_points import CHARACTER
from polyseme.text.framing import FRAMES
from polyseme.text.specials import mark_specials
from polyseme.text.tokenizer import PieceTokenizer

LINE_END, BLANK = "\n", " "
EDGES = (LINE_END, BLANK)
"""What a text begins with, as Flair reads it, and what it ends with."""


def dictionary_tokenizer(characters: Sequence[str], where: str) -> PieceTokenizer:
    """A tokenizer with these characters in this order, the unknown piece among them."""
    frame = FRAMES["flair"]
    unknown = frame.specials["unknown"]
    missing = [repr(each) for each in (unknown, *EDGES) if each not in characters]
    if missing:
        raise ModelError(f"The dictionary in {where} has no {' and no '.join(missing)}, which Flair's texts need.")
    if len(set(characters)) < len(characters):
        twice = next(each for number, each in enumerate(characters) if each in characters[:number])
        raise ModelError(f"The dictionary in {where} has {twice!r} more than once.")
    backend = Tokenizer(models.WordLevel({each: id for id, each in enumerate(characters)}, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(CHARACTER), "isolated")
    backend.decoder = decoders.Fuse()
    mark_specials(backend, frame.specials, masks_take_blanks=False)
    return PieceTokenizer(backend, frame)


def edges_of(tokenizer: PieceTokenizer) -> tuple[int, int]:
    """The pieces that a text begins and ends with."""
    first, last = (tokenizer.backend.token_to_id(each) for each in EDGES)
    if first is None or last is None:
        raise ModelError("The tokenizer has no piece for the end of a line or for a blank, which Flair's texts need.")
    return int(first), int(last)

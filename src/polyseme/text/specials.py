"""The special piece of each role, from a folder's settings, the tokenizer or the usual names; text that spells one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from polyseme.text.cut_points import steps
from polyseme.text.framing import FRAMES, ROLES, Frame

THEIR_NAMES: Mapping[str, tuple[str, ...]] = {
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
"""Our roles, and their names in the settings of other libraries; the first that is set counts."""


def find_specials(backend: Tokenizer, frame: Frame, settings: Mapping[str, Any]) -> dict[str, str]:
    """The piece of every role that the tokenizer has one for.

    Names in the folder's settings come first, then those of the frame, then those of other frames.
    """
    specials: dict[str, str] = {}
    for role in ROLES:
        named = [_content(settings[name]) for name in THEIR_NAMES[role] if settings.get(name)]
        usual = [frame.specials[role]] if role in frame.specials else []
        others = [other.specials[role] for other in FRAMES.values() if role in other.specials]
        for piece in [*named, *usual, *others]:
            if piece is not None and backend.token_to_id(piece) is not None:
                specials[role] = piece
                break
    if "unknown" in specials and specials["unknown"] in (specials.get("start"), specials.get("end")):
        del specials["unknown"]  # GPT-2 has no unknown piece; its files name <|endoftext|>
    return specials


def mark_specials(backend: Tokenizer, specials: Mapping[str, str], *, masks_take_blanks: bool) -> None:
    """Register the special pieces with the library, so that others who load the files do not split them."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    new = {
        piece: AddedToken(piece, special=True, normalized=False, lstrip=masks_take_blanks and role == "mask")
        for role, piece in specials.items()
        if piece not in known
    }
    if new:
        backend.add_special_tokens(list(new.values()))


def frame_in(backend: Tokenizer, settings: Mapping[str, Any]) -> Frame | None:
    """The frame that the post-processor of a tokenizer.json describes, if any."""
    for step in steps(backend.post_processor):
        if step["type"] == "BertProcessing":
            return _with_ends(FRAMES["bert"], step)
        if step["type"] == "RobertaProcessing":
            return _with_ends(FRAMES["roberta"], step)
        if step["type"] == "TemplateProcessing":
            return _frame_of_template(step, settings)
    return None


def _with_ends(frame: Frame, step: Mapping[str, Any]) -> Frame:
    changed: Frame = frame.replace(specials={**frame.specials, "start": step["cls"][0], "end": step["sep"][0]})
    return changed


def _frame_of_template(step: Mapping[str, Any], settings: Mapping[str, Any]) -> Frame:
    """Roles follow the names in the settings and frames; an unknown piece is an end after `a`, otherwise a start."""
    roles: dict[str, str] = {}
    for frame in FRAMES.values():
        roles.update({piece: role for role, piece in frame.specials.items() if role in ("start", "end")})
    for role in ("start", "end"):
        roles.update({_content(settings[name]) or "": role for name in THEIR_NAMES[role] if settings.get(name)})
    specials: dict[str, str] = {}
    templates = []
    for part in ("single", "pair"):
        slots, after_a = [], False
        for slot in step[part]:
            [(kind, value)] = slot.items()
            name = str(value["id"])
            if kind == "Sequence":
                role, after_a = name.lower(), True
            else:
                role = roles.get(name, "end" if after_a else "start")
                specials.setdefault(role, name)
            slots.append(f"{role}:{value['type_id']}" if value["type_id"] else role)
        templates.append(" ".join(slots))
    return Frame(single=templates[0], pair=templates[1], specials=specials)


def _content(token: Any) -> str | None:
    """The piece in a setting, which is a string or a record of one."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def literal_twin(backend: Tokenizer, special_ids: Iterable[int]) -> Tokenizer:
    """A tokenizer with the same pieces, but never a special one, and the unknown piece only for unknown text."""
    settings = json.loads(backend.to_str())
    model = settings["model"]
    if model["type"] == "Unigram":
        settings["added_tokens"] = []
        for id in {*special_ids, model["unk_id"]}:
            if id is not None and id < len(model["vocab"]):
                model["vocab"][id][0] = f"special {id}"  # no part of a text has blanks in it
    twin = Tokenizer.from_str(json.dumps(settings))
    twin.encode_special_tokens = True
    return twin


def is_unigram(backend: Tokenizer) -> bool:
    """Whether the tokenizer's model may match special pieces in text."""
    return type(backend.model).__name__ == "Unigram"

"""Which piece has which role: found in a folder's settings, in the tokenizer, or by the names they usually have."""

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
"""Our roles, and what the settings of other libraries call them; the first that is set counts."""


def find_specials(backend: Tokenizer, frame: Frame, settings: Mapping[str, Any]) -> dict[str, str]:
    """Role to piece, for every role that the tokenizer has a piece for.

    What the folder's settings name comes first, then the names of the frame, then those of other frames.
    """
    found: dict[str, str] = {}
    for role in ROLES:
        named = [_content(settings[name]) for name in THEIR_NAMES[role] if settings.get(name)]
        usual = [frame.specials[role]] if role in frame.specials else []
        others = [other.specials[role] for other in FRAMES.values() if role in other.specials]
        for piece in [*named, *usual, *others]:
            if piece is not None and backend.token_to_id(piece) is not None:
                found[role] = piece
                break
    if "unknown" in found and found["unknown"] in (found.get("start"), found.get("end")):
        del found["unknown"]  # GPT-2's files name <|endoftext|> for want of an unknown piece
    return found


def mark_specials(backend: Tokenizer, specials: Mapping[str, str], *, masks_take_blanks: bool) -> None:
    """Let the library know the special pieces, so that others who load the files keep them whole."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    new = {
        piece: AddedToken(piece, special=True, normalized=False, lstrip=masks_take_blanks and role == "mask")
        for role, piece in specials.items()
        if piece not in known
    }
    if new:
        backend.add_special_tokens(list(new.values()))


def frame_in(backend: Tokenizer, settings: Mapping[str, Any]) -> Frame | None:
    """The frame that a tokenizer.json itself describes, in its post-processor, if it does."""
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
    """Roles go by the names in the settings and frames; a piece of no known role is an end after `a`, else a start."""
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


# MERGED: What to do where a user's text spells out a special piece.


def literal_twin(backend: Tokenizer, special_ids: Iterable[int]) -> Tokenizer:
    """A tokenizer that gives the same pieces, but never a special one; the unknown piece only for what is unknown."""
    settings = json.loads(backend.to_str())
    model = settings["model"]
    if model["type"] == "Unigram":
        settings["added_tokens"] = []
        for id in {*special_ids, model["unk_id"]}:
            if id is not None and id < len(model["vocab"]):
                model["vocab"][id][0] = f"special {id}"  # models are given text without blanks
    twin = Tokenizer.from_str(json.dumps(settings))
    twin.encode_special_tokens = True
    return twin


def is_unigram(backend: Tokenizer) -> bool:
    """Whether the tokenizer's model is one that may come upon special pieces in text."""
    return type(backend.model).__name__ == "Unigram"

"""The special piece of each role, from a folder's settings, the tokenizer or the usual names; text that spells one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from polyseme.errors import ModelError
from polyseme.text.cut_points import steps
from polyseme.text.framing import FRAMES, ROLES, Frame

THEIR_NAMES: Mapping[str, tuple[str, ...]] = {
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
"""Our roles, and their names in the settings of other libraries.

The first that is set counts, or the last where no start is put before texts, as for causal models: `</s>` or
`<|endoftext|>` ends those, whatever separates the sentences of others.
"""


def find_specials(backend: Tokenizer, frame: Frame, settings: Mapping[str, Any]) -> dict[str, str]:
    """The piece of every role that the tokenizer has one for.

    Names in the folder's settings come first, then those of the frame, then those of other frames.
    """
    specials: dict[str, str] = {}
    for role in ROLES:
        names = THEIR_NAMES[role] if "start" in frame.needed else reversed(THEIR_NAMES[role])
        named = [_content(settings[name]) for name in names if settings.get(name)]
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
    """The frame that the post-processor of a tokenizer.json describes, if any; one that is no frame is refused."""
    described: list[Frame] = []
    for step in steps(backend.post_processor):
        if step["type"] == "BertProcessing":
            described.append(_with_ends(FRAMES["bert"], step))
        elif step["type"] == "RobertaProcessing":
            described.append(_with_ends(FRAMES["roberta"], step))
        elif step["type"] == "TemplateProcessing":
            described.append(_frame_of_template(step, settings))
        elif step["type"] != "ByteLevel":  # which changes offsets alone
            raise ModelError(
                f"The post-processor of tokenizer.json has a step of type {step['type']!r}, which is not supported."
            )
    if len(described) > 1:
        raise ModelError("The post-processor of tokenizer.json adds special pieces twice, which is not supported.")
    return described[0] if described else None


def frame_of_folder(usual: Frame, described: Frame | None) -> Frame:
    """The usual frame of a family, unless the file describes another; segments where families have them."""
    if described is None:
        return usual
    if usual.n_segments == 1:
        return described.without_segments()
    if described.n_segments > usual.n_segments:
        raise ModelError(
            f"The template in tokenizer.json has {described.n_segments} kinds of segments, and models of this family "
            f"have {usual.n_segments}."
        )
    return described


def _with_ends(frame: Frame, step: Mapping[str, Any]) -> Frame:
    return frame.replace(specials={**frame.specials, "start": step["cls"][0], "end": step["sep"][0]})


def _frame_of_template(step: Mapping[str, Any], settings: Mapping[str, Any]) -> Frame:
    """Roles follow the names in the settings and frames; other pieces, and those that are both, are a start before `a`,
    and an end after it.
    """
    roles: dict[str, str] = {}
    for frame in FRAMES.values():
        roles.update({piece: role for role, piece in frame.specials.items() if role in ("start", "end")})
    for role in ("start", "end"):
        roles.update({_content(settings[name]) or "": role for name in THEIR_NAMES[role] if settings.get(name)})
    named = {role: {_content(settings.get(name)) for name in THEIR_NAMES[role]} for role in ("start", "end")}
    both = {FRAMES["gpt2"].specials["start"], *(named["start"] & named["end"])}
    roles = {piece: role for piece, role in roles.items() if piece not in both}
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
                pieces = step["special_tokens"].get(name, {}).get("tokens", [name])
                if len(pieces) != 1 or specials.setdefault(role, pieces[0]) != pieces[0]:
                    several = ", ".join(map(repr, sorted({specials.get(role, name), *pieces})))
                    raise ModelError(
                        f"The template in tokenizer.json puts several pieces in the place of the {role}: {several}. "
                        "Templates with one piece for starts and one for ends are supported."
                    )
            slots.append(f"{role}:{value['type_id']}" if value["type_id"] else role)
        templates.append(" ".join(slots))
    try:
        return Frame(single=templates[0], pair=templates[1], specials=specials)
    except ModelError as error:
        raise ModelError(f"The post-processor of tokenizer.json is not supported. {error}") from None


def _content(token: Any) -> str | None:
    """The piece in a setting, which is a string or a record of one."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def refuse_other_pieces(settings: Mapping[str, Any], path: Path) -> None:
    """Refuse settings that name something else than a piece for a role."""
    for name in (name for names in THEIR_NAMES.values() for name in names):
        if settings.get(name) and _content(settings[name]) is None:
            raise ModelError(
                f"{path} must name a piece as {name!r}: a text, or an object whose 'content' is one. Got "
                f"{str(settings[name])[:100]!r} instead. Correct it, or get the file again."
            )


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

"""A tokenizer from the files in a model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyseme.errors import ModelError
from polyseme.text.framing import Frame, frame_named
from polyseme.text.layouts import LAYOUTS, Layout, Wishes, read_json
from polyseme.text.specials import find_specials, mark_specials
from polyseme.text.tokenizer import PieceTokenizer


def load_tokenizer(
    folder: str | Path, *, frame: Frame | str | None = None, lowercase: bool | None = None
) -> PieceTokenizer:
    """The tokenizer that a folder holds, in whichever of the known layouts its files are.

    `frame` is how rows are framed, by name (`framing.FRAMES`) or as a whole; None takes what the files say, or what
    usually goes with them. `lowercase` None likewise; a bare vocab.txt lower-cases if none of its pieces has a capital.
    """
    place = Path(folder)
    layout = _layout(place)
    wanted = frame_named(frame) if isinstance(frame, str) else frame
    wishes = Wishes(settings=_settings(place), lowercase=lowercase, frame=frame if isinstance(frame, str) else None)
    backend = layout.read([place / name for name in layout.files], wishes)
    chosen = wanted if wanted is not None else layout.usual_frame(backend, wishes)
    specials = dict(chosen.specials) if isinstance(frame, Frame) else find_specials(backend, chosen, wishes.settings)
    mark_specials(backend, specials, masks_take_blanks=layout.masks_take_blanks)
    return PieceTokenizer(backend, chosen.replace(specials=specials))


def _layout(folder: Path) -> Layout:
    for layout in LAYOUTS:
        if all((folder / name).is_file() for name in layout.files):
            return layout
    known = "; ".join(" with ".join(layout.files) for layout in LAYOUTS)
    raise ModelError(f"{folder} has no tokenizer. Looked for: {known}. Put the files of one of these beside the model.")


def _settings(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            content = read_json(path)
            if not isinstance(content, dict):
                raise ModelError(f"{path} must hold one JSON object. Got a {type(content).__name__}.")
            settings.update(content)
    return settings

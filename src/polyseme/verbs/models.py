"""`models`: the packaged models, and which verb uses which."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme.packaged_models import PACKAGED


@dataclass(frozen=True, kw_only=True)
class PackagedModelCard:
    """A packaged model at a glance."""

    name: str
    description: str
    default_of: tuple[str, ...]
    """The verbs that use it where no model is named."""
    path: str | None
    """Its folder; None where its package is not installed."""
    install: str
    """In words, the command that installs it."""


def list_models() -> list[PackagedModelCard]:
    """Every packaged model: its name for `-m` and `load`, the verbs that use it by default, and its folder."""
    return [
        PackagedModelCard(
            name=model.name,
            description=model.description,
            default_of=model.defaults,
            path=None if (folder := model.find()) is None else str(folder),
            install=model.install,
        )
        for model in PACKAGED.values()
    ]

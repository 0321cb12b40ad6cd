"""The grid of a sweep: which settings vary, and the options of each point."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from polyseme.errors import OptionError, nearest

ROW = "row"
"""What rows with names are called among the settings of a point."""
LONGEST_NAME = 90
"""Characters of the name of a run's folder."""


class Place(NamedTuple):
    """Where a setting belongs: an option, or an entry of an option that is a mapping."""

    option: str
    key: str | None = None


@dataclass(frozen=True)
class Point:
    """A point of the grid."""

    settings: Mapping[str, Any]
    """What tables show of it: the settings that vary, or the name of its row."""
    changes: Mapping[str, Any]
    """Every setting that it has, by name."""

    def options(self, base: Mapping[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
        """The options of its runs: those that all have, with its own."""
        options = dict(base)
        for name, value in self.changes.items():
            option, key = places[name]
            if key is not None:
                options[option] = {**(options.get(option) or {}), key: value}
            elif isinstance(value, Mapping):
                options[option] = {**(options.get(option) or {}), **value}
            else:
                options[option] = value
        return options

    def name(self, seed: int) -> str:
        """The name of the folder of a run.

        >>> Point({"mask_rate": 0.15}, {}).name(1)
        'mask_rate=0.15,seed=1'
        """
        full = ",".join(f"{name}={format_value(value)}" for name, value in [*self.settings.items(), ("seed", seed)])
        plain = re.sub(r"[^\w.=,+%-]+", "-", full).strip(".-")
        if plain == full and len(plain) <= LONGEST_NAME:
            return plain
        return f"{plain[:LONGEST_NAME]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"


def grid_points(over: Mapping[str, Sequence[Any]] | None, rows: Mapping[str, Mapping[str, Any]] | None) -> list[Point]:
    """Every combination of the values, with every row."""
    axes: list[list[Point]] = []
    if rows:
        axes.append([Point({ROW: name}, dict(_settings_of(name, settings))) for name, settings in rows.items()])
    for name, values in (over or {}).items():
        axes.append([Point({name: value}, {name: value}) for value in _values_of(name, values)])
    if not axes:
        raise OptionError(
            "There is nothing to vary. Name a setting with its values, --over mask_rate=0.15,0.4 (over={…}), or rows "
            "of settings with --row (rows={…})."
        )
    points = []
    for parts in itertools.product(*axes):
        names = [name for part in parts for name in part.changes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise OptionError(f"The setting {twice!r} is varied by --over and is in a row, too. Leave one out.")
        settings = {name: value for part in parts for name, value in part.settings.items()}
        points.append(Point(settings, {name: value for part in parts for name, value in part.changes.items()}))
    return points


def _values_of(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise OptionError(f"The values of {name!r} must be a list. Got {values!r} instead.")
    if not values:
        raise OptionError(f"The setting {name!r} has no values. Give one or more: {name}=VALUE,VALUE.")
    spellings = [format_value(value) for value in values]
    twice = next((each for each in spellings if spellings.count(each) > 1), None)
    if twice is not None:
        raise OptionError(f"The setting {name!r} has the value {twice} twice. Give each once.")
    return list(values)


def _settings_of(row: str, settings: Any) -> Mapping[str, Any]:
    if not isinstance(settings, Mapping) or not settings:
        raise OptionError(f"The row {row!r} has no settings. Give one or more: '{row}: SETTING=VALUE'.")
    return settings


def format_value(value: Any) -> str:
    """A value as tables and names of folders have it.

    >>> format_value(0.15), format_value("muon"), format_value(None), format_value([2, 3]), format_value(True)
    ('0.15', 'muon', 'none', '[2,3]', 'true')
    """
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), default=str)


def placed(
    names: Sequence[str], options: Sequence[str], mappings: Mapping[str, Sequence[str]], decided: Sequence[str]
) -> dict[str, Place]:
    """Where each setting belongs: among the options, or in the one mapping that has such an entry.

    Args:
        names: of settings; one of a mapping may name it (`objective.mask_rate`).
        options: those that may vary.
        mappings: options that are mappings, with the entries that they may have.
        decided: options that the sweep sets itself.
    """
    places: dict[str, Place] = {}
    for name in names:
        plain = name.replace("-", "_")
        mapping, dot, key = plain.partition(".")
        mapping = "shape" if mapping == "set" else mapping
        if dot and mapping in mappings:
            places[name] = Place(mapping, key)
            continue
        if plain in decided:
            raise OptionError(f"The option {plain!r} is set by the sweep itself, and cannot vary. Leave it out.")
        if plain in options:
            places[name] = Place(plain)
            continue
        having = [each for each, entries in mappings.items() if plain in entries]
        if len(having) > 1:
            spellings = " or ".join(f"{each}.{plain}" for each in having)
            raise OptionError(f"There are two settings {plain!r}. Say which is meant: {spellings}.")
        if not having:
            known = dict.fromkeys([*options, *(entry for entries in mappings.values() for entry in entries)])
            raise OptionError(f"There is no setting {plain!r} to vary. {nearest(plain, known)}")
        places[name] = Place(having[0], plain)
    return places

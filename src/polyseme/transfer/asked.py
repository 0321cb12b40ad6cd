"""The settings of a fine-tuning among what a user gives: `finetune` and `glue` take the same, under the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from polyseme.errors import OptionError
from polyseme.training.schedules import Schedule
from polyseme.transfer.settings import FinetuneSettings


def settings_of(given: Mapping[str, Any]) -> FinetuneSettings:
    """The settings among a verb's parameters; what is none of them is passed over.

    >>> settings_of({"task": "rte", "layer": -1, "seeds": 2, "schedule": "linear", "warm_up": 0.1}).seeds
    (0, 1)
    """
    found = {each.name: given[each.name] for each in fields(FinetuneSettings) if each.name in given}
    layer = found.get("layer")
    found["layer"] = None if layer is None else str(layer)
    found["seeds"] = seeds_of(given["seeds"])
    found["schedule"] = Schedule(kind=given["schedule"], warm_up=given["warm_up"])
    return FinetuneSettings(**found)


def seeds_of(given: int | Sequence[int]) -> tuple[int, ...]:
    """So many seeds from 0 on, or those that are named."""
    if isinstance(given, int):
        if given < 1:
            raise OptionError(f"There must be one seed at least. Got {given} instead.")
        return tuple(range(given))
    return tuple(given)

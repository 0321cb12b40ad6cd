"""Conversion tables: rules over a whole bundle, read in both directions.

Every key of a checkpoint matches exactly one rule and every parameter of ours is filled exactly once; otherwise the
error lists both sides. Names in rules hold `{p}` for the prefix a checkpoint's body may have ("bert.") and `{i}` for a
number that runs over the sets of weights of the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyseme.convert.tensor_transforms import SAME, Change, Stack
from polyseme.convert.weight_files import dtype_name, refuse_whole_numbers
from polyseme.errors import ModelError

OLD_NAMES = ((re.compile(r"^module\."), ""), (re.compile(r"\.gamma$"), ".weight"), (re.compile(r"\.beta$"), ".bias"))


@dataclass(frozen=True)
class Rule:
    """Their tensors ↔ ours."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    change: Change = SAME
    absent: tuple[int, ...] | None = None
    """The shape of the zeros that replace a tensor that not every checkpoint has; None: it is required."""


@dataclass(frozen=True)
class Alias:
    """A second name for a tensor of another rule: checked if present, never required.

    If only the second name is present, it replaces the first.
    """

    theirs: str
    same_as: str
    checked: bool = True
    """Whether the two must be equal; if not, the first is the one that counts."""


@dataclass(frozen=True)
class Table:
    """How one family's checkpoint is named.

    `body` is always there; which outputs are, the keys tell. An output without rules has no tensors of its own (GPT's,
    where it shares the table of pieces), and is always there too; so is one whose tensors may all be absent (BART's).
    """

    prefix: str
    n_sets: int
    body: Sequence[Rule]
    outputs: Mapping[str, Sequence[Rule]]
    aliases: Sequence[Alias] = ()
    derived: Sequence[str] = ()
    """Patterns of what follows from the config (a buffer of positions): neither read nor written."""
    foreign: Sequence[str] = ()
    """Patterns of task layers of another library, which polyseme leaves out, with a warning."""
    signs: Mapping[str, str] = field(default_factory=dict)
    """Output → the tensor that shows that it is there, where a task layer has some of its names, too."""

    def rules(self, outputs: Iterable[str], prefix: str) -> list[Rule]:
        """All rules for a bundle with these outputs, numbers and prefix filled in."""
        chosen = [*self.body, *(rule for name in outputs for rule in self.outputs[name])]
        return [filled for rule in chosen for filled in _fill_in(rule, prefix, self.n_sets)]


@dataclass
class CheckpointTensors:
    """What reading a checkpoint gives: our tensors, the outputs that were there, what was left out."""

    tensors: dict[str, Tensor]
    outputs: list[str]
    left_out: list[str] = field(default_factory=list)


def module(theirs: str | tuple[str, ...], ours: str, change: Change | None = None, *, bias: bool = True) -> list[Rule]:
    """Rules for a layer's weight and bias; several of theirs are stacked into ours."""
    names = (theirs,) if isinstance(theirs, str) else theirs
    if change is None:
        change = SAME if len(names) == 1 else Stack(len(names))
    kinds = ("weight", "bias") if bias else ("weight",)
    return [Rule(tuple(f"{name}.{kind}" for name in names), (f"{ours}.{kind}",), change) for kind in kinds]


def native_layout(body: Sequence[str], outputs: Mapping[str, Sequence[str]]) -> Table:
    """The table of a family that no other library keeps in a folder: tensors have the bundle's own names."""
    rules = {name: [Rule((each,), (each,)) for each in names] for name, names in outputs.items()}
    return Table(prefix="", n_sets=0, body=[Rule((each,), (each,)) for each in body], outputs=rules)


def read(table: Table, tensors: Mapping[str, Tensor], where: str) -> CheckpointTensors:
    """Their tensors → ours. `where` names the checkpoint in errors."""
    keys = {_modern(key): key for key in tensors}
    if len(keys) < len(tensors):
        twice = sorted(set(tensors) - set(keys.values()))
        raise ModelError(f"The weights in {where} hold a tensor under its old and its new name: {_list_names(twice)}.")
    prefix = table.prefix if any(key.startswith(table.prefix) for key in keys) else ""
    for alias in table.aliases:
        one, other = _name(alias.theirs, prefix), _name(alias.same_as, prefix)
        if one in keys:
            keys.setdefault(other, keys[one])
    outputs = [
        name
        for name, rules in table.outputs.items()
        if never_missing(rules)
        or any(key in keys for key in ([table.signs[name]] if name in table.signs else _names(rules, prefix, table)))
    ]
    rules = table.rules(outputs, prefix)
    needed = [key for rule in rules for key in rule.theirs]
    missing = [key for rule in rules if rule.absent is None for key in rule.theirs if key not in keys]
    unknown, left_out = _sort_out(table, set(keys) - set(needed), prefix)
    if missing or unknown:
        raise ModelError(_both_sides(where, missing, unknown))
    _check_aliases(table, {name: tensors[key] for name, key in keys.items()}, prefix, where)

    ours: dict[str, Tensor] = {}
    for rule in rules:
        there = {key: tensors[keys[key]] for key in rule.theirs if key in keys}
        if any(tensor.is_floating_point() for tensor in there.values()):  # not the parts of int8 weights
            for key, tensor in there.items():
                refuse_whole_numbers(key, tensor, where)
        try:
            changed = rule.change.forward(
                [there[key] if key in there else torch.zeros(rule.absent or ()) for key in rule.theirs]
            )
        except RuntimeError:
            shapes = ", ".join(f"{key} {tuple(tensor.shape)} in {dtype_name(tensor)}" for key, tensor in there.items())
            raise ModelError(f"In {where}, these weights do not go together: {shapes}.") from None
        for name, tensor in zip(rule.ours, changed, strict=True):
            if name in ours:
                raise ModelError(f"Two rules of the conversion table fill {name!r}.")
            ours[name] = tensor
    return CheckpointTensors(ours, outputs, left_out)


def never_missing(rules: Sequence[Rule]) -> bool:
    """Whether every checkpoint has an output with these rules."""
    return all(rule.absent is not None for rule in rules)


def write(table: Table, ours: Mapping[str, Tensor], outputs: Iterable[str], *, prefix: bool) -> dict[str, Tensor]:
    """Our tensors → theirs, by the same rules; aliases and derived tensors are left for their library to rebuild."""
    theirs: dict[str, Tensor] = {}
    used: set[str] = set()
    outputs = list(outputs)
    missing = [name for name in outputs if name not in table.outputs]
    rules = table.rules([], "") if missing else table.rules(outputs, table.prefix if prefix else "")
    missing += sorted({name for rule in rules for name in rule.ours} - set(ours))
    if missing:
        raise ModelError(f"The model lacks what the layout of its family has: {_list_names(missing)}.")
    for rule in rules:
        used.update(rule.ours)
        theirs.update(zip(rule.theirs, rule.change.backward([ours[name] for name in rule.ours]), strict=True))
    unused = sorted(set(ours) - used)
    if unused:
        raise ModelError(f"The conversion table has no rule for: {_list_names(unused)}.")
    return theirs


def _modern(key: str) -> str:
    for pattern, new in OLD_NAMES:
        key = pattern.sub(new, key)
    return key


def _fill_in(rule: Rule, prefix: str, n_sets: int) -> list[Rule]:
    numbers = range(n_sets) if "{i}" in rule.theirs[0] else range(1)
    names = [[tuple(_name(name, prefix, i) for name in side) for side in (rule.theirs, rule.ours)] for i in numbers]
    return [Rule(theirs, ours, rule.change, rule.absent) for theirs, ours in names]


def _name(pattern: str, prefix: str, number: int = 0) -> str:
    return pattern.replace("{p}", prefix).replace("{i}", str(number))


def _names(rules: Sequence[Rule], prefix: str, table: Table) -> set[str]:
    return {key for rule in rules for filled in _fill_in(rule, prefix, table.n_sets) for key in filled.theirs}


def _sort_out(table: Table, rest: set[str], prefix: str) -> tuple[list[str], list[str]]:
    """Keys that no rule needs: unknown ones, and ones that are known and left out with a word."""
    expected = {_name(alias.theirs, prefix) for alias in table.aliases}
    derived = [re.compile(_name(pattern, re.escape(prefix))) for pattern in table.derived]
    foreign = [re.compile(pattern) for pattern in table.foreign]
    rest = {key for key in rest - expected if not any(pattern.fullmatch(key) for pattern in derived)}
    left_out = sorted(key for key in rest if any(pattern.fullmatch(key) for pattern in foreign))
    return sorted(rest - set(left_out)), left_out


def _check_aliases(table: Table, tensors: Mapping[str, Tensor], prefix: str, where: str) -> None:
    for alias in table.aliases:
        one, other = _name(alias.theirs, prefix), _name(alias.same_as, prefix)
        if alias.checked and one in tensors and not torch.equal(tensors[one], tensors[other]):
            raise ModelError(
                f"In {where}, {one!r} should be the same tensor as {other!r}, and is not. The config says that the two "
                "are tied; if they are not, set 'tie_word_embeddings' to false in config.json."
            )


def _both_sides(where: str, missing: list[str], unknown: list[str]) -> str:
    sides = []
    if missing:
        sides.append(f"it lacks {_list_names(missing)}")
    if unknown:
        sides.append(f"it has {_list_names(unknown)}, which nothing here takes")
    return (
        f"The weights in {where} are not those of the model that its config describes: {'; '.join(sides)}. "
        "Check that the settings and the weights belong together."
    )


def _list_names(names: list[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

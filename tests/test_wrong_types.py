"""A value of the wrong type, given to a public function: one clear message, before any work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import polyseme
from polyseme.errors import InputError, OptionError
from polyseme.options import wrong_type

WRONG = cast(Any, 3)
TEXTS = ["The crane caught a fish.", "The crane lifted a beam."]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: polyseme.senses(WRONG), r"senses\(\): word must be a string. Got 3 \(int\)"),
        (lambda: polyseme.similar(WRONG), r"similar\(\): text must be a string"),
        (lambda: polyseme.compare(WRONG, source=[TEXTS, TEXTS]), "word must be a string or None"),
        (lambda: polyseme.concordance(WRONG, source=TEXTS), "query must be a string"),
        (lambda: polyseme.concordance("crane", source=TEXTS, width=cast(Any, "x")), "width must be a whole number"),
        (lambda: polyseme.finetune(WRONG), "task must be a string or a task's data"),
        (lambda: polyseme.generate(WRONG), "prompts must be a string or a list of strings"),
        (lambda: polyseme.embed(TEXTS, output=WRONG), r"embed\(\): output must be a path"),
        (lambda: polyseme.embed(TEXTS, output="x.npz", model=WRONG), "must be a path or a loaded Model or None"),
        (lambda: polyseme.pretrain(TEXTS, shape=WRONG, output="run"), "shape must be a mapping or None"),
        (lambda: polyseme.list_recipes(WRONG), "recipe must be a string or None"),
        (lambda: polyseme.interpolate(model=WRONG, source=TEXTS), "two models at least"),
        (lambda: polyseme.view(WRONG, to="crane"), "must be documents with vectors"),
        (lambda: polyseme.load(dtype=WRONG), "no dtype 3"),
    ],
)
def test_a_wrong_type_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises((OptionError, InputError), match=said):
        call()


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (np.int64(3), "int"),
        (np.float32(0.5), "float | None"),
        (2, "float"),
        (4.0, "int"),
        (np.str_("word"), "str"),
        (("a", "b"), "str | Sequence[str]"),
        (3, "Literal"),
        (object(), "AnyPath | Sources"),
    ],
)
def test_what_can_be_used_is_not_refused(value: object, annotation: str) -> None:
    assert wrong_type(value, annotation) is None

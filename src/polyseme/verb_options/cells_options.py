"""The options of cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from polyseme.errors import OptionError
from polyseme.options import doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath

    Property = Callable[[str], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class CellsOptions(AnalysisOptions):
    """What `cells` takes."""

    text: str | Sequence[str] | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("A text (in Python also its words).", "TEXT")
    )
    model: AnyPath | Model = dataclasses.field(
        metadata=doc("Recurrent model: an LSTM language model, AWD-LSTM, ELMo, Flair.", "MODEL", flags="-m --model")
    )
    source: AnyPath | None = option(
        None, "File to read instead of TEXT; the whole file is one text.", "FILE", default="none", flags="--in"
    )
    property: str | Property | None = option(
        None,
        "Rank cells by their correlation with a property of the text: inside quotes, inside brackets, inside if "
        "(conditions in program code), position in line, position in word. In Python also a function from a text to "
        "one number per character.",
        "NAME",
        default="none",
    )
    cell: int | Sequence[int] | None = option(
        None,
        "Cells to show, counted from 0, separated by commas.",
        "N",
        default="the cell most correlated with the property",
        parse="whole numbers",
    )
    layer: str | int = option(-1, "Layer of the cells: 1 is the first above the token layer, -1 the top.", "N")
    half: Literal["forwards", "backwards"] | None = option(
        None,
        "Reading direction, for two-way models: forwards, backwards.",
        "DIRECTION",
        default="the model's first",
    )
    value: Literal["cell", "output"] = option(
        "cell", "Value to show: cell (tanh of the cell state) or output (the cell's output).", "VALUE"
    )
    top: int = option(10, "Number of cells to list, by correlation with the property.", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.text is None) == (self.source is None):
            raise OptionError("Name a text or a file: cells TEXT, or --in FILE (source=…), and not both.")

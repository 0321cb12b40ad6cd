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
    from polyseme.files.source_paths import AnyPath

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
        None, "File that is read instead of TEXT, as one text with its lines.", "FILE", default="none", flags="--in"
    )
    property: str | Property | None = option(
        None,
        "Property of the text by which cells are ranked: inside quotes, inside brackets, inside if (conditions in "
        "program code), position in line, position in word. In Python also a function from a text to one number for "
        "each of its characters.",
        "NAME",
        default="none",
    )
    cell: int | Sequence[int] | None = option(
        None,
        "Cell that is shown, counted from 0, or several, with commas between them.",
        "N",
        default="the one most correlated with the property",
        parse="whole numbers",
    )
    layer: str | int = option(-1, "Layer of the cell: 1 is the first above the token layer, -1 the top.", "N")
    half: Literal["forwards", "backwards"] | None = option(
        None,
        "Reading direction of the layer, in a model with both: forwards, backwards.",
        "DIRECTION",
        default="the first that there is",
    )
    value: Literal["cell", "output"] = option(
        "cell", "Value that is shown: cell (tanh of the cell's state), or output (of the cell).", "VALUE"
    )
    top: int = option(10, "How many of the cells most correlated with the property are listed.", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.text is None) == (self.source is None):
            raise OptionError("Name a text or a file: cells TEXT, or --in FILE (source=…), and not both.")

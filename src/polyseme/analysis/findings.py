"""What an analysis found: a record with a table, JSON and a page, all of which say where the figures come from.

Every analysis returns a subclass of `Findings`. It says what its title, its rows and the body of its page are; the
table, the files and the statement of model, data, seeds and cost are the same for all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from polyseme import __version__
from polyseme.cost import Cost
from polyseme.files.atomic import AnyPath
from polyseme.files.result_formats import Formats, check_result_output, json_text, table_text, write_result
from polyseme.packaged_models import model_name
from polyseme.plots.figures_table import FIGURES_STYLE
from polyseme.plots.html_page import escaped, framed_page, page
from polyseme.result_tables import ShownAsTable, Table, cell

_STYLE = """
.sources { margin-top: 2rem; padding-top: .6rem; border-top: 1px solid var(--line) }
.sources dt { float: left; clear: left; width: 5rem } .sources dd { margin-left: 5rem }
""".strip()


@dataclass(frozen=True, kw_only=True, repr=False)
class Findings(ShownAsTable):
    """What an analysis found, and of what."""

    verb: ClassVar[str]
    """The command that finds it."""
    page_style: ClassVar[str] = ""
    page_script: ClassVar[str] = ""

    model: str
    """The path or name of the model."""
    data: str
    """In words, what was read: files or a benchmark, and how much of them."""
    seeds: Sequence[int] = ()
    """Those of random numbers, where there are any."""
    notes: Sequence[str] = ()
    """Sentences that a reader of the figures must know."""
    cost: Cost | None = None

    @abstractmethod
    def title(self) -> str:
        """What this is, in a few words."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows: flat mappings with the same names, for `pandas.DataFrame(findings.records())`."""

    @abstractmethod
    def page_body(self) -> str:
        """The HTML between the heading and the sources; users' text in it is escaped."""

    def page_height(self) -> int:
        """The height in pixels that a notebook gives the page."""
        return 560

    def header(self) -> Sequence[str]:
        """The columns of the table."""
        return [name.replace("_", " ") for name in next(iter(self.records()), {})]

    def rows(self) -> Sequence[Sequence[str]]:
        """The rows of the table."""
        return [[cell(value) for value in record.values()] for record in self.records()]

    def table(self) -> Table:
        table = Table.of(self.title(), self.header(), self.rows(), lambda row: row)
        return Table(title=table.title, header=table.header, rows=table.rows, note=" ".join(self.notes))

    def sources(self) -> dict[str, str]:
        """Where the figures come from, by name."""
        named = {
            "model": model_name(self.model),
            "data": self.data,
            "seeds": ", ".join(map(str, self.seeds)),
            "cost": "" if self.cost is None else self.cost.line(),
            "made by": f"polyseme {__version__}, polyseme {self.verb}",
        }
        return {name: value for name, value in named.items() if value}

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {
            "analysis": self.verb,
            "polyseme": __version__,
            "model": self.model,
            "data": self.data,
            "seeds": list(self.seeds),
            "notes": list(self.notes),
            "cost": None if self.cost is None else asdict(self.cost),
            **self.content(),
        }

    def content(self) -> dict[str, Any]:
        """What JSON has of the figures themselves: the records, unless they are too many to be written one by one."""
        return {"records": self.records()}

    def html(self) -> str:
        """The page: self-contained, and nothing is fetched."""
        sources = "".join(f"<dt>{name}</dt><dd>{escaped(value)}</dd>" for name, value in self.sources().items())
        body = "\n".join(
            [
                f"<h1>{escaped(self.title())}</h1>",
                self.page_body(),
                *(f'<p class="faint">{escaped(note)}</p>' for note in self.notes),
                f'<dl class="sources faint">{sources}</dl>',
            ]
        )
        return page(self.title(), body, style=f"{FIGURES_STYLE}\n{_STYLE}\n{self.page_style}", script=self.page_script)

    def _repr_html_(self) -> str:
        return framed_page(self.html(), height=self.page_height())

    def save(self, output: AnyPath, *, force: bool = False) -> None:
        """Write a page (.html), JSON (.json) or a table (.tsv, .csv), whole or not at all."""
        check_findings_output(output, force=force)
        write_result(self, output, FORMATS, force=force)


def quoted(text: str) -> str:
    r"""The beginning of a text in quotes, for the statement of data.

    >>> quoted("Dawn\nbroke.")
    '“Dawn broke.”'
    """
    return f"“{cell(text)}”"


def decimal(value: float, digits: int) -> str:
    """A number as tables and pages have it: a real minus sign, and none before 0; empty if it is not finite.

    >>> decimal(-1234.5, 1), decimal(-0.001, 2), decimal(float("nan"), 2)
    ('−1,234.5', '0.00', '')
    """
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−") if math.isfinite(value) else ""


def signed(value: float, digits: int) -> str:
    """A number with its sign.

    >>> signed(-0.25, 3), signed(2.0, 1)
    ('−0.250', '+2.0')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def check_findings_output(output: AnyPath | None, *, force: bool, inputs: Sequence[AnyPath] = ()) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    check_result_output(output, FORMATS, force=force, inputs=inputs)


FORMATS: Formats = {
    ".html": lambda findings: findings.html(),
    ".json": lambda findings: json_text(findings.to_json()),
    ".tsv": lambda findings: table_text(findings.records(), "\t"),
    ".csv": lambda findings: table_text(findings.records()),
}
"""How findings are written, by the ending of the file's name."""

"""Run the notebooks of the course, and keep in each what its cells print and draw.

Cells run as in Jupyter, one after another, but Jupyter is not needed: text, tables and figures become the outputs of
the notebook, from which the pages of the documentation are made (`mkdocs_course.py`).

    python examples/course/execute.py                    # all, or: make course
    python examples/course/execute.py 01_before_elmo     # one of them
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib import pyplot

FOLDER = Path(__file__).parent
Output = dict[str, Any]


class CellError(Exception):
    """A cell that failed: its number and its code."""


def main() -> None:
    """Run each notebook in a process of its own, in the folder of the course."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK", help="such as 01_before_elmo (default: all)")
    parser.add_argument("--here", action="store_true", help="in this process, one notebook")
    settings = parser.parse_args()
    known = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    names = [Path(name).name.removesuffix(".ipynb") for name in settings.names] or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"There is no notebook {unknown[0]}. There are: {', '.join(known)}.")
    if settings.here:
        os.chdir(FOLDER)
        try:
            execute_file(FOLDER / f"{names[0]}.ipynb")
        except CellError as error:
            sys.exit(str(error))
        return
    for name in names:
        started = time.perf_counter()
        if code := subprocess.run([sys.executable, __file__, "--here", name], check=False).returncode:
            sys.exit(code)
        print(f"{name}: {time.perf_counter() - started:.0f} s")


def execute_file(path: Path) -> None:
    """Run a notebook and write it back with the outputs of its cells, up to one that fails."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    try:
        execute(notebook)
    finally:
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run all cells of a notebook in one namespace, and put their outputs into it. Returns the namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with figures_as_pictures() as pictures:
        code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        for number, cell in enumerate(code, start=1):
            source = "".join(cell["source"])
            try:
                cell["outputs"] = [*run_cell(source, number, namespace), *pictures()]
            except Exception as error:
                raise CellError(f"Cell {number} failed with {error!r}:\n\n{source}") from error
            cell["execution_count"] = number
    return namespace


def run_cell(source: str, number: int, namespace: dict[str, Any]) -> Iterator[Output]:
    """What a cell prints, and the value of its last expression, as outputs of a notebook."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    hidden = source.rstrip().endswith(";")
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    if text := printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    if value is not None and not hidden:
        yield {"data": displayed(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def displayed(value: Any) -> dict[str, list[str]]:
    """A value as text and, where it has such a form, as HTML."""
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    as_html = getattr(value, "_repr_html_", None)
    page = None if as_html is None or isinstance(value, type) else as_html()
    return data if page is None else {"text/html": page.splitlines(keepends=True), **data}


@contextlib.contextmanager
def figures_as_pictures() -> Iterator[Any]:
    """A function that closes the figures that are open, and returns them as outputs of a notebook."""
    pyplot.switch_backend("Agg")

    def pictures() -> Iterator[Output]:
        for number in pyplot.get_fignums():
            figure, file = pyplot.figure(number), io.BytesIO()
            figure.savefig(file, format="png", dpi=90, bbox_inches="tight", metadata={"Software": None})
            titles = [figure.get_suptitle()] if figure.get_suptitle() else [axes.get_title() for axes in figure.axes]
            picture = base64.b64encode(file.getvalue()).decode()
            data = {"image/png": picture, "text/plain": ["; ".join(filter(None, titles)) or "A figure"]}
            yield {"data": data, "metadata": {}, "output_type": "display_data"}
        pyplot.close("all")

    yield pictures


if __name__ == "__main__":
    main()

"""Small files in GAP's layout."""

from __future__ import annotations

from pathlib import Path

HEADER = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"
TEXT = "Ada met Eve before she left."
ROW = ["d-1", TEXT, "she", "19", "Ada", "0", "TRUE", "Eve", "8", "FALSE", "u"]


def gap(folder: Path, *rows: list[str]) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / "gap-development.tsv"
    file.write_text("\n".join([HEADER, *("\t".join(row) for row in rows)]) + "\n")
    (folder / "gap-validation.tsv").write_text(file.read_text())
    return file


def changed(**cells: str) -> list[str]:
    return [cells.get(name.replace("-", "_"), cell) for name, cell in zip(HEADER.split("\t"), ROW, strict=True)]

"""What the experiments share: the data folder, tables in pages, and the line that names machine and versions."""

from __future__ import annotations

import importlib.metadata
import lzma
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import torch

import polyseme


def data_folder() -> Path:
    """The folder of the tasks' data, named by POLYSEME_DATA."""
    folder = os.environ.get("POLYSEME_DATA")
    if folder is None:
        raise SystemExit("POLYSEME_DATA must name the folder of the data.")
    return Path(folder) / "tasks"


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, which may be compressed as `.xz`."""
    compressed = path.with_name(f"{path.name}.xz")
    text = path.read_text(encoding="utf-8") if path.exists() else lzma.decompress(compressed.read_bytes()).decode()
    return text.splitlines()


def machine(*packages: str) -> str:
    """Processor, threads, Python, polyseme and package versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    versions = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    parts = [name, f"{torch.get_num_threads()} threads", f"Python {platform.python_version()}"]
    return ", ".join([*parts, f"polyseme {polyseme.__version__}", *versions])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def fill_page(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what is between two marks of a page, each on a line of its own."""
    content = page.read_text(encoding="utf-8")
    between = re.compile(f"(?<={re.escape(marks[0])}\n).*?(?={re.escape(marks[1])})", re.DOTALL)
    if not between.search(content):
        raise SystemExit(f"{page} has no place for the table: {marks[0]} … {marks[1]}.")
    page.write_text(between.sub(lambda _: f"{text}\n", content), encoding="utf-8")

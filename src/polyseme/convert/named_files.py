"""Models in several files, each named by its path, with `+` between them: `news-forward.pt+news-backward.pt`."""

from __future__ import annotations

from pathlib import Path

BETWEEN = "+"


def named_files(path: Path) -> list[Path]:
    """The files that a model is named by; none where the path names one thing, or not only files."""
    files = [Path(name.strip()) for name in str(path).split(BETWEEN)]
    return files if len(files) > 1 and not path.exists() and all(file.is_file() for file in files) else []

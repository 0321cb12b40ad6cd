"""A process killed outright in the middle of writing leaves nothing under the output's name."""

from __future__ import annotations

import signal
from pathlib import Path
from subprocess import PIPE

import pytest

from forked import Forked
from polyseme.files.atomic import check_output
from polyseme.files.vector_files import FORMATS

WRITE_FOREVER = """
import sys
import numpy as np
from polyseme.files.vector_files import open_writer
from polyseme.types import EmbeddedDocument, Word

document = EmbeddedDocument(
    text="a", words=[Word("a", 0, 1)], offsets=np.array([[0, 1]]), vectors=np.ones((1, 2000), np.float32)
)
with open_writer(sys.argv[1], force=True) as writer:
    for number in range(10**9):
        writer.write([document] * 100)
        if number == 5:
            print("writing", flush=True)
"""


@pytest.mark.parametrize(
    ("suffix", "old"),
    [(suffix, b"what was there before" if number % 2 else None) for number, suffix in enumerate(sorted(FORMATS))],
)
def test_a_killed_writer_leaves_no_output(tmp_path: Path, suffix: str, old: bytes | None) -> None:
    output = tmp_path / f"out{suffix}"
    if old is not None:
        output.write_bytes(old)
    with Forked(WRITE_FOREVER, str(output), stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert (output.read_bytes() if output.exists() else None) == old
    left = [path.name for path in tmp_path.iterdir() if path != output]
    assert len(left) == 1
    assert left[0].startswith(f".out{suffix}.{process.pid}-")
    check_output(output, force=True)  # the next command that writes it begins with that
    assert [path.name for path in tmp_path.iterdir()] == ([output.name] if old is not None else [])

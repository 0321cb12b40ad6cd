"""A process that is stopped in the middle leaves nothing half-written; one that is killed, nothing under the name."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

from forked import Forked

CHUNK = 1 << 12
"""Characters of a chunk, instead of the many it has by default."""
LINE = b"Dawn broke." + b" " * CHUNK + b"\n"
"""A line that is a chunk by itself."""
POLYSEME = f"""
from polyseme.files import chunks
chunks.CHUNK_CHARACTERS = {CHUNK}
from polyseme.cli import main
main()
"""


@contextlib.contextmanager
def embedding(model: Path, source: str, output: Path, *more: str) -> Iterator[Forked]:
    """A process that embeds; it does not outlive the block."""
    line = ["embed", source, "-m", str(model), "-o", str(output), *more]
    with Forked(POLYSEME, *line, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_written(process: Forked, output: Path) -> None:
    """Wait until there are vectors on the disk beside the output."""
    while not any(path.stat().st_size for path in output.parent.glob(f".{output.name}.*.part/*")):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        time.sleep(0.02)


def wait_until_kept(process: Forked, output: Path) -> None:
    """Wait until there is a whole chunk on the disk beside the output."""
    while not any(output.parent.glob(f"{output.name}.unfinished/[0-9]*.json")):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        time.sleep(0.02)


def send(process: Forked, chunks: int) -> None:
    assert process.stdin is not None
    process.stdin.write(LINE * chunks)
    process.stdin.flush()


def test_killed_outright(tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    output.write_bytes(b"old")
    with embedding(tiny, "-", output, "--force") as process:
        send(process, 3)
        wait_until_written(process, output)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert output.read_bytes() == b"old"
    left = [path.name for path in tmp_path.iterdir() if path != output]
    assert len(left) == 1
    assert left[0].startswith(f".out.parquet.{process.pid}-")


def test_interrupted_while_it_waits_for_input(tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    with embedding(tiny, "-", output) as process:
        send(process, 3)
        wait_until_written(process, output)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        check_said(process, "interrupted")
    assert not any(tmp_path.iterdir())


def test_told_to_stop_at_work_and_told_again(tiny: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out" / "out.npz"
    source.write_bytes(b"the vase broke .\n" * 500_000)
    output.parent.mkdir()
    with embedding(tiny, str(source), output) as process:
        wait_until_kept(process, output)
        process.send_signal(signal.SIGTERM)
        for _ in range(5):  # someone in a hurry
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
        check_said(process, "SIGTERM", f"{output.name}.unfinished: the same command resumes it")
    assert [path.name for path in output.parent.iterdir()] == ["out.npz.unfinished"]


IN_COMPILED_CODE = """
import signal, sys
from polyseme.cli import main

def trace(frame, event, argument):
    code = frame.f_code
    if code.co_name == "__getitem__" and "torch/storage" in code.co_filename and frame.f_locals["args"] == (0,):
        sys.settrace(None)
        signal.raise_signal(signal.SIGTERM)

sys.settrace(trace)
main()
"""
"""A signal arrives while torch, called by safetensors, looks at the first number of a tensor."""


def test_told_to_stop_where_compiled_code_drops_the_exception(tiny: Path, tmp_path: Path) -> None:
    line = ["pieces", "Dawn broke .", "-m", str(tiny), "-o", str(tmp_path / "out.npz")]
    with Forked(IN_COMPILED_CODE, *line, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.wait() == 143
        check_said(process, "SIGTERM", "nothing was left half-written")
    assert not any(tmp_path.iterdir())


def check_said(process: Forked, *said: str) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read() == b""
    lines = process.stderr.read().decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("polyseme: ")
    for words in said:
        assert words in lines[0]

"""Processes of their own that need not load torch again: they are forked from a server that has loaded everything.

`Forked(script, argument, …)` is what `subprocess.Popen([sys.executable, "-c", script, argument, …])` is, but seconds
sooner. Tests of what a process loads, or of how much memory it takes, start Python itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from subprocess import PIPE, CompletedProcess
from typing import IO, Any

LOADED = (
    "torch._dynamo",  # which every optimizer loads with its first step
    *(f"polyseme.verbs.{verb}" for verb in ("embed", "score", "generate", "finetune", "pretrain")),
    *(f"polyseme.cli.{verb}" for verb in ("embed", "score", "generate", "pretrain")),
    *(f"polyseme.convert.{family}" for family in ("bert", "gpt", "elmo", "t5")),
    *(f"polyseme.files.{kind}" for kind in ("vectors_parquet", "vectors_npz", "vectors_safetensors", "vectors_hdf5")),
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
)
_server = multiprocessing.get_context("forkserver")


def preload(modules: Sequence[str]) -> None:
    """What the server loads, before its first process."""
    _server.set_forkserver_preload(list(modules))


preload(LOADED)


class Descriptor:
    """A file descriptor, which a process that is started gets as its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _own, (reduction.DupFd(self.number),)


def _own(passed: Any) -> int:
    number: int = passed.detach()
    return number


def _child(script: str, arguments: list[str], files: tuple[int, int, int], environment: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # which may be another one now
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})


class Forked:
    """A process, with the names that `subprocess.Popen` has for what can be done with one."""

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None

    def __init__(
        self,
        script: str,
        *arguments: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            files = []
            for name, given in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                files.append(Descriptor(self._end(name, given, stack)))
            environment = dict(os.environ if env is None else env)
            self._process = _server.Process(target=_child, args=(script, arguments, tuple(files), environment))
            self._process.start()
        self.pid = int(self._process.pid or 0)

    def _end(self, name: str, given: int | None, stack: contextlib.ExitStack) -> int:
        """The child's end of a stream; a pipe's other end is ours."""
        if given == PIPE:
            read, write = os.pipe()
            theirs, ours, mode = (read, write, "wb") if name == "stdin" else (write, read, "rb")
            setattr(self, name, os.fdopen(ours, mode))
        elif given is None:
            theirs = os.open(os.devnull, os.O_RDWR)
        else:
            return given
        stack.callback(os.close, theirs)
        return theirs

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None as long as it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return int(self._process.exitcode or 0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(script: str, *arguments: str, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Wait for a process to end: its code, and what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = Forked(script, *arguments, stdout=out.fileno(), stderr=errors.fileno(), env=env)
        code = process.wait()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return CompletedProcess(["-c", *arguments], code, *texts)

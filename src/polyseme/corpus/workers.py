"""Work in several processes: each is given stretches of documents, and results come in the order of the input.

A worker is a fresh Python that reads tasks from its standard input and writes results to its standard output. So it
needs nothing of the main program (which need not guard itself with `__name__`), inherits no threads, and ends by
itself when whoever started it is gone, killed or not.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar, cast

from polyseme.corpus.work import Load, Work, Worked
from polyseme.errors import PolysemeError
from polyseme.text.framing import Frame
from polyseme.text.load import load_tokenizer

Task = TypeVar("Task")

_AHEAD = 2
"""Tasks a worker that are under way or waiting, so that none is idle and memory stays bounded."""
_START = "import sys; sys.path[:] = {path!r}; from polyseme.corpus.workers import serve; serve()"


def usable_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # where the system does not say
        return os.cpu_count() or 1


def in_order(
    tasks: Iterable[tuple[Task, Load]], work: Work, tokenizer_folder: str, n_workers: int
) -> Generator[tuple[Task, Worked], None, None]:
    """What `work` makes of each task, in order, beside what came with it."""
    if n_workers <= 1:
        for task, load in tasks:
            yield task, work(load)
        return
    settings = (tokenizer_folder, work.tokenizer.framing.to_json(), work.seed, tuple(work.sides))
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(contextlib.closing(_Worker(settings))) for _ in range(n_workers)]
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def run(load: Load) -> Worked:
            worker = idle.get()
            try:
                return worker(load)
            finally:
                idle.put(worker)

        threads = stack.enter_context(ThreadPoolExecutor(n_workers))
        try:
            yield from _ahead(tasks, lambda load: threads.submit(run, load), _AHEAD * n_workers)
        except BaseException:
            for worker in workers:
                worker.kill()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _ahead(
    tasks: Iterable[tuple[Task, Load]], submit: Callable[[Load], Future[Worked]], most: int
) -> Iterator[tuple[Task, Worked]]:
    pending: deque[tuple[Task, Future[Worked]]] = deque()
    for task, load in tasks:
        pending.append((task, submit(load)))
        if len(pending) >= most:
            first, future = pending.popleft()
            yield first, future.result()
    while pending:
        first, future = pending.popleft()
        yield first, future.result()


class _Worker:
    """A worker process, as the one that started it sees it."""

    def __init__(self, settings: Any) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._settings = settings

    def __call__(self, load: Load) -> Worked:
        """Have one task done; blocks until it is."""
        try:
            if self._settings is not None:
                self._send(self._settings)
                self._settings = None
            self._send(load)
            answer = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._process.wait()
            raise PolysemeError(
                f"A worker process ended before its work was done (exit code {self._process.returncode}); it may have "
                "run out of memory. Run the same command again to go on, with fewer workers if need be."
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return cast(Worked, answer)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Let it end: there are no more tasks."""
        with contextlib.suppress(OSError):
            cast(BinaryIO, self._process.stdin).close()
        self._process.wait()
        cast(BinaryIO, self._process.stdout).close()

    def _send(self, thing: Any) -> None:
        stdin = cast(BinaryIO, self._process.stdin)
        pickle.dump(thing, stdin, protocol=pickle.HIGHEST_PROTOCOL)
        stdin.flush()


def serve() -> None:
    """A worker process, as it sees itself: tasks in, results out, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it decides
    tasks = sys.stdin.buffer
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as results:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever is printed must not get among the results
        work: Work | None = None
        with contextlib.suppress(EOFError, BrokenPipeError):
            folder, frame, seed, sides = pickle.load(tasks)
            while True:
                load = pickle.load(tasks)
                try:
                    if work is None:
                        tokenizer = load_tokenizer(folder, frame=Frame.from_json(frame))
                        work = Work(tokenizer, seed, sides)
                    answer: Any = work(load)
                except Exception as error:  # noqa: BLE001 - told to the one that started it
                    answer = error
                pickle.dump(answer, results, protocol=pickle.HIGHEST_PROTOCOL)
                results.flush()

"""Documents to pieces, word starts and sentences, in this process or in several.

What is made of a stretch of documents depends on the documents and the settings alone, and results come in the order of
the tasks, so the number of workers changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.corpus import separator_of
from polyseme.corpus.fast_tokenization import Spelled, Speller
from polyseme.corpus.shards import SIDE, SPLITS, Stretch, dtype_for
from polyseme.errors import PolysemeError
from polyseme.text.framing import Frame
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer

Task = TypeVar("Task")

MOST_WORKERS = 1024
"""More are surely a mistake: each worker is a process with its own tokenizer."""
_AHEAD = 2
"""Tasks per worker that are running or waiting, so that none is idle and memory stays bounded."""
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = {path!r}; "
    "from polyseme.corpus.worker_processes import serve; serve()"
)
"""What a worker runs. Ctrl-C reaches it too, and is for the process that started it to decide about."""


class Load(NamedTuple):
    """What is to be worked on: documents, of several sides side after side for each."""

    texts: Sequence[bytes]
    held_out: float
    """The share of documents that is held out for evaluation."""


class FinishedStretch(NamedTuple):
    """A stretch of documents, done."""

    stretches: dict[str, dict[str, Stretch]]
    """By side and split."""
    ranks: dict[str, NDArray[np.uint64]]
    """By split, one number per document that decides between training and held out; equal texts have equal ones."""
    sizes: dict[str, NDArray[np.int64]]
    """By split, [documents, sides]: the bytes of each."""
    n_vanished: int
    """Documents of which the tokenizer left nothing."""


@dataclass
class Work:
    """Turns documents into pieces."""

    tokenizer: PieceTokenizer
    seed: int
    sides: Sequence[str] = (SIDE,)

    def __post_init__(self) -> None:
        self._speller = Speller(self.tokenizer)
        self._separator = separator_of(self.tokenizer)
        self._dtype = dtype_for(self.tokenizer.n_pieces)
        self._key = (self.seed & (1 << 64) - 1).to_bytes(8, "little")

    def __call__(self, load: Load) -> FinishedStretch:
        """The pieces of some documents, to train on and held out.

        A document of several sides of which one comes out as nothing is left out as a whole.
        """
        n_sides = len(self.sides)
        by_side = [load.texts[number::n_sides] for number in range(n_sides)]
        whole = by_side[0] if n_sides == 1 else [b"\0".join(texts) for texts in zip(*by_side, strict=True)]
        ranks = np.array([rank_of(text, self._key) for text in whole], np.uint64)
        sizes = np.array([[len(text) for text in texts] for texts in by_side], np.int64).T.reshape(-1, n_sides)
        spelled = [self._speller.spell(texts) for texts in by_side]
        held = ranks.astype(np.float64) * 2.0**-64 < load.held_out
        real = np.logical_and.reduce([each.counts > 0 for each in spelled])
        chosen = {"train": real & ~held, "held": real & held}
        return FinishedStretch(
            {
                side: {split: self._stretch(each, chosen[split], sizes[:, number]) for split in SPLITS}
                for number, (side, each) in enumerate(zip(self.sides, spelled, strict=True))
            },
            {split: ranks[chosen[split]] for split in SPLITS},
            {split: sizes[chosen[split]] for split in SPLITS},
            int((~real).sum()),
        )

    def _stretch(self, spelled: Spelled, chosen: NDArray[np.bool_], sizes: NDArray[np.int64]) -> Stretch:
        """The pieces of the chosen documents, with separators after each where there are any."""
        mine = slice(None) if chosen.all() else np.repeat(chosen, spelled.counts)
        pieces, starts, sentences = spelled.pieces[mine], spelled.starts[mine], spelled.sentences[mine]
        counts = spelled.counts[chosen]
        n_words = int(starts.sum())
        if self._separator is None:
            ends = np.cumsum(counts)
        else:
            ends = np.cumsum(counts + 1)
            places = np.cumsum(counts)
            pieces = np.insert(pieces, places, self._separator)
            starts = np.insert(starts, places, True)
            sentences = np.insert(sentences, places, False)
        return Stretch(
            pieces=pieces.astype(self._dtype),
            starts=starts,
            ends=ends.astype(np.int64),
            sentences=np.flatnonzero(sentences),
            n_bytes=int(sizes[chosen].sum()),
            n_words=n_words,
        )


def rank_of(text: bytes, key: bytes) -> int:
    """A random number below 2**64 that a text gets, the same wherever it is."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "little")


def usable_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # where the system does not say
        return os.cpu_count() or 1


class WorkerProcesses:
    """At most some worker processes, as the one that starts them sees them; they end with the block."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self._workers:
            if kind is not None:
                worker.kill()
            worker.let_go()
        for worker in self._workers:
            worker.close()

    def start(self, n: int) -> None:
        """Start some for which there will be work: they load their modules while it is prepared."""
        if self._most > 1:
            for _ in range(min(n, self._most)):
                self._idle.put(self._new())

    def in_order(
        self, tasks: Iterable[tuple[Task, Load]], work: Work, tokenizer_folder: str
    ) -> Generator[tuple[Task, FinishedStretch], None, None]:
        """What `work` makes of each task, in order, beside what came with it."""
        if self._most <= 1:
            for task, load in tasks:
                yield task, work(load)
            return
        settings = (tokenizer_folder, work.tokenizer.framing.to_json(), work.seed, tuple(work.sides))

        def run(load: Load) -> FinishedStretch:
            try:
                worker = self._idle.get_nowait()
            except queue.Empty:  # the others start when there is work for them, so there are at most as many as threads
                worker = self._new()
            try:
                return worker(settings, load)
            finally:
                self._idle.put(worker)

        threads = ThreadPoolExecutor(self._most)
        try:
            yield from _ahead(tasks, lambda load: threads.submit(run, load), _AHEAD * self._most)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in self._workers:
                worker.kill()
            raise
        finally:
            threads.shutdown()
            for worker in self._workers:
                worker.let_go()

    def _new(self) -> _Worker:
        worker = _Worker()
        self._workers.append(worker)
        return worker


def _ahead(
    tasks: Iterable[tuple[Task, Load]], submit: Callable[[Load], Future[FinishedStretch]], most: int
) -> Iterator[tuple[Task, FinishedStretch]]:
    pending: deque[tuple[Task, Future[FinishedStretch]]] = deque()
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

    def __init__(self) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._is_ready = False

    def __call__(self, settings: Any, load: Load) -> FinishedStretch:
        """Have one task done, by the same settings as all others; blocks until it is."""
        try:
            if not self._is_ready:
                self._send(settings)
                self._is_ready = True
            self._send(load)
            answer = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._process.wait()
            raise PolysemeError(
                f"A worker process ended before its work was done (exit code {self._process.returncode}); it may have "
                "run out of memory. Run the same command again to resume, with fewer workers if need be."
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return cast(FinishedStretch, answer)

    def kill(self) -> None:
        self._process.kill()

    def let_go(self) -> None:
        """Let it end: there are no more tasks."""
        with contextlib.suppress(OSError):
            cast(BinaryIO, self._process.stdin).close()

    def close(self) -> None:
        """Wait until it has ended."""
        self._process.wait()
        cast(BinaryIO, self._process.stdout).close()

    def _send(self, thing: Any) -> None:
        stdin = cast(BinaryIO, self._process.stdin)
        pickle.dump(thing, stdin, protocol=pickle.HIGHEST_PROTOCOL)
        stdin.flush()


def serve() -> None:
    """A worker process, as it sees itself: tasks in, results out, until there are no more."""
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
                except Exception as error:  # noqa: BLE001 - sent to the process that started it
                    answer = error
                pickle.dump(answer, results, protocol=pickle.HIGHEST_PROTOCOL)
                results.flush()

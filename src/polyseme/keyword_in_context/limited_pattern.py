"""A regular expression with a limit of time for each text.

Some patterns take time that doubles with every letter: `(a|aa)+$`. Python's `re` cannot be stopped from outside, so it
runs in a process of its own, which is stopped if a text takes too long.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from polyseme.errors import InputError, OptionError

SECONDS = 2.0
"""The limit for a text, and for a list of them until each is matched by itself."""
CHARACTERS_PER_SECOND = 100_000
"""Longer texts get more time."""
WORKER = Path(__file__).with_name("pattern_worker.py")

Spans = list[tuple[int, int]]


class LimitedPattern:
    """A pattern that is matched in a process of its own; a context manager that ends the process."""

    def __init__(self, source: str, *, match_case: bool = False, seconds: float = SECONDS) -> None:
        try:
            compiled = re.compile(source, 0 if match_case else re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            place = getattr(error, "pos", None)
            where = "" if place is None else f" at character {place}"
            reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
            raise OptionError(f"{source!r} is no regular expression: {reason}{where}.") from None
        self.source = source
        self.seconds = seconds
        self._flags = compiled.flags & ~re.UNICODE
        self._worker: subprocess.Popen[str] | None = None

    def __enter__(self) -> LimitedPattern:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def matches(self, texts: Sequence[str], places: Sequence[object]) -> list[Spans]:
        """The matches in each text that are not empty. Where one takes too long, an error names its place."""
        answer = self._ask(texts)
        if answer is None:
            answer = []
            for text, place in zip(texts, places, strict=True):
                alone = self._ask([text])
                if alone is None:
                    raise InputError(
                        f"The pattern {self.source!r} takes more than {self._limit([text]):.0f} seconds on {place}: it "
                        "tries too many ways to match. Write it without repetitions of repetitions, such as (a+)+ or "
                        "(a|aa)*."
                    )
                answer += alone
        return answer

    def _limit(self, texts: Sequence[str]) -> float:
        return self.seconds + sum(map(len, texts)) / CHARACTERS_PER_SECOND

    def _ask(self, texts: Sequence[str]) -> list[Spans] | None:
        """The worker's answer; None if it took too long, and was stopped."""
        worker = self._worker or self._start()
        timer = threading.Timer(self._limit(texts), worker.kill)
        timer.start()
        try:
            self._send(worker, list(texts))
            answer = cast(IO[str], worker.stdout).readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self._stop()
            return None
        return [[(start, end) for start, end in spans] for spans in json.loads(answer)]

    def _start(self) -> subprocess.Popen[str]:
        self._worker = subprocess.Popen(
            [sys.executable, "-I", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
        )
        self._send(self._worker, [self.source, self._flags])
        cast(IO[str], self._worker.stdout).readline()  # it is ready: the time that it takes to start does not count
        return self._worker

    @staticmethod
    def _send(worker: subprocess.Popen[str], content: object) -> None:
        stream = cast(IO[str], worker.stdin)
        stream.write(json.dumps(content) + "\n")
        stream.flush()

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None

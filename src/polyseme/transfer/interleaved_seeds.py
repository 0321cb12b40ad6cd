"""Runs that go side by side in one process: a step of each in turn, on a GPU each on a stream of its own.

A small model fills no GPU. Steps that were recorded (see `steps`) are launched without waiting, so while one run's step
is being computed the next run's is launched beside it. Every run has its own stream and its own state of chance, and
gives to the last bit what it gives alone.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

import torch

Result = TypeVar("Result")
Run: TypeAlias = Generator[None, None, Result]
"""Yields after each step; what it returns is what came of it."""


class Lane:
    """Where one run goes at a time: a stream of the device and a state of chance; as it is, on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
            self.stream.wait_stream(torch.cuda.current_stream(device))
            self.chance = _chance_of(device).clone_state()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """What is launched and drawn in here is of this lane."""
        if self.stream is None:
            yield
            return
        common = _chance_of(self.device)
        before = common.graphsafe_get_state()
        common.graphsafe_set_state(self.chance)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            common.graphsafe_set_state(before)

    def close(self) -> None:
        """Let what comes after wait for what was launched here."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


def take_turns(begin: Sequence[Callable[[], Run[Result]]], *, abreast: int, device: torch.device) -> list[Result]:
    """What comes of all runs, in their order, `abreast` of them at once; each is begun when its turn has come."""
    results: dict[int, Result] = {}
    waiting = deque(enumerate(begin))
    alone = abreast == 1 or len(begin) == 1
    lanes = [Lane(torch.device("cpu"))] if alone else [Lane(device) for _ in range(min(abreast, len(begin)))]
    going: list[tuple[Lane, int, Run[Result]]] = []
    free = list(lanes)
    while waiting or going:
        while waiting and free:
            number, start = waiting.popleft()
            going.append((free.pop(), number, start()))
        for one in list(going):
            lane, number, run = one
            try:
                with lane.taken():
                    next(run)
            except StopIteration as end:
                results[number] = end.value
                going.remove(one)
                free.append(lane)
    for lane in lanes:
        lane.close()
    return [results[number] for number in range(len(begin))]


def _chance_of(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index or 0]

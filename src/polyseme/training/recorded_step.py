"""Steps that are recorded on a GPU as CUDA graphs and replayed.

A small model leaves a GPU waiting for the host, which launches the many kernels of a step one by one. A recorded step
is launched as a whole. It reads and writes the same memory each time, so its inputs are copied to where they were when
it was recorded, and all that it changes (weights, the optimizer's state, rates) must be tensors that stay where they
are. Random numbers follow torch's generator, as in a plain step. The plain step is the specification.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from polyseme.errors import PolysemeWarning

SomeInputs = TypeVar("SomeInputs", bound="StepInputs")
Result = TypeVar("Result")

MOST_GRAPHS = 64
"""Shapes that are recorded at most; steps of others are plain."""
MOST_SHARING = 8
"""Processes that a GPU is taken to have at most, which may all be about to record."""


class StepInputs(Protocol):
    """What a step reads."""

    def to(self: SomeInputs, device: torch.device) -> SomeInputs:
        """The same on the device."""

    def tensors(self) -> Iterable[Tensor]:
        """All its tensors, in a fixed order."""


class Recorder(Protocol):
    """Makes a function without arguments repeatable."""

    device: torch.device

    def plain(self, run: Callable[[], Result]) -> Result:
        """Run it, so that what its kernels prepare is prepared."""

    def waits(self, run: Callable[[], Result]) -> tuple[Result, str | None]:
        """Run it, and tell where it waits for the device, which a recording cannot; None if it does not."""

    def record(self, run: Callable[[], Result]) -> Callable[[], Result]:
        """Record it, without running it; each call of what is returned runs it and fills the same tensors.

        Raises `RuntimeError` where it cannot be recorded.
        """

    def forget(self) -> None:
        """Nothing that was recorded is called any more."""


class RecordedStep(Generic[SomeInputs, Result]):
    """Takes steps: the first ones of a shape plainly, the next is recorded, all others are replayed.

    What a replay returns is overwritten by the next one: copy what is to be kept.
    """

    def __init__(
        self,
        take: Callable[[SomeInputs], Result],
        recorder: Recorder,
        *,
        n_plain: int = 1,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.take = take
        self.recorder = recorder
        self.n_plain = n_plain
        """Plain steps of each shape. The last of several is watched, since those before it may wait while they
        compile and prepare."""
        self.on_failure = on_failure
        """Undoes what half a step has left behind."""
        self.works = True
        self.seen: Counter[Hashable] = Counter()
        self.recorded: dict[Hashable, tuple[SomeInputs, Callable[[], Result]]] = {}

    def __call__(self, inputs: SomeInputs, kind: Hashable = None) -> Result:
        """Take a step; steps of another `kind` are other steps, though their inputs have the same shape."""
        shape = (kind, *((each.shape, each.dtype) for each in inputs.tensors()))
        if shape in self.recorded:
            held, replay = self.recorded[shape]
            fill(held, inputs)
            return replay()
        self.seen[shape] += 1
        inputs = inputs.to(self.recorder.device)
        if not self.works or self.seen[shape] < self.n_plain or len(self.recorded) == MOST_GRAPHS:
            return self.recorder.plain(lambda: self.take(inputs))
        if self.seen[shape] == self.n_plain:
            return self._last_plain(inputs)
        return self._record(inputs, shape)

    def forget(self) -> None:
        """Record all steps again, since weights or the optimizer's state are in other places now."""
        self.recorded.clear()
        self.seen.clear()
        self.recorder.forget()

    def _last_plain(self, inputs: SomeInputs) -> Result:
        if self.n_plain == 1:
            return self.recorder.plain(lambda: self.take(inputs))
        result, where = self.recorder.waits(lambda: self.take(inputs))
        if where is not None:
            self._give_up(f"the host waits for the device in {where}")
        return result

    def _record(self, inputs: SomeInputs, shape: Hashable) -> Result:
        try:
            replay = self.recorder.record(lambda: self.take(inputs))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
        else:
            self.recorded[shape] = (inputs, replay)
            return replay()
        if self.on_failure is not None:
            self.on_failure()
        self._give_up(reason)
        return self.recorder.plain(lambda: self.take(inputs))

    def _give_up(self, reason: str) -> None:
        self.works = False
        self.forget()
        warnings.warn(
            f"Steps of this model cannot be recorded ({reason}), and are run eagerly.", PolysemeWarning, stacklevel=2
        )


def fill(held: StepInputs, new: StepInputs) -> None:
    """Copy new inputs to where a recorded step reads them; from the host without waiting."""
    for mine, theirs in zip(held.tensors(), new.tensors(), strict=True):
        from_host = mine.is_cuda and not theirs.is_cuda
        mine.copy_(theirs.pin_memory() if from_host else theirs, non_blocking=True)


class CudaRecorder:
    """Records on one GPU. All that it records shares its working memory, since one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def plain(self, run: Callable[[], Result]) -> Result:
        """On the stream on which steps are recorded."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            result = run()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return result

    def waits(self, run: Callable[[], Result]) -> tuple[Result, str | None]:
        """By torch's own warnings, which name the line."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = self.plain(run)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        where = None
        for each in caught:
            if "synchronizing CUDA operation" in str(each.message):
                where = where or f"{Path(each.filename).name}, line {each.lineno}"
            elif "debug mode is a prototype" not in str(each.message):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return result, where

    def record(self, run: Callable[[], Result]) -> Callable[[], Result]:
        """As `torch.cuda.graph` does, but for its going through all objects of the process, of which there are many."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        self._make_room()
        collects = gc.isenabled()
        gc.disable()  # memory that is freed during recording may break it
        try:
            with torch.cuda.stream(self.stream):
                # Others are threads that make rows and pin memory meanwhile.
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    result = run()
                    graph.capture_end()
                except BaseException:
                    self._break_off(graph)
                    raise
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

        def replay() -> Result:
            graph.replay()
            return result

        return replay

    def forget(self) -> None:
        """What is recorded from here on gets memory of its own."""
        self.pool = torch.cuda.graph_pool_handle()

    def _make_room(self) -> None:
        """A recording has memory of its own; if it might not fit beside what plain steps have used, here and in other
        processes, that is freed.
        """
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        if MOST_SHARING * unused > torch.cuda.mem_get_info(self.device)[0]:
            torch.cuda.empty_cache()

    def _break_off(self, graph: torch.cuda.CUDAGraph) -> None:
        """Finish what torch leaves unfinished when a recording fails: the pool of memory, and the random generator,
        which may stay in its recording state forever, and is replaced by a copy.
        """
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        end, release = (getattr(torch._C, f"_cuda_{name}", None) for name in ("endAllocateToPool", "releasePool"))
        if end is not None and release is not None:
            with contextlib.suppress(RuntimeError):  # raised if it has been ended
                end(index, self.pool)
                release(index, self.pool)
        generator = torch.cuda.default_generators[index]
        like = torch.Generator(self.device)
        like.set_state(generator.get_state())
        generator.graphsafe_set_state(like)

"""What is trained, and one step of it.

A step is a function of the weights, the optimizer's state, the memory where streams carry one, and the step's number:
rows, corruption and dropout are drawn from seeds that the number decides. So a run that is resumed from a checkpoint
takes the same steps that it would have taken.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.errors import OptionError, PolysemeError, PolysemeWarning
from polyseme.outputs.output import Output
from polyseme.parts.kernel_trials import one_line
from polyseme.parts.memory_and_cache import Memory
from polyseme.training.checkpoint import named_under, optimizer_tensors, put_optimizer_tensors
from polyseme.training.device_group import Devices, no_sync, put_whole, reshard, whole
from polyseme.training.loader import StepRows
from polyseme.training.optimizers import (
    build_optimizer,
    can_be_recorded,
    prepare_for_recording,
    rates_below_outputs,
    set_rate,
)
from polyseme.training.recorded_step import CudaRecorder, RecordedStep, Recorder
from polyseme.training.training_settings import Plan, TrainingSettings
from polyseme.training.weight_average import TriggeredAverage, WeightAverage
from polyseme.types import Objective

WEIGHTS = "weights/"
OPTIMIZER = "optimizer/"
MEMORY = "memory/"
AVERAGE = "average/"
PLAIN_STEPS = 2
"""Steps of each shape that are taken plainly before one is recorded."""


class Trainer:
    """Networks and optimizer on their devices: takes steps, evaluates, and is saved and restored."""

    def __init__(self, objective: Objective, nets: nn.Module, settings: TrainingSettings, devices: Devices) -> None:
        self.objective = objective
        self.settings = settings
        self.devices = devices
        self.dtype = torch.float64 if settings.dtype == "fp64" else torch.float32
        """Of weights and losses."""
        self.inner = nets.to(devices.device, self.dtype)
        """The networks themselves."""
        self.nets = devices.wrap(self.inner, settings.parallel, compiled=settings.compile)
        """The networks as all processes run them together."""
        self.at = 0
        """The step that began last."""
        factors = dict(objective.rate_factors(self.inner))
        for parameter, factor in rates_below_outputs(self.inner, settings.layer_decay).items():
            factors[parameter] = factor * factors.get(parameter, 1.0)
        self.optimizer = build_optimizer(self.inner, settings.optimizer, device=devices.device, rates=factors)
        self.compiles = settings.compile
        """Whether parts run compiled; False once torch could not compile one."""
        self.in_place = objective.updates_in_place and settings.optimizer.is_plain_sgd
        """Whether the objective takes the steps of plain SGD itself."""
        self.carries = objective.needs.layout.carries_memory
        self.memory: Memory | None = None
        """What this process's streams have read, a row each; None before the first step, and where none is carried."""
        self.average: WeightAverage | None = None
        """Of the weights, where it is evaluated and saved instead of them."""
        if settings.optimizer.averages:
            self.average = TriggeredAverage(self.inner, settings.optimizer.patience)
        self.recorded: RecordedStep[Inputs, StepResult] | None = None
        """Steps as they are recorded and replayed; None where they are plain."""
        if settings.record and devices.device.type == "cuda" and self.can_record():
            self.record_steps(CudaRecorder(devices.device))

    def can_record(self) -> bool:
        """Whether a step is computed on this process's device alone, in shapes that follow from its rows'."""
        outputs = [module for module in self.inner.modules() if isinstance(module, Output)]
        fixed = all(each.fixed_shapes for each in outputs)
        return fixed and self.devices.world == 1 and can_be_recorded(self.optimizer)

    def record_steps(self, recorder: Recorder) -> None:
        """Take steps recorded from here on; the optimizer has taken none yet."""
        prepare_for_recording(self.optimizer, recorder.device)
        clear = partial(self.optimizer.zero_grad, set_to_none=True)
        self.recorded = RecordedStep(self._take, recorder, n_plain=PLAIN_STEPS, on_failure=clear)

    def forget_recorded(self) -> None:
        """Free what recorded steps hold; they are recorded again."""
        if self.recorded is not None:
            self.recorded.forget()

    @property
    def n_warmups(self) -> int:
        """Steps of a phase after which steps take their usual time; the first ones compile, prepare and record."""
        return 2 if self.recorded is None else PLAIN_STEPS + 1

    def step(self, rows: StepRows, plan: Plan) -> dict[str, Tensor]:
        """Take one step; the mean of each part of the loss, over all devices, without waiting for them.

        Where a part cannot be compiled, this step and all later ones run as written, which a warning says.
        """
        if not self.compiles:
            with torch.compiler.set_stance("force_eager") if self.settings.compile else contextlib.nullcontext():
                return self._step(rows, plan)
        try:
            return self._step(rows, plan)
        except (torch.OutOfMemoryError, PolysemeError):
            raise
        except Exception as error:  # compilers raise errors of every kind; those of the step itself come again
            reason = compiler_failure(error)
            if self.devices.world > 1:  # the others may have taken the step
                raise OptionError(
                    f"The networks cannot be compiled: {reason}. Several processes cannot go on without that by "
                    "themselves: add --no-compile."
                ) from error
            warnings.warn(
                f"The networks are trained without being compiled, more slowly: {reason}.",
                PolysemeWarning,
                stacklevel=2,
            )
        self.compiles = False
        self.forget_recorded()
        self.optimizer.zero_grad(set_to_none=True)
        return self.step(rows, plan)

    def _step(self, rows: StepRows, plan: Plan) -> dict[str, Tensor]:
        self.at = rows.step
        seed = _step_seed(self.settings.seed, rows.step, self.devices.rank)
        if self.devices.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # `torch.manual_seed` takes a millisecond where there is no GPU
        else:
            torch.manual_seed(seed)
        counts = {name: max(count, 1.0) for name, count in self.devices.sum_counts(rows.counts).items()}
        factor = self.settings.schedule.factor(rows.step, plan.n_steps)
        if self.settings.rate_by_length:
            phase = self.settings.phases[plan.at(rows.step)[0]]
            factor *= fmean(counts[name] for name in self.objective.prediction_parts) / phase.pieces
        set_rate(self.optimizer, factor)
        inputs = Inputs(rows.passes, rows.sizes, counts, self.memory)
        if self.recorded is None:
            taken = self._take(inputs)
        else:
            inputs.counts = {name: torch.tensor(count, dtype=self.dtype) for name, count in counts.items()}
            taken = self.recorded(inputs)
            taken = StepResult({name: each.clone() for name, each in taken.means.items()}, taken.memory)
        self.memory = taken.memory
        return taken.means

    def _take(self, inputs: Inputs) -> StepResult:
        """A step over what is on the device; all that it reads and changes are tensors."""
        self.nets.train()
        if self.in_place:
            return self._take_in_place(inputs)
        sums: dict[str, Tensor] = {}
        carried = StepMemory(inputs.memory, self._new_memory if self.carries else None)
        for number, batch in enumerate(inputs.passes):
            with no_sync(self.nets, last_pass=number == len(inputs.passes) - 1):
                with self.autocast():
                    loss = self.objective.loss(self.nets, batch, carried.before(inputs.sizes[number]))
                    parts = loss.parts
                carried.after(loss.memory)
                # DDP and FSDP divide gradients by the number of processes; the counts are of all of them already.
                self._total(parts, inputs.counts).mul(self.devices.world).backward()
            for name, part in parts.items():
                sums[name] = sums[name] + part.detach() if name in sums else part.detach()
        if self.settings.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.inner.parameters(), self.settings.max_grad_norm, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        sums = self.devices.sum_losses(sums)
        return StepResult({name: each / inputs.counts[name] for name, each in sums.items()}, carried.joined())

    def _take_in_place(self, inputs: Inputs) -> StepResult:
        """The same where the objective moves the networks, after each of some parts of a pass."""
        rate = self.optimizer.param_groups[0]["lr"]
        of_passes = [self.objective.update(self.inner, batch, rate) for batch in inputs.passes]
        sums = {name: torch.stack([each[name] for each in of_passes]).sum() for name in of_passes[0]}
        return StepResult({name: each / inputs.counts[name] for name, each in sums.items()}, None)

    @torch.no_grad()
    def evaluate(self, steps: Iterable[StepRows]) -> dict[str, float]:
        """The mean of each part of the loss over rows that are not trained on; runs as written, not compiled.

        Where streams carry a memory, it begins empty, and is carried from each of `steps` to the next. A process may
        have no rows; but with FSDP, which streams are not trained by, all must run equally many passes, and one that
        has too few fills up with idle ones: rows without `counts`, which count nothing.
        """
        sums: dict[str, Tensor] = {}
        counts: dict[str, float] = {}
        self.inner.eval()
        memory: Memory | None = None
        for rows in steps:
            idle = not rows.counts
            carried = StepMemory(memory, self._new_memory if self.carries else None)
            for name, count in rows.counts.items():
                counts[name] = counts.get(name, 0.0) + count
            for size, batch in zip(rows.sizes, rows.passes, strict=True):
                with self.autocast(), torch.compiler.set_stance("force_eager"):
                    loss = self.objective.loss(self.inner, batch, carried.before(size))
                if idle:
                    continue
                carried.after(loss.memory)
                for name, part in loss.parts.items():
                    part = part.to(self.devices.sum_dtype)
                    sums[name] = sums[name] + part if name in sums else part
            memory = carried.joined()
        reshard(self.inner)
        self.inner.train()
        names = self.devices.names_of_all(sums)
        nothing = torch.zeros((), dtype=self.devices.sum_dtype, device=self.devices.device)
        counts = self.devices.sum_counts({name: counts.get(name, 0.0) for name in names})
        sums = self.devices.sum_losses({name: sums.get(name, nothing) for name in names})
        return {name: float(each) / max(counts[name], 1.0) for name, each in sums.items()}

    def average_weights(self, decay: float) -> None:
        """Keep an exponential average of the weights from here on; `average.update` is called after each step."""
        self.average = WeightAverage(self.inner, decay)

    def averaged(self) -> AbstractContextManager[None]:
        """Have the averaged weights in the place of the weights, where there are any."""
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def total(self, means: Mapping[str, float]) -> float:
        """What is minimized, from the means of the parts."""
        return sum(self.objective.weights[name] * mean for name, mean in means.items())

    def prediction(self, means: Mapping[str, float]) -> float | None:
        """The loss of predicting pieces, from the means of the parts; None where no part is that."""
        parts = self.objective.prediction_parts
        return fmean(means[name] for name in parts) if parts and means.keys() >= {*parts} else None

    def autocast(self) -> AbstractContextManager[Any]:
        """Products in bf16 where the settings say so; weights and sums stay in fp32."""
        if self.settings.dtype != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.devices.device.type, dtype=torch.bfloat16)

    # --- saved and restored -------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Weights, their average, the optimizer's state and the memory of all streams by name, whole.

        All processes must call this.
        """
        named = {f"{WEIGHTS}{name}": whole(each.detach()) for name, each in self._named_tensors().items()}
        names = {parameter: name for name, parameter in self.inner.named_parameters()}
        state = optimizer_tensors(self.optimizer, names)
        memory = {} if self.memory is None else self.memory.tensors()
        average = {} if self.average is None else {**self.average.tensors(), **self.average.state()}
        return {
            **named,
            **{f"{AVERAGE}{name}": each for name, each in average.items()},
            **{f"{OPTIMIZER}{name}": whole(each) for name, each in state.items()},
            **{f"{MEMORY}{name}": self.devices.gather_rows(each).clone() for name, each in sorted(memory.items())},
        }

    def saved_weights(self) -> dict[str, Tensor]:
        """The weights that a model is saved with, their averages where there are any; all processes must call this."""
        weights = {name: whole(each.detach()) for name, each in self._named_tensors().items()}
        return weights if self.average is None else {**weights, **self.average.tensors()}

    @torch.no_grad()
    def put_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Fill the weights alone."""
        for name, mine in self._named_tensors().items():
            put_whole(mine, weights[name])

    @torch.no_grad()
    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave."""
        self.forget_recorded()  # the optimizer's state gets new tensors
        self.put_weights(named_under(WEIGHTS, tensors))
        names = {parameter: name for name, parameter in self.inner.named_parameters()}
        state = {name: each.to(self.devices.device) for name, each in named_under(OPTIMIZER, tensors).items()}
        put_optimizer_tensors(self.optimizer, names, state)
        if self.average is not None:
            self.average.put(named_under(AVERAGE, tensors))
        self._put_memory(named_under(MEMORY, tensors))

    def _put_memory(self, tensors: Mapping[str, Tensor]) -> None:
        self.memory = None
        if tensors:
            mine = self.devices.share_of(len(next(iter(tensors.values()))))
            here = {name: each[mine].to(self.devices.device, copy=True) for name, each in tensors.items()}
            self.memory = self._new_memory(mine.stop - mine.start).with_tensors(here)

    def _new_memory(self, n_rows: int) -> Memory:
        """What streams begin with."""
        return self.inner.new_memory(n_rows)  # type: ignore[operator, no-any-return]

    def finite(self) -> bool:
        """Whether every weight is finite."""
        return all(bool(torch.isfinite(whole(each)).all()) for each in self.inner.parameters())

    def _named_tensors(self) -> dict[str, Tensor]:
        return {**dict(self.inner.named_parameters()), **dict(self.inner.named_buffers())}

    def _total(self, parts: Mapping[str, Tensor], counts: Mapping[str, float | Tensor]) -> Tensor:
        weights, summed = self.objective.weights, self.settings.summed
        weighted = [weights[name] * (part if summed else part / counts[name]) for name, part in parts.items()]
        return torch.stack(weighted).sum()


@dataclass
class Inputs:
    """What a step reads."""

    passes: list[dict[str, Tensor]]
    sizes: Sequence[int]
    """Rows of each pass."""
    counts: Mapping[str, float | Tensor]
    """Targets of each part of the loss over all devices, 1 at least; where steps are recorded, tensors."""
    memory: Memory | None
    """What streams have read."""

    def to(self, device: torch.device) -> Inputs:
        """The same on the device, in memory that nothing else uses."""
        memory = self.memory
        if memory is not None:
            memory = memory.with_tensors({name: each.clone() for name, each in memory.tensors().items()})
        passes = [{name: each.to(device, non_blocking=True) for name, each in batch.items()} for batch in self.passes]
        counts = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in self.counts.items()}
        return Inputs(passes, self.sizes, counts, memory)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in a fixed order."""
        for batch in self.passes:
            yield from batch.values()
        yield from (each for each in self.counts.values() if isinstance(each, Tensor))
        if self.memory is not None:
            yield from self.memory.tensors().values()


@dataclass
class StepResult:
    """What a step gives."""

    means: dict[str, Tensor]
    """Of each part of the loss."""
    memory: Memory | None


@dataclass
class StepMemory:
    """The memory of a step's rows, handed to its passes and joined afterwards."""

    memory: Memory | None
    new: Callable[[int], Memory] | None
    """Makes a memory of nothing for so many rows; None where none is carried."""
    parts: list[Memory] = field(default_factory=list)
    n_rows: int = 0

    def before(self, n_rows: int) -> Memory | None:
        """What the next pass, of so many rows, begins with."""
        if self.new is None:
            return None
        if self.memory is None:
            return self.new(n_rows)
        held = self.memory.lengths
        first, self.n_rows = self.n_rows, self.n_rows + n_rows
        if n_rows == len(held):
            return self.memory
        return self.memory.select(torch.arange(first, self.n_rows, device=held.device))

    def after(self, memory: Memory | None) -> None:
        """What the pass ended with; in the precision that a memory begins with, also under autocast."""
        if memory is not None and self.new is not None:
            begun = self.new(0).tensors()
            tensors = {name: each.to(begun[name].dtype) for name, each in memory.tensors().items()}
            self.parts.append(memory.with_tensors(tensors))

    def joined(self) -> Memory | None:
        """The memory of all rows, in their order."""
        if len(self.parts) < 2:
            return self.parts[0] if self.parts else None
        names = self.parts[0].tensors()
        each = [part.tensors() for part in self.parts]
        return self.parts[0].with_tensors({name: torch.cat([one[name] for one in each]) for name in names})


def compiler_failure(error: Exception) -> str:
    """Why something was not compiled, in one line, without torch's advice for its developers."""
    return one_line(error).partition(" Set TORCHDYNAMO_VERBOSE")[0].rstrip(".: ")


def _step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for dropout that no other step or process has."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) % 2**63

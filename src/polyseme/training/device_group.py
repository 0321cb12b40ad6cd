"""One device or several, and what processes do together. Under `torchrun` each process has a device and a rank."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from polyseme.encoders.encoder import Encoder
from polyseme.errors import PolysemeWarning
from polyseme.outputs.output import Output

if TYPE_CHECKING:
    from polyseme.training.training_settings import Parallel


@dataclass(frozen=True)
class Devices:
    """This process's device, its rank, and how many there are."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    @property
    def sum_dtype(self) -> torch.dtype:
        """What sums over many batches are in: float64, but on MPS, which has none."""
        return torch.float32 if self.device.type == "mps" else torch.float64

    def wrap(self, nets: nn.Module, parallel: Parallel, *, compiled: bool) -> nn.Module:
        """The same module, compiled if requested, so that all processes take each step together.

        With FSDP the parameters of `nets` itself are spread over the processes from here on.
        """
        if self.world > 1 and parallel == "fsdp":
            _shard(nets, self.device)
        if compiled:
            compile_parts(nets)
        if self.world > 1 and parallel == "ddp":
            ids = [self.device.index] if self.device.type == "cuda" else None
            return DistributedDataParallel(nets, device_ids=ids, gradient_as_bucket_view=True)
        return nets

    def share_of(self, n_rows: int) -> slice:
        """Which of a step's rows are this process's; equally many each, but fewer or none in the last ones."""
        each = self.largest_share(n_rows)
        return slice(min(self.rank * each, n_rows), min((self.rank + 1) * each, n_rows))

    def largest_share(self, n_rows: int) -> int:
        """How many of a step's rows a process has at most."""
        return -(-n_rows // self.world)

    def sum_counts(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Counts, added up over all processes, which have the same names."""
        if self.world == 1:
            return dict(counts)
        names = sorted(counts)
        sums = torch.tensor([counts[name] for name in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(names, sums.tolist(), strict=True))

    def sum_losses(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sums of losses, added up over all processes, which have the same names."""
        if self.world == 1:
            return dict(losses)
        names = sorted(losses)
        if not names:
            return {}
        sums = torch.stack([losses[name].detach().double() for name in names])
        dist.all_reduce(sums)
        return dict(zip(names, sums.unbind(), strict=True))

    def names_of_all(self, names: Iterable[str]) -> list[str]:
        """The names that any process has, in an order that is the same for all; all must call this."""
        if self.world == 1:
            return list(names)
        gathered: list[list[str]] = [[] for _ in range(self.world)]
        dist.all_gather_object(gathered, sorted(names))
        return sorted({name for each in gathered for name in each})

    def gather_rows(self, tensor: Tensor) -> Tensor:
        """A tensor with the rows of all processes, which have equally many; all must call this."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def agree(self, value: Any) -> Any:
        """The value of the leading process, for all."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            dist.barrier()


def no_sync(nets: nn.Module, last_pass: bool) -> AbstractContextManager[Any]:
    """Gradients of all passes but a step's last stay where they are."""
    if isinstance(nets, DistributedDataParallel) and not last_pass:
        return nets.no_sync()
    if isinstance(nets, FSDPModule):
        nets.set_requires_gradient_sync(last_pass)
    return contextlib.nullcontext()


def is_sharded(nets: nn.Module) -> bool:
    """Whether FSDP has spread the parameters, so that no process can run the networks without the others."""
    return isinstance(nets, FSDPModule)


def reshard(nets: nn.Module) -> None:
    """Spread the root's parameters again, which FSDP leaves whole after a forward pass that no backward one follows.

    As long as they are whole they are other objects than those that the optimizer knows.
    """
    if isinstance(nets, FSDPModule):
        nets.reshard()


def compile_parts(nets: nn.Module) -> None:
    """Let torch compile what most of the time goes to: the layers of encoders, the losses of outputs, and what `nets`
    names.

    Layers of one kind are compiled once, which takes seconds where the whole network would take a minute, and what is
    made once per call (masks, angles of positions) is not computed again in every layer.
    """
    logging.getLogger("torch._inductor.codecache").addFilter(report_damaged_cache)
    # The compiler looks at the gradients of whatever a part reads, which torch then warns of.
    warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor that is not a leaf")
    frozen = (part for model in getattr(nets, "frozen_models", list)() for part in model.modules())
    for module in (*nets.modules(), *frozen):
        if isinstance(module, Encoder):
            for part in module.repeated_parts():
                part.compile(dynamic=False)
        elif isinstance(module, Output):
            module.loss = torch.compile(module.loss, dynamic=False)  # type: ignore[method-assign]
    for name in getattr(nets, "compiled_methods", ()):
        setattr(nets, name, torch.compile(getattr(nets, name), dynamic=False))


def report_damaged_cache(record: logging.LogRecord) -> bool:
    """Whether torch logs this by itself. A cache that it cannot read is reported once; torch then compiles again."""
    error = None if record.exc_info is None else record.exc_info[1]
    if error is not None:
        _warn_of_cache(type(error).__name__)
    return error is None


@functools.cache
def _warn_of_cache(fault: str) -> None:
    warnings.warn(
        f"The compiler's cache is damaged ({fault}): what cannot be read is compiled again.",
        PolysemeWarning,
        stacklevel=3,
    )


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts, which FSDP2 spreads over processes; all of them must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def put_whole(mine: Tensor, values: Tensor) -> None:
    """Fill a tensor, or this process's part of it where it is spread over several."""
    mine.copy_(spread_like(mine, values))


def spread_like(mine: Tensor, values: Tensor) -> Tensor:
    """A whole tensor, spread over processes as `mine` is."""
    if isinstance(mine, DTensor):
        return distribute_tensor(values.to(mine.device), mine.device_mesh, mine.placements)
    return values


@contextlib.contextmanager
def devices_for(device: str) -> Iterator[Devices]:
    """The device of this process; under `torchrun` the processes are joined for the time of this block.

    Nothing that was wrapped may outlive the block: networks that are torn down after the processes have separated may
    wait for each other forever.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Devices(torch.device(device))
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = torch.device(device).type == "cuda"
    mine = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))) if on_gpu else torch.device(device)
    if on_gpu:
        torch.cuda.set_device(mine)
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=mine if on_gpu else None)
    try:
        yield Devices(mine, rank, world)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _shard(nets: nn.Module, device: torch.device) -> None:
    """FSDP2: the layers of every stack by themselves, the rest together at the root."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in nets.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(nets, mesh=mesh)

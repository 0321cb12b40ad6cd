"""Several processes that run a module together, as `torchrun` starts them, but forked from one that has loaded torch.

Called as `torch.distributed.run` is: `python -m training.processes 2 module argument …`. Tests that are left out by
default (`slow`) start `torchrun` itself.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import torch._dynamo  # which every optimizer loads with its first step
import torch.distributed.fsdp
import torch.distributed.tensor

import polyseme.verbs.pretrain  # noqa: F401

TESTS = Path(__file__).parents[1]


def on_processes(n: int, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module on several processes; all must end well."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "training.processes", str(n), module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def child(rank: int, n: int, port: int, module: str, arguments: list[str]) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])


def main() -> None:
    """Start them, and end as the first that fails does."""
    n, module, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    importlib.import_module(module)  # and all that it needs, once
    port = free_port()
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=child, args=(rank, n, port, module, arguments)) for rank in range(n)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in started))


if __name__ == "__main__":
    main()

"""Several processes that run a module together, as `torchrun` starts them; tests that are `slow` start it itself."""

from __future__ import annotations

import os
import socket
import tempfile

from forked import Forked

MODULE = """
import runpy, sys
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def on_processes(n: int, module: str, *arguments: str) -> None:
    """Run a module on several processes joined by gloo; all must end well."""
    joined = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    with tempfile.TemporaryFile() as errors:
        started = []
        for rank in range(n):
            given = {name: str(value) for name, value in {**joined, "RANK": rank, "LOCAL_RANK": rank}.items()}
            started.append(Forked(MODULE, module, *arguments, stderr=errors.fileno(), env={**os.environ, **given}))
        codes = [process.wait() for process in started]
        errors.seek(0)
        assert codes == [0] * n, errors.read().decode()[-3000:]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])

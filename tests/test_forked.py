"""The processes that tests fork are as those that Python starts."""

from __future__ import annotations

import os
import signal
from subprocess import PIPE

from forked import Forked, run_forked


def test_arguments_streams_and_exit_codes() -> None:
    script = "import os, sys; print(*sys.argv[1:], os.environ['GREETING']); print('bad', file=sys.stderr); sys.exit(3)"
    done = run_forked(script, "a", "b c", env={**os.environ, "GREETING": "hello"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "a b c hello\n", "bad\n")
    assert run_forked("raise ValueError('no')").returncode == 1
    with Forked("import sys; print(sys.stdin.read().upper())", stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"dawn")
        process.stdin.close()
        assert process.stdout.read() == b"DAWN\n"
        assert process.wait() == 0


def test_signals_reach_them() -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 1)):
        with Forked(script, stdout=PIPE) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait() == code

"""`--ray`: the output of one process, by several workers of a cluster on this machine, of which some are killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import polyseme
from polyseme.files.unfinished_folder import unfinished_folder
from tiny_models import tiny_model
from training.processes import free_port
from transfer.small_tasks import BAD, GOOD, OTHERS, tag

pytestmark = pytest.mark.slow

WORKERS = 3
BLANKS = " " * 4000
"""Characters of a row without a piece, so that chunks are many and quickly done."""


@pytest.fixture(autouse=True, scope="module")
def _ray() -> None:
    pytest.importorskip("ray", reason="comes with the extra 'ray'")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 12 chunks in two files, with ids of their own, empty texts and nulls."""
    folder = tmp_path_factory.mktemp("in")
    draw = random.Random(0)
    for part in range(2):
        with (folder / f"part-{part}.jsonl").open("w") as file:
            for row in range(750):
                words = " ".join(draw.choices((*GOOD, *BAD, *OTHERS), k=draw.randrange(40)))
                text = "null" if row == 7 else f'"{words}{BLANKS}"'
                file.write(f'{{"text": {text}, "id": "{part}-{row}"}}\n')
    return folder


def start(*arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "polyseme", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    """What a command reported; it must end with this exit code."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err[-3000:]
    assert "Traceback" not in err
    assert "(raylet)" not in out
    return err


def workers_of(driver: int) -> list[int]:
    """The processes of the workers that a command has started, and no others."""
    parents, workers = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::ChunkWorker"):
                workers.append(int(folder.name))

    def is_ours(pid: int) -> bool:
        return pid == driver or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in workers if is_ours(pid)]


def wait_for_chunks(process: subprocess.Popen[str], output: Path, n_chunks: int) -> None:
    while len(list(unfinished_folder(output).glob("[0-9]*.json"))) < n_chunks:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def contents(path: Path) -> dict[str, bytes]:
    return (
        {path.name: path.read_bytes()} if path.is_file() else {each.name: each.read_bytes() for each in path.iterdir()}
    )


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    train = folder / "train.jsonl"
    draw = random.Random(1)
    items = [tag(draw) for _ in range(40)]
    train.write_text("".join(json.dumps({"words": item.words, "tags": item.gold}) + "\n" for item in items))
    polyseme.finetune(
        "tag", train=train, model=_tiny(folder), output=folder / "tags", epochs=1, frozen=True, device="cpu"
    )
    return folder / "tags"


def _tiny(folder: Path) -> Path:
    tiny_model("bert").save(folder / "model")
    return folder / "model"


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("embed", ["-o", "vectors.parquet"]),
        ("embed", ["-o", "vectors", "--shard-rows", "400"]),
        ("score", ["-o", "scores.parquet"]),
        ("predict", ["-o", "tags.jsonl"]),
    ],
    ids=["embed", "shards", "score", "predict"],
)
def test_a_worker_is_killed_and_the_output_is_that_of_one_process(
    verb: str, options: list[str], tiny: Path, tagger: Path, source: Path, tmp_path: Path
) -> None:
    outputs = []
    for folder in ("one", "several"):
        (tmp_path / folder).mkdir()
        outputs.append(tmp_path / folder / options[1])
    common = [
        verb,
        source,
        "--field",
        "text",
        "--id-field",
        "id",
        "-m",
        tagger if verb == "predict" else tiny,
        *options[2:],
    ]
    finished(start(*common, "-o", outputs[0]))
    process = start(*common, "-o", outputs[1], "--ray", f"local:{WORKERS}")
    wait_for_chunks(process, outputs[1], 1)
    killed = random.choice(workers_of(process.pid))
    os.kill(killed, signal.SIGKILL)
    report = finished(process)
    assert "2 texts are null and were read as empty" in report
    assert "has ended; others take its chunks" in report
    assert contents(outputs[0]) == contents(outputs[1])
    assert not unfinished_folder(outputs[1]).exists()


@pytest.mark.parametrize("resumed_by", [["--ray", "local:2"], []], ids=["ray", "one process"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to stop"])
def test_the_command_itself_is_stopped_and_resumed(
    number: signal.Signals, resumed_by: list[str], tiny: Path, source: Path, tmp_path: Path
) -> None:
    output, whole = tmp_path / "vectors.parquet", tmp_path / "whole.parquet"
    finished(start("embed", source, "--field", "text", "-m", tiny, "-o", whole))
    command = ["embed", source, "--field", "text", "-m", tiny, "-o", output]
    process = start(*command, "--ray", "local:2")
    wait_for_chunks(process, output, 2)
    workers = workers_of(process.pid)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), err
    if number == signal.SIGTERM:
        assert "the same command resumes it" in err
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in workers):
            break
        time.sleep(0.2)
    assert not output.exists()
    assert "Resumed: an earlier run had done" in finished(start(*command, *resumed_by))
    assert output.read_bytes() == whole.read_bytes()


# --- clusters that cannot do it ---------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Starts a cluster with a machine more, whose environment differs; its address."""
    ray = str(Path(sys.executable).with_name("ray"))
    started: list[subprocess.Popen[bytes]] = []
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of this cluster alone
    for name, value in token.items():
        monkeypatch.setenv(name, value)
    base = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

    def node(*options: str, env: dict[str, str]) -> None:
        more = ["--num-cpus=1", "--object-store-memory=100000000", "--block", *options]
        started.append(
            subprocess.Popen([ray, "start", *more], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def start_cluster(**changed: str) -> str:
        port = free_port()
        node("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={_short_folder()}", env=base)
        _wait_for(port)
        node(f"--address=127.0.0.1:{port}", env={**base, **changed})
        return f"127.0.0.1:{port}"

    yield start_cluster
    for process in reversed(started):
        process.terminate()
        process.wait(60)


def _short_folder() -> str:
    """Sockets are in it, and their paths must be short."""
    return tempfile.mkdtemp(prefix="r")


def _wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError("the cluster did not start")


def _wait_for_nodes(address: str, n_nodes: int) -> None:
    script = (
        "import ray, sys, time\n"
        "ray.init(sys.argv[1], log_to_driver=False)\n"
        "while sum(node['Alive'] for node in ray.nodes()) < int(sys.argv[2]): time.sleep(0.2)\n"
    )
    subprocess.run([sys.executable, "-c", script, address, str(n_nodes)], check=True, timeout=120, capture_output=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise ModuleNotFoundError(name='polyseme')", r"polyseme is not installed on .*, a machine of the cluster"),
        ("__version__ = '0.0.1'", r"has polyseme 0\.0\.1, and this process has"),
    ],
    ids=["without polyseme", "another version"],
)
def test_a_machine_with_another_polyseme(
    content: str, message: str, cluster: Callable[..., str], tiny: Path, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "polyseme"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(content)
    address = cluster(PYTHONPATH=str(other.parent))
    _wait_for_nodes(address, 2)
    output = tmp_path / "out" / "vectors.npz"
    report = finished(start("embed", source, "--field", "text", "-m", tiny, "-o", output, "--ray", address), code=2)
    assert re.search(message, report), report
    assert report.count("polyseme: ") == 1
    assert not output.parent.exists()


def test_a_machine_with_another_model(cluster: Callable[..., str], source: Path, tmp_path: Path) -> None:
    """The name of the model is the same everywhere, and what is there is not."""
    model = tiny_model("bert")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        model.save(tmp_path / name / "model")
        next(iter(model.bundle.encoder.parameters())).data += 1.0
    address = cluster()
    _wait_for_nodes(address, 2)
    output = tmp_path / "out" / "vectors.npz"
    process = subprocess.run(
        [sys.executable, "-c", OTHER_MODEL, str(tmp_path), str(source), str(output), address],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert process.returncode == 2, process.stderr
    assert re.search(r"The worker on .* would compute something else: the model's weights is", process.stderr)
    assert not output.parent.exists()


OTHER_MODEL = """
import shutil, sys
from pathlib import Path
from polyseme.cli import main
from polyseme.cluster import ray_workers

folder, source, output, address = sys.argv[1:]
shutil.copytree(Path(folder, "here", "model"), Path(folder, "model"))
check_nodes = ray_workers._check_nodes

def changed(ray):  # as if the machines of the cluster had another model under this name
    check_nodes(ray)
    shutil.rmtree(Path(folder, "model"))
    shutil.copytree(Path(folder, "there", "model"), Path(folder, "model"))

ray_workers._check_nodes = changed
sys.argv[1:] = ["embed", source, "--field", "text", "-m", str(Path(folder, "model")), "-o", output, "--ray", address]
main()
"""


def test_a_disk_that_is_full(tiny: Path, source: Path, tmp_path: Path) -> None:
    """Of the folder that machines share, or of one of them, where it is its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("a disk can only be mounted by root")
    try:
        output = disk / "vectors.parquet"
        command = ["embed", source, "--field", "text", "-m", tiny, "-o", output, "--ray", "local:2"]
        report = finished(start(*command), code=2)
        assert re.search(r"polyseme: On \S+: .*the disk is full", report), report
        assert not output.exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_no_cluster_on_this_machine(tiny: Path, source: Path, tmp_path: Path) -> None:
    command = ["embed", source, "--field", "text", "-m", tiny, "-o", tmp_path / "v.npz", "--ray", "auto"]
    report = finished(start(*command, env={"RAY_TMPDIR": str(tmp_path)}), code=2)
    assert "There is no cluster of Ray at auto" in report
    assert not (tmp_path / "v.npz").exists()

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
from collections.abc import Iterator
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
    return descendants(driver, b"ray::ChunkWorker")


def descendants(ancestor: int, name: bytes) -> list[int]:
    """The processes that one has started, with this in the beginning of their command lines."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if name in (folder / "cmdline").read_bytes().partition(b"\0")[0]:
                found.append(int(folder.name))

    def is_ours(pid: int) -> bool:
        return pid == ancestor or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in found if is_ours(pid)]


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

OWN_MOUNTS = ("unshare", "--mount", "--propagation=private")
"""A process whose mounted folders are its own, as those of another machine are."""


@pytest.fixture(scope="module")
def _own_mounts() -> None:
    made = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("folders can only be mounted by root")


class Cluster:
    """A cluster of two machines, each with one processor."""

    def __init__(self) -> None:
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

    def start(self, mounts: str = "", **changed: str) -> str:
        """Its address; the environment or the mounted folders of the second machine may differ."""
        port = free_port()
        self._node("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={_short_folder()}")
        _wait_for(port)
        self._node(f"--address=127.0.0.1:{port}", mounts=mounts, **changed)
        address = f"127.0.0.1:{port}"
        _wait_for_nodes(address, 2)
        return address

    def _node(self, *options: str, mounts: str = "", **changed: str) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        command = [ray, "start", "--num-cpus=1", "--object-store-memory=100000000", "--block", *options]
        if mounts:
            command = [*OWN_MOUNTS, "sh", "-ec", f'{mounts}; exec "$@"', "sh", *command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.nodes.append(subprocess.Popen(command, env={**self._env, **changed}, **quiet))

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.terminate()
            node.wait(60)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
        monkeypatch.setenv(name, value)  # of this cluster alone
    cluster = Cluster()
    yield cluster
    cluster.stop()


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
    ("file", "content", "message"),
    [
        (
            "polyseme/__init__.py",
            "raise ModuleNotFoundError(name='polyseme')",
            r"polyseme is not installed on .*, a machine of the cluster",
        ),
        ("polyseme/__init__.py", "__version__ = '0.0.1'", r"has polyseme 0\.0\.1, and this process has"),
        (
            "torch-1.2.3.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: torch\nVersion: 1.2.3\n",
            r"has torch 1\.2\.3, and this process has",
        ),
    ],
    ids=["without polyseme", "another polyseme", "another torch"],
)
def test_a_machine_with_other_packages(
    file: str, content: str, message: str, cluster: Cluster, tiny: Path, source: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other" / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    before = os.environ.get("PYTHONPATH", "")
    address = cluster.start(PYTHONPATH=os.pathsep.join(filter(None, [str(tmp_path / "other"), before])))
    output = tmp_path / "out" / "vectors.npz"
    report = finished(start("embed", source, "--field", "text", "-m", tiny, "-o", output, "--ray", address), code=2)
    assert re.search(message, report), report
    assert report.count("polyseme: ") == 1
    assert not output.parent.exists()


@pytest.mark.usefixtures("_own_mounts")
def test_a_machine_with_another_model(cluster: Cluster, source: Path, tmp_path: Path) -> None:
    """The name of the model is the same everywhere, and what is there is not."""
    model = tiny_model("bert")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        model.save(tmp_path / name / "model")
        next(iter(model.bundle.encoder.parameters())).data += 1.0
    address = cluster.start(f"mount --bind {tmp_path}/there {tmp_path}/here")
    output = tmp_path / "out" / "vectors.npz"
    command = ["embed", source, "--field", "text", "-m", tmp_path / "here" / "model", "-o", output, "--ray", address]
    report = finished(start(*command), code=2)
    assert re.search(r"The worker on .* would compute something else: the model's weights is", report), report
    assert report.count("polyseme: ") == 1
    assert not output.parent.exists()


@pytest.mark.usefixtures("_own_mounts")
@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ("mount -t tmpfs tmpfs {out}", r"On \S+: .* is not here, .*choose one that all machines share"),
        (  # the folder is that of the others, and what is written there goes to a disk that is full
            "mount -t tmpfs -o size=1m tmpfs {disk}; mkdir {disk}/upper {disk}/work; "
            "head -c 1m /dev/zero > {disk}/zeros || true; "
            "mount -t overlay overlay -o lowerdir={out},upperdir={disk}/upper,workdir={disk}/work {out}",
            r"On \S+: .*the disk is full",
        ),
    ],
    ids=["a folder of its own", "a full disk"],
)
def test_a_machine_that_cannot_store(
    mount: str, message: str, cluster: Cluster, tiny: Path, source: Path, tmp_path: Path
) -> None:
    """Chunks that other machines have stored are kept, and the command is resumed without that machine."""
    out, disk, whole = tmp_path / "out", tmp_path / "disk", tmp_path / "whole.parquet"
    out.mkdir()
    disk.mkdir()
    address = cluster.start(mount.format(out=out, disk=disk))
    command = ["embed", source, "--field", "text", "-m", tiny]
    output = out / "vectors.parquet"
    report = finished(start(*command, "-o", output, "--ray", address), code=2)
    assert re.search(message, report), report
    assert report.count("polyseme: ") == 1
    assert not output.exists()
    n_stored = len(list(unfinished_folder(output).glob("[0-9]*.json")))
    resumed = finished(start(*command, "-o", output))
    assert ("Resumed: an earlier run had done" in resumed) == (n_stored > 0)
    finished(start(*command, "-o", whole))
    assert output.read_bytes() == whole.read_bytes()


def test_a_machine_is_lost(cluster: Cluster, tiny: Path, source: Path, tmp_path: Path) -> None:
    """Its workers end with it; there is no room for others, and the machine that is left does the rest."""
    address = cluster.start()
    outputs = [tmp_path / "one.parquet", tmp_path / "several.parquet"]
    command = ["embed", source, "--field", "text", "-m", tiny]
    finished(start(*command, "-o", outputs[0]))
    process = start(*command, "-o", outputs[1], "--ray", address)
    wait_for_chunks(process, outputs[1], 1)
    lost = descendants(cluster.nodes[-1].pid, b"raylet/raylet")
    assert len(lost) == 1
    os.kill(lost[0], signal.SIGKILL)
    assert "has ended; others take its chunks" in finished(process)
    assert contents(outputs[0]).popitem()[1] == contents(outputs[1]).popitem()[1]


def test_no_cluster_on_this_machine(tiny: Path, source: Path, tmp_path: Path) -> None:
    command = ["embed", source, "--field", "text", "-m", tiny, "-o", tmp_path / "v.npz", "--ray", "auto"]
    report = finished(start(*command, env={"RAY_TMPDIR": str(tmp_path)}), code=2)
    assert "There is no cluster of Ray at auto" in report
    assert not (tmp_path / "v.npz").exists()

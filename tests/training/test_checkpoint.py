"""Checkpoints: whole or not there, checked, and the one before where the last is spoilt."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from forked import run_forked
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError, OutputError, PolysemeWarning
from polyseme.training.checkpoint import (
    ABOUT,
    optimizer_tensors,
    put_optimizer_tensors,
    read_latest,
    write_checkpoint,
)
from polyseme.training.device_group import put_whole, whole
from polyseme.training.optimizers import Optimizer, OptimizerKind, OptimizerSettings, Several, build_optimizer

KINDS: list[OptimizerKind] = ["adamw", "adamw-uncorrected", "adagrad", "sgd", "muon"]


def tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weights/a": torch.randn(64, 33, generator=generator),
        "weights/b": torch.randn(17, generator=generator).bfloat16(),
        "optimizer/a/step": torch.tensor(7.0),
        "optimizer/a/exp_avg": torch.randn(64, 33, generator=generator, dtype=torch.float64),
        "memory/lengths": torch.arange(5),
        "memory/turned": torch.randn(4, 6, generator=generator).t(),
        "memory/none": torch.zeros(0, 3),
        "memory/seen": torch.tensor([True, False]),
    }


def same(found: object, expected: dict[str, Tensor]) -> bool:
    assert isinstance(found, dict)
    return set(found) == set(expected) and all(
        found[name].dtype == each.dtype and torch.equal(found[name], each) for name, each in expected.items()
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- written and read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_size", [None, 10_000])
def test_what_is_written_comes_back_to_the_bit(tmp_path: Path, shard_size: int | None) -> None:
    about = {"seconds": 0.1 + 0.2, "log": [1, None, "ñ"], "nested": {"loss": float("inf")}}
    written = write_checkpoint(tmp_path / "checkpoints", 1000, tensors(), about, shard_size=shard_size)
    assert written == tmp_path / "checkpoints" / "step-00001000"
    assert (len(list(written.glob("*.safetensors"))) > 1) == (shard_size is not None)
    found = read_latest(tmp_path / "checkpoints")
    assert found is not None
    assert (found.step, found.record, found.path) == (1000, about, written)
    assert same(found.tensors, tensors())


@pytest.mark.parametrize("made", [True, False])
def test_where_none_was_written_there_is_none(tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "checkpoints" / "notes").mkdir(parents=True)
    assert read_latest(tmp_path / "checkpoints") is None


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_few_are_kept(tmp_path: Path, keep: int) -> None:
    for step in range(5):
        write_checkpoint(tmp_path, step, tensors(step), {}, keep=keep)
    assert names(tmp_path) == [f"step-{step:08d}" for step in range(5 - keep, 5)]
    found = read_latest(tmp_path)
    assert found is not None
    assert same(found.tensors, tensors(4))


def test_a_whole_checkpoint_of_the_same_step_stays(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 5, tensors(), {"first": True})
    write_checkpoint(tmp_path, 5, tensors(1), {"first": False})
    found = read_latest(tmp_path)
    assert found is not None
    assert found.record == {"first": True}
    assert names(tmp_path) == ["step-00000005"]


def test_going_back_drops_what_could_not_be_read(tmp_path: Path) -> None:
    for step in (1, 2, 4):
        write_checkpoint(tmp_path, step, tensors(step), {}, keep=3)
    cut(tmp_path / "step-00000004" / "model.safetensors")
    write_checkpoint(tmp_path, 3, tensors(3), {}, keep=2)
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


# --- spoilt ----------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def lose(path: Path) -> None:
    path.unlink()


def change_step(path: Path) -> None:
    about = json.loads(path.read_text(encoding="utf-8"))
    about["step"] = 17
    path.write_text(json.dumps(about), encoding="utf-8")


def write_a_list(path: Path) -> None:
    path.write_text("[1, 2]", encoding="utf-8")


SPOILERS = [
    pytest.param("model.safetensors", cut, "cut short", id="weights-cut"),
    pytest.param("model.safetensors", alter, "altered", id="weights-altered"),
    pytest.param("model.safetensors", lose, "No such file", id="weights-lost"),
    pytest.param(ABOUT, cut, "cut short", id="about-cut"),
    pytest.param(ABOUT, change_step, "altered", id="about-altered"),
    pytest.param(ABOUT, lose, "No such file", id="about-lost"),
    pytest.param(ABOUT, write_a_list, "damaged", id="about-other"),
]


@pytest.mark.parametrize(("name", "spoil", "reason"), SPOILERS)
def test_a_spoilt_checkpoint_is_left_out_and_named(
    tmp_path: Path, name: str, spoil: Callable[[Path], None], reason: str
) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, tensors(step), {})
    spoilt = tmp_path / "step-00000002" / name
    spoil(spoilt)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert same(found.tensors, tensors(1))
    [warning] = said
    assert warning.category is PolysemeWarning
    assert str(spoilt) in str(warning.message)
    assert reason in str(warning.message)
    assert "step 1" in str(warning.message)


def test_where_all_are_spoilt_that_is_refused(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, tensors(step), {})
        cut(tmp_path / f"step-{step:08d}" / "model.safetensors")
    with pytest.raises(ModelError, match=r"step-00000002.*step-00000001") as caught:
        read_latest(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_spoilt_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, tensors(1), {})
    cut(tmp_path / "step-00000001" / "model.safetensors")
    write_checkpoint(tmp_path, 1, tensors(2), {})
    found = read_latest(tmp_path)
    assert found is not None
    assert same(found.tensors, tensors(2))
    assert names(tmp_path) == ["step-00000001"]


# --- cut short -------------------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("shard_size", [None, 9_000])
def test_without_room_nothing_is_begun_and_nothing_lost(tmp_path: Path, shard_size: int | None) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, tensors(step), {})
    with files_of_at_most(10_000), pytest.raises(OutputError, match="step-00000003") as caught:
        write_checkpoint(tmp_path, 3, tensors(3), {}, keep=1, shard_size=shard_size)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    found = read_latest(tmp_path)
    assert found is not None
    assert same(found.tensors, tensors(2))


def test_a_full_disk_is_explained_and_older_checkpoints_stay(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a disk can only be mounted by root")
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    try:
        write_checkpoint(disk, 1, tensors(), {})
        with pytest.raises(OutputError, match="the disk is full"):
            write_checkpoint(disk, 2, {"large": torch.zeros(1 << 19)}, {}, keep=1)
        assert names(disk) == ["step-00000001"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_cannot_be_written_as_json_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_checkpoint(tmp_path, 1, tensors(), {"tensor": torch.zeros(3)})
    assert names(tmp_path) == []


KILLED_AT_EVERY_MOMENT = """
import os, shutil, signal, sys
from pathlib import Path
import torch
from polyseme.training.checkpoint import read_latest, write_checkpoint

torch.set_num_threads(1)
folder = Path(sys.argv[1])
WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def write(step):
    tensors = {f"weight{number}": torch.full((20, 50), float(step)) for number in range(8)}
    write_checkpoint(folder, step, tensors, {"step": step}, keep=2, shard_size=20_000)

def killed_at(moment):
    seen = 0
    def watch(event, arguments):
        nonlocal seen
        if event in WATCHED and ".step-" in str(arguments[0]) + str(arguments[1]) or event == "os.rename":
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
    child = os.fork()
    if child == 0:
        sys.addaudithook(watch)
        write(3)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0

found, moment, killed = [], 0, True
while killed:
    shutil.rmtree(folder, ignore_errors=True)
    write(1)
    write(2)
    killed = killed_at(moment)
    moment += 1
    latest = read_latest(folder)
    assert latest.record == {"step": latest.step}
    assert len(latest.tensors) == 8
    assert all((each == latest.step).all() for each in latest.tensors.values())
    found.append(latest.step)
    write(latest.step + 1)
    assert not list(folder.glob(".*")), list(folder.glob(".*"))
    assert len(list(folder.iterdir())) == 2
print(*found)
"""


def test_a_writer_killed_at_any_moment_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """Killed before each file it opens, renames or removes, one after another; what is there is then gone on with."""
    done = run_forked(KILLED_AT_EVERY_MOMENT, str(tmp_path / "checkpoints"))
    assert done.returncode == 0, done.stderr
    found = [int(step) for step in done.stdout.split()]
    assert found == sorted(found)
    assert found.count(2) > 10
    assert found.count(3) > 3


# --- an optimizer's state --------------------------------------------------------------------------------------------


def small() -> Bundle:
    torch.manual_seed(3)
    return new_bundle(FAMILIES["bert"], FAMILIES["bert"].tiny(), FAMILIES["bert"].outputs)


def train(nets: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in nets.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if isinstance(parameter, DTensor):
                drawn = distribute_tensor(drawn, parameter.device_mesh, parameter.placements)
            parameter.grad = drawn
        optimizer.step()


def names_in(nets: nn.Module) -> dict[nn.Parameter, str]:
    return {parameter: name for name, parameter in nets.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", [0, 3])
def test_a_run_goes_on_from_its_optimizers_state_to_the_bit(tmp_path: Path, kind: OptimizerKind, taken: int) -> None:
    settings = OptimizerSettings(kind=kind, initial_sum=0.1)
    through, first, second = small(), small(), small()
    train(through, build_optimizer(through, settings, device="cpu"), range(taken + 3))

    optimizer = build_optimizer(first, settings, device="cpu")
    train(first, optimizer, range(taken))
    write_checkpoint(tmp_path, taken, optimizer_tensors(optimizer, names_in(first)), {})
    second.load_state_dict(first.state_dict())
    other = build_optimizer(second, settings, device="cpu")
    train(second, other, range(90, 91))
    second.load_state_dict(first.state_dict())  # what the optimizer had is forgotten below
    found = read_latest(tmp_path)
    assert found is not None
    put_optimizer_tensors(other, names_in(second), found.tensors)
    assert same(optimizer_tensors(other, names_in(second)), optimizer_tensors(optimizer, names_in(first)))
    train(second, other, range(taken, taken + 3))
    assert all(torch.equal(a, b) for a, b in zip(second.parameters(), through.parameters(), strict=True))


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("kind", KINDS)
def test_what_fsdp_spreads_out_goes_on_without_it_and_back(kind: OptimizerKind) -> None:
    settings = OptimizerSettings(kind=kind)
    through, spread, alone, again = small(), small(), small(), small()
    fully_shard(spread)
    fully_shard(again)
    train(through, build_optimizer(through, settings, device="cpu"), range(3))
    optimizers = [build_optimizer(nets, settings, device="cpu") for nets in (spread, alone, again)]
    train(spread, optimizers[0], range(1))
    go_on(spread, optimizers[0], alone, optimizers[1])
    train(alone, optimizers[1], range(1, 2))
    go_on(alone, optimizers[1], again, optimizers[2])
    train(again, optimizers[2], range(2, 3))
    last = optimizers[2].optimizers if isinstance(optimizers[2], Several) else [optimizers[2]]
    states = [kept for each in last for kept in each.state.values()]
    spread_out = [kept[name] for kept in states for name in ("exp_avg", "momentum_buffer") if name in kept]
    assert all(isinstance(each, DTensor) for each in spread_out)
    assert all(torch.equal(whole(a.detach()), b) for a, b in zip(again.parameters(), through.parameters(), strict=True))


def go_on(before: nn.Module, optimizer: Optimizer, after: nn.Module, other: Optimizer) -> None:
    with torch.no_grad():
        for mine, given in zip(after.parameters(), before.parameters(), strict=True):
            put_whole(mine, whole(given.detach()))
    put_optimizer_tensors(other, names_in(after), optimizer_tensors(optimizer, names_in(before)))


def test_what_is_put_is_copied() -> None:
    nets = small()
    optimizer = build_optimizer(nets, OptimizerSettings(), device="cpu")
    train(nets, optimizer, range(1))
    given = {name: each.clone() for name, each in optimizer_tensors(optimizer, names_in(nets)).items()}
    before = {name: each.clone() for name, each in given.items()}
    put_optimizer_tensors(optimizer, names_in(nets), given)
    train(nets, optimizer, range(1, 2))
    assert same(given, before)


def test_state_of_another_model_is_refused() -> None:
    nets = small()
    optimizer = build_optimizer(nets, OptimizerSettings(), device="cpu")
    with pytest.raises(ModelError, match=r"not trained here: encoder\.other"):
        put_optimizer_tensors(optimizer, names_in(nets), {"encoder.other/exp_avg": torch.zeros(3)})
    with pytest.raises(ModelError, match=r"pieces\.weight/exp_avg is \(3,\)"):
        put_optimizer_tensors(optimizer, names_in(nets), {"encoder.embeddings.pieces.weight/exp_avg": torch.zeros(3)})

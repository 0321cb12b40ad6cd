"""What cannot be done is refused: one paragraph, exit code 2, and everything as it was."""

from __future__ import annotations

import gzip
import json
import lzma
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from cli.commands import Refuse, Run
from polyseme.files import chunks

GOOD = b"Dawn broke.\nThe vase broke.\n"
N_LONG = 60
LONG = (b"Dawn broke." + b" " * 10_000 + b"\n") * N_LONG
"""More than is looked at before the first line, and more than a chunk; few words."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "good.txt"
    path.write_bytes(GOOD)
    return path


# --- input -----------------------------------------------------------------------------------------------------------

INPUTS: dict[str, tuple[str, bytes, list[str]]] = {
    "empty": ("in.txt", b"", ["is empty"]),
    "blank": ("in.txt", b"  \n\n \t\n", ["nothing in it but blanks"]),
    "an image": ("in.txt", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", ["a PNG image"]),
    "a program": ("in", b"\x7fELF\x02\x01\x01\x00", ["a program"]),
    "UTF-16": ("in.txt", "Dawn broke.".encode("utf-16"), ["UTF-16", "iconv"]),
    "Latin-1": ("in.txt", b"Dawn broke.\nD\xe4mmerung\n", ["line 2", "byte 13", "0xE4", "not UTF-8"]),
    "cut UTF-8": ("in.txt", GOOD + b"na\xc3", ["line 3", "byte 30", "not UTF-8"]),
    "a NUL": ("in.txt", b"Dawn\nbro\0ke\n", ["NUL", "byte 8", "line 2"]),
    "a NUL far in": ("in.txt", LONG + b"a\0b\n", ["NUL", f"byte {len(LONG) + 1}", f"line {N_LONG + 1}"]),
    "Latin-1 far in": ("in.txt.gz", gzip.compress(LONG + b"\xe4\n"), [f"byte {len(LONG)}", f"line {N_LONG + 1}"]),
    "cut .gz": ("in.txt.gz", gzip.compress(LONG)[:-20], ["damaged or was cut short"]),
    "cut .xz": ("in.txt.xz", lzma.compress(LONG)[:-20], ["damaged or was cut short"]),
    "no .gz": ("in.txt.gz", GOOD, ["cannot be decompressed"]),
    "packed, but not called so": ("in.txt", gzip.compress(GOOD), ["gzip", ".gz"]),
    "another format": ("in.xml", b"<text>Dawn broke.</text>\n", [".xml"]),
}


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("kind", INPUTS)
def test_a_bad_input(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, suffix: str
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1 << 18)  # so that vectors are on the disk when the far ones come
    name, content, said = INPUTS[kind]
    source = tmp_path / name
    source.write_bytes(content)
    output = tmp_path / "out" / f"out{suffix}"
    output.parent.mkdir()
    ended = run("embed", source, "-m", tiny, "-o", output)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert str(source) in ended.err
    for words in said:
        assert words in ended.err
    kept = {path.name for path in output.parent.iterdir()}
    assert kept == ({f"out{suffix}.unfinished"} if "is kept in" in ended.err else set())
    assert ("is kept in" in ended.err) == (len(content) > 1 << 18 or kind in FAR_IN)


FAR_IN = {"a NUL far in", "Latin-1 far in", "cut .gz", "cut .xz"}
"""What is found out when a whole chunk is on the disk already, which is then kept."""


def test_an_input_that_is_not_there(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    message = refuse("embed", tmp_path / "nowhere.txt", "-m", tiny, "-o", tmp_path / "out.npz", folder=tmp_path)
    assert f"There is no file {tmp_path / 'nowhere.txt'}" in message


def test_an_empty_folder_as_input(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    message = refuse("embed", tmp_path / "texts", "-m", tiny, "-o", tmp_path / "out.npz", folder=tmp_path)
    assert str(tmp_path / "texts") in message
    assert "folder" in message


@pytest.mark.parametrize(("stdin", "said"), [(b"", "empty"), (b"a\nb\xff\n", "line 2"), (b"\x1f\x8b\x08", "gzip")])
def test_bad_standard_input(refuse: Refuse, tiny: Path, tmp_path: Path, stdin: bytes, said: str) -> None:
    message = refuse("embed", "-", "-m", tiny, "-o", tmp_path / "out.npz", folder=tmp_path, stdin=stdin)
    assert message.startswith("standard input")
    assert said in message


def test_a_text_without_a_mask_cannot_be_filled(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "Write [MASK]" in refuse("fill", "Dawn broke.", "-m", tiny, folder=tmp_path)


@pytest.mark.parametrize("verb", ["pieces", "fill", "next"])
def test_a_text_longer_than_a_window(refuse: Refuse, tiny: Path, tmp_path: Path, verb: str) -> None:
    text = "the [MASK] " * 40
    texts = [text, text] if verb == "next" else [text]
    assert "reads 40 at once" in refuse(verb, *texts, "-m", tiny, folder=tmp_path)


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--layer", "men:0:1", "Did you mean 'mean'?"),
        ("--layer", "conat:-2:-1", "Did you mean 'concat'?"),
        ("--layer", "top", "There is no layer 'top'"),
        ("--layer", "7", "layers 0 to 3"),
        ("--layer", "sum:2:1", "lower layer first"),
        ("--layer", "mix:last2:0.5", "1 weights"),
        ("--pool", "maen", "Did you mean 'mean'?"),
        ("--pool", "ends", "not two-way"),
        ("--dtype", "fp23", "Did you mean 'fp32'?"),
        ("--device", "gpu", "Did you mean 'cpu'?"),
        ("--device", "cuda:99", "'cuda:99' is not there"),
        ("--device", "meta", "'meta' cannot be used here"),
        ("--batch-pieces", "0", "at least 1"),
        ("--batch-pieces", "-5", "at least 1"),
        ("--batch-pieces", "many", "'--batch-pieces'"),
    ],
)
def test_a_bad_option(
    refuse: Refuse, tiny: Path, source: Path, tmp_path: Path, option: str, value: str, said: str
) -> None:
    message = refuse("embed", source, "-m", tiny, "-o", tmp_path / "out.npz", option, value, folder=tmp_path)
    assert said in message
    assert value.partition(":")[0] in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("verb", ["embed", "pieces", "fill"])
def test_a_gpu_where_there_is_none(refuse: Refuse, tiny: Path, source: Path, tmp_path: Path, verb: str) -> None:
    given: list[object] = [source, "-o", tmp_path / "out.npz"] if verb == "embed" else ["A [MASK]."]
    assert "'cuda' is not there" in refuse(verb, *given, "-m", tiny, "--device", "cuda", folder=tmp_path)


def test_other_numbers_that_cannot_be(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "at least 1" in refuse("fill", "A [MASK].", "-m", tiny, "--top", 0, folder=tmp_path)
    assert "at least 1" in refuse("convert", "-m", tiny, "-o", tmp_path / "out", "--shard-size", 0, folder=tmp_path)


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_seeds_that_not_every_generator_takes(refuse: Refuse, source: Path, tmp_path: Path, seed: int) -> None:
    line = ("concordance", "broke", "--in", source, "--sample", 1)
    assert "from 0 to 4294967295" in refuse(*line, "--seed", seed, folder=tmp_path)


def test_attentions_that_would_go_nowhere(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "Add -o" in refuse("pieces", "Dawn", "-m", tiny, "--attentions", folder=tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["embed"], "'INPUT...'"),
        (["embed", "a.txt"], "'-o' / '--output'"),
        (["pieces", "a b", "c.txt", "-o", "c.npz"], "(c.txt)"),
        (["--verbose"], "'--verbose'"),
        (["next", "Dawn broke."], "'SECOND'"),
    ],
)
def test_a_line_that_cannot_be_parsed(refuse: Refuse, tmp_path: Path, line: list[str], said: str) -> None:
    message = refuse(*line, folder=tmp_path)
    assert said in message
    assert message.endswith("--help")


def test_an_option_without_its_value(refuse: Refuse, tmp_path: Path) -> None:
    assert "'-o'" in refuse("embed", "a.txt", "-o", folder=tmp_path)


# --- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.npz", "out.parquet"])
def test_an_output_that_is_there_is_left_alone(
    refuse: Refuse, tiny: Path, source: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"precious")
    message = refuse("embed", source, "-m", tiny, "-o", tmp_path / name, folder=tmp_path)
    assert "is already there" in message
    assert "--force" in message


def test_other_outputs_that_are_there_are_left_alone(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_bytes(b"precious")
    (tmp_path / "out.npz").write_bytes(b"precious")
    assert "is already there" in refuse("convert", "-m", tiny, "-o", tmp_path / "out", folder=tmp_path)
    assert "is already there" in refuse("pieces", "a", "-m", tiny, "-o", tmp_path / "out.npz", folder=tmp_path)


def test_an_output_is_not_replaced_by_what_fails(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "out.npz").write_bytes(b"precious")
    (tmp_path / "in.txt").write_bytes(GOOD + b"\xff\n")
    refuse("embed", tmp_path / "in.txt", "-m", tiny, "-o", tmp_path / "out.npz", "--force", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.xlsx", "'.xlsx' is no format of vectors"),
        ("out.parqet", "Did you mean '.parquet'?"),
        ("out", "no ending"),
        ("good.txt/out.npz", "is not a folder"),
        ("folder", "is a folder"),
        ("device.npz", "a device or a pipe"),
    ],
)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_an_output_that_cannot_be(
    refuse: Refuse, tiny: Path, source: Path, tmp_path: Path, name: str, said: str, force: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "device.npz").symlink_to("/dev/null")
    message = refuse("embed", source, "-m", tiny, "-o", tmp_path / name, *force, folder=tmp_path)
    assert str(tmp_path / name) in message
    assert said in message


def test_the_input_as_output(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(GOOD)
    (tmp_path / "link.npz").symlink_to("in.npz")
    for output in (tmp_path / "in.npz", tmp_path / "link.npz"):
        message = refuse("embed", tmp_path / "in.npz", "-m", tiny, "-o", output, "--force", folder=tmp_path)
        assert "is the input itself" in message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 kilobytes where the system lets us make one, else a limit on the size of files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)]
    if shutil.which("mount") and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield disk
        subprocess.run(["umount", str(disk)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, hard))
    yield disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("embed", "out.parquet"),
        ("embed", "out.npz"),
        ("pieces", "out.npz"),
        ("convert", "out"),
    ],
)
def test_a_full_disk(refuse: Refuse, tiny: Path, small_disk: Path, verb: str, name: str) -> None:
    lines: dict[str, list[Any]] = {
        "embed": ["embed", "-", "--layer", "all"],
        "pieces": ["pieces", "the vase " * 7, "--attentions"],
        "convert": ["convert"],
    }
    message = refuse(*lines[verb], "-m", tiny, "-o", small_disk / name, folder=small_disk, stdin=GOOD * 60)
    assert "the disk is full" in message or "ulimit -f" in message
    assert str(small_disk / name) in message


# --- models ----------------------------------------------------------------------------------------------------------


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return edit


def truncate(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def only_unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def only_write(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def swap_two_pieces(folder: Path) -> None:
    """A tokenizer of the same size that means something else."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    pieces = tokenizer["model"]["vocab"]
    one, other = list(pieces)[-2:]
    pieces[one], pieces[other] = pieces[other], pieces[one]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def other_size(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    pieces = tokenizer["model"]["vocab"]
    pieces.update({f"more{number}": len(pieces) + number for number in range(50)})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


MODELS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "an empty folder": (empty, ["is no model", "config.json"]),
    "no weights": (only_unlink("model.safetensors"), ["no weights"]),
    "no tokenizer": (only_unlink("tokenizer.json"), ["no tokenizer"]),
    "truncated weights": (truncate, ["model.safetensors", "cut short or damaged"]),
    "weights that are none": (only_write("model.safetensors", b"version https://git-lfs"), ["model.safetensors"]),
    "empty weights": (only_write("model.safetensors", b""), ["model.safetensors"]),
    "wider than its weights": (edit_config(hidden_size=64), ["does not match its weights", "(99, 32)"]),
    "deeper than its weights": (edit_config(num_hidden_layers=4), ["layer.3"]),
    "shallower than its weights": (edit_config(num_hidden_layers=2), ["layer.2"]),
    "more pieces than rows": (edit_config(vocab_size=10_000), ["does not match its weights", "10000"]),
    "heads that do not divide": (edit_config(num_attention_heads=5), ["5"]),
    "an unknown family": (edit_config(model_type="gpt_neox"), ["'gpt_neox'", "bert"]),
    "a config that is no JSON": (only_write("config.json", b"{"), ["config.json", "JSON"]),
    "a tokenizer of another size": (other_size, ["of another model"]),
    "a tokenizer of another model": (swap_two_pieces, ["of another model"]),
    "a tokenizer that is none": (only_write("tokenizer.json", b"[]"), ["tokenizer.json"]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_bad_model(refuse: Refuse, tiny: Path, source: Path, tmp_path: Path, kind: str) -> None:
    spoil, said = MODELS[kind]
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    spoil(folder)
    message = refuse("embed", source, "-m", folder, "-o", tmp_path / "out.npz", folder=tmp_path)
    assert str(folder) in message
    for words in said:
        assert words.replace("99", str(_n_pieces(tiny))) in message
    assert refuse("show", "-m", folder, folder=tmp_path) == message


def _n_pieces(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


def test_a_model_that_is_not_there(refuse: Refuse, source: Path, tmp_path: Path) -> None:
    for verb in (["embed", source, "-o", tmp_path / "out.npz"], ["show"], ["convert", "-o", tmp_path / "out"]):
        assert f"'{tmp_path}/nowhere'" in refuse(*verb, "-m", tmp_path / "nowhere", folder=tmp_path)
        assert "is a file" in refuse(*verb, "-m", source, folder=tmp_path)


def test_a_model_without_the_output_that_a_verb_needs(refuse: Refuse, tmp_path: Path, tiny: Path) -> None:
    model = polyseme.load(tiny)
    model.bundle.outputs.clear()
    model.save(tmp_path / "bare")
    assert "no 'masked' output" in refuse("fill", "A [MASK].", "-m", tmp_path / "bare", folder=tmp_path)
    assert "no 'next' output" in refuse("next", "a", "b", "-m", tmp_path / "bare", folder=tmp_path)


# --- the machine -----------------------------------------------------------------------------------------------------


def error_of_a_capture() -> RuntimeError:
    """What the end of a CUDA graph's capture raises after memory has run out in it."""
    error = RuntimeError("operation failed due to a previous error during capture")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory.")
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("you can't allocate memory"),
        error_of_a_capture(),
    ],
    ids=["Python", "torch", "a CPU", "a capture"],
)
def test_too_little_memory(
    refuse: Refuse, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(polyseme, "embed", _raising(error))
    assert "--batch-pieces" in refuse("embed", source, "-o", tmp_path / "out.npz", folder=tmp_path)


def test_what_the_system_refuses(refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polyseme, "show", _raising(OSError(5, "Input/output error", "/the/disk")))
    assert refuse("show", folder=tmp_path) == "The system refused: Input/output error (/the/disk)."


def test_names_that_are_too_long(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    assert "300 characters is too long" in refuse("show", "-m", "x" * 300, folder=tmp_path)


def test_a_fault_of_polyseme_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polyseme, "show", _raising(RuntimeError("a fault")))
    with pytest.raises(RuntimeError, match="a fault"):
        run("show")


def _raising(error: Exception) -> Callable[..., None]:
    def function(*arguments: object, **options: object) -> None:
        raise error

    return function

"""An output is whole or it is not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from polyseme.errors import OutputError
from polyseme.files.atomic import check_output, explained, whole_file, whole_folder

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up root's rights for a while; without them, permissions hold anyway."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


class StoppedError(Exception):
    pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def stop_half_way(output: Path, error: type[BaseException] = StoppedError, *, force: bool = False) -> None:
    with whole_file(output, force=force) as made:
        made.write_text("half of")
        made.with_name("spool").write_text("more")
        raise error


def stop_folder_half_way(output: Path) -> None:
    with whole_folder(output, force=True) as made:
        (made / "new").touch()
        raise StoppedError


def test_a_file_appears_when_its_block_ends(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with whole_file(output) as made:
        made.write_text("all of it")
        assert not output.exists()
        assert made.parent.name.startswith(".out.txt.")
        assert str(os.getpid()) in made.parent.name
    assert output.read_text() == "all of it"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("error", [StoppedError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_of_a_block_that_fails(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        stop_half_way(tmp_path / "out.txt", error)
    assert names(tmp_path) == []


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old")
    with pytest.raises(StoppedError):
        stop_half_way(output, force=True)
    assert output.read_text() == "old"
    with whole_file(output, force=True) as made:
        made.write_text("new")
        assert output.read_text() == "old"
    assert output.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]


def test_an_output_that_another_process_made_meanwhile_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(OutputError, match="already there"), whole_file(output) as made:
        output.write_text("theirs" if made.write_text("ours") else "")
    assert output.read_text() == "theirs"
    output.unlink()
    with pytest.raises(OutputError, match="already there"), whole_folder(output):
        output.mkdir()
    assert names(tmp_path) == ["out"]


def test_a_folder_appears_when_its_block_ends(tmp_path: Path) -> None:
    output = tmp_path / "model"
    with whole_folder(output) as made:
        (made / "weights").mkdir()
        (made / "weights" / "part").write_bytes(b"1")
        assert not output.exists()
    assert (output / "weights" / "part").read_bytes() == b"1"
    assert names(tmp_path) == ["model"]


def test_an_old_folder_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    output = tmp_path / "model"
    output.mkdir()
    (output / "old").touch()
    with pytest.raises(StoppedError):
        stop_folder_half_way(output)
    assert names(output) == ["old"]
    with whole_folder(output, force=True) as made:
        (made / "new").touch()
        assert names(output) == ["old"]
    assert names(output) == ["new"]
    assert names(tmp_path) == ["model"]


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "model"
    output.mkdir()
    (output / "old").touch()
    rename = Path.rename

    def fail_for_the_new(source: Path, target: Path) -> Path:
        if source.name == "model" and source != output:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OutputError, match="busy"), whole_folder(output, force=True):
        pass
    assert names(output) == ["old"]
    assert names(tmp_path) == ["model"]


def test_an_output_that_exists_is_refused_without_force(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old")
    with pytest.raises(OutputError, match=r"out\.txt is already there.*--force"):
        check_output(output)
    check_output(output, force=True)
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(OutputError, match=r"model is already there.*--force"):
        check_output(folder, kind="folder")
    check_output(folder, kind="folder", force=True)


@pytest.mark.parametrize("force", [False, True])
def test_files_folders_and_devices_are_not_mistaken_for_one_another(tmp_path: Path, force: bool) -> None:
    with pytest.raises(OutputError, match="is a folder, and the output is a file"):
        check_output(tmp_path, force=force)
    with pytest.raises(OutputError, match="is a device or a pipe"):
        check_output("/dev/null", force=force)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file, and the output is a folder"):
        check_output(tmp_path / "file", force=force, kind="folder")


@pytest.mark.parametrize("precious", ["cwd", "home"])
def test_the_folder_one_is_in_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precious: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    if precious == "cwd":
        monkeypatch.chdir(inside)
    else:
        monkeypatch.setenv("HOME", str(inside))
    with pytest.raises(OutputError, match="never replaced"):
        check_output(tmp_path / "a", force=True, kind="folder")


def test_missing_folders_are_made_for_what_becomes_whole_alone(tmp_path: Path) -> None:
    output = tmp_path / "missing" / "too" / "out.txt"
    check_output(output)
    assert names(tmp_path) == []
    with pytest.raises(ZeroDivisionError), whole_file(output):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
    with whole_file(output) as made:
        made.write_text("whole")
    assert output.read_text() == "whole"
    (tmp_path / "file").touch()
    for below in ("out.txt", "missing/out.txt"):
        with pytest.raises(OutputError, match="file is not a folder"):
            check_output(tmp_path / "file" / below)


def test_a_folder_of_other_things_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    check_output(place, force=True, kind="folder", marks=["part-*"])
    (place / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match=r"mine is a folder of other things \(thesis.txt\), and is not replaced"):
        check_output(place, force=True, kind="folder", marks=["part-*"])
    (place / "part-00000.parquet").touch()
    check_output(place, force=True, kind="folder", marks=["part-*"])
    with pytest.raises(OutputError, match=r"mine has thesis.txt in it, which this command has not written"):
        check_output(place, force=True, kind="folder", is_part=lambda path: path.suffix == ".parquet")
    (place / "thesis.txt").unlink()
    check_output(place, force=True, kind="folder", is_part=lambda path: path.suffix == ".parquet")


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    with as_nobody(), pytest.raises(OutputError, match=r"may not be written to|Permission denied"):
        check_output(closed / "out.txt")


def test_what_the_system_refuses_later_is_explained(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with as_nobody(), pytest.raises(OutputError, match="cannot be written: Permission denied"), explained("out.txt"):
        (tmp_path / "out.txt").touch()


@pytest.mark.parametrize("name", ["n" * 300, "nul\0inside"])
def test_a_name_that_no_file_can_have_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        check_output(f"{tmp_path}/{name}")


def test_the_longest_name_works(tmp_path: Path) -> None:
    name = "ü" * 127
    with whole_file(tmp_path / name) as made:
        made.touch()
    assert names(tmp_path) == [name]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "real")
    with whole_file(tmp_path / "link") as made:
        made.write_text("here")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_text() == "here"


def test_errors_of_others_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "out.txt"):
        (tmp_path / "the user's other file").read_text()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "quota is used up"), (errno.EFBIG, "ulimit")],
)
def test_no_room_is_said_in_words(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(OutputError, match=words) as caught, whole_file(tmp_path / "out.txt"):
        raise OSError(number, os.strerror(number))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert names(tmp_path) == []

"""The folder in which an output grows: when it goes, when it stays, and what a kill at any moment leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from every_moment import every_moment
from polyseme.errors import OutputError
from polyseme.files.atomic import Kind, check_output, whole_file, whole_folder
from polyseme.files.unfinished_folder import clear_up, unfinished_work, whole_output

SETTINGS = {"seed": 1}


def write(output: Path, content: str, *, kind: Kind, force: bool) -> None:
    """What verbs do: two parts, each kept as it is finished, and the output made of them."""
    clear_up(output)
    check_output(output, force=force, kind=kind)
    with unfinished_work(output, SETTINGS, noun="model", force=force) as folder:
        for part in ("first", "second"):
            if not (folder / part).exists():
                with whole_folder(folder / part) as new:
                    (new / "text").write_text(content)
        with whole_output(folder, output, kind=kind, force=force) as path:
            whole = "".join((folder / part / "text").read_text() for part in ("first", "second"))
            if kind == "file":
                with whole_file(path) as new:
                    new.write_text(whole)
            else:
                with whole_folder(path) as new:
                    (new / "text").write_text(whole)


def is_refused_as_there(output: Path, kind: Kind) -> bool:
    """Whether the same command is refused, since its output is there; otherwise it has written it."""
    try:
        write(output, "new", kind=kind, force=False)
    except OutputError as error:
        return "already there" in str(error)
    return False


def read(output: Path, kind: Kind) -> str:
    return (output if kind == "file" else output / "text").read_text()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_kill_at_any_moment_leaves_nothing_for_good(tmp_path: Path, kind: Kind, old: bool) -> None:
    place = tmp_path / "place"
    output = place / "model.bin"
    place.mkdir()
    if old:
        write(output, "old", kind=kind, force=False)
    n_moments, n_finished = 0, 0
    for _ in every_moment(place, lambda: write(output, "new", kind=kind, force=old)):
        n_moments += 1
        assert not output.exists() or read(output, kind) in ("oldold", "newnew"), "whole at every moment"
        if is_refused_as_there(output, kind):
            n_finished += 1
            if read(output, kind) == "oldold":
                write(output, "new", kind=kind, force=True)
        assert [each.name for each in place.iterdir()] == [output.name]
        assert read(output, kind) == "newnew"
    assert n_moments > 20
    assert 0 < n_finished < n_moments or old


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_old_output_comes_back_if_the_new_one_never_came(tmp_path: Path, kind: Kind) -> None:
    place = tmp_path / "place"
    output = place / "model.bin"
    place.mkdir()
    write(output, "old", kind=kind, force=False)
    contents = []
    for _ in every_moment(place, lambda: write(output, "new", kind=kind, force=True)):
        clear_up(output)
        contents.append(read(output, kind))
    assert contents == sorted(contents, reverse=True), "the old one, and from some moment on the new one"
    assert set(contents) == {"oldold", "newnew"}


def test_work_that_was_interrupted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "model"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt) as stop:
        interrupt(output, at="work")
    assert stop.value.__notes__ == ["Finished work is kept in model.unfinished: the same command resumes it."]
    clear_up(output)
    assert (tmp_path / "model.unfinished" / "seed0").is_dir()


def test_who_stops_work_whose_output_is_in_place_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt) as stop:
        interrupt(output, at="end")
    assert not hasattr(stop.value, "__notes__")
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def interrupt(output: Path, *, at: str) -> None:
    with unfinished_work(output, {}, noun="model", force=False) as folder:
        (folder / "seed0").mkdir()
        if at == "work":
            raise KeyboardInterrupt
        with whole_output(folder, output, kind="folder", force=False) as path:
            path.mkdir()
        raise KeyboardInterrupt


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    """Whatever it is called, and whatever note is in it."""
    folder = tmp_path / "model.unfinished"
    folder.mkdir()
    (folder / "finishing").write_text("nothing")
    (folder / "mine").write_text("mine")
    clear_up(tmp_path / "model")
    with contextlib.suppress(OutputError), unfinished_work(tmp_path / "model", {}, noun="model", force=True):
        pytest.fail("it is not ours")
    assert (folder / "mine").read_text() == "mine"

"""What killed processes left is removed by the next that writes the same output, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.errors import OutputError
from polyseme.files import workshops
from polyseme.files.atomic import check_output, whole_file, whole_folder
from polyseme.files.workshops import only_process

LEFT = ".out.txt.4711-0123abcd.part"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leave(folder: Path, name: str = LEFT) -> Path:
    """What a process that is killed leaves."""
    (folder / name).mkdir(parents=True)
    (folder / name / "out.txt").write_text("half of")
    return folder / name


def test_the_next_that_writes_the_output_removes_it(tmp_path: Path) -> None:
    leave(tmp_path)
    with whole_file(tmp_path / "out.txt") as path:
        path.write_text("all of it")
    assert names(tmp_path) == ["out.txt"]
    leave(tmp_path)
    with pytest.raises(OutputError, match="already there"):
        check_output(tmp_path / "out.txt")
    assert names(tmp_path) == ["out.txt"]


def test_what_is_of_other_outputs_or_of_others_stays(tmp_path: Path) -> None:
    long = "a" * 50
    foreign = [
        *(".out.txt.part", ".out.txt.4711-0123abcd.part.bak", ".out.txt.4711-0123ABCD.part"),
        *(".out.csv.4711-0123abcd.part", ".out.txt.more.4711-0123abcd.part", "out.txt.4711-0123abcd.part"),
        f".{long[:40]}.4711-0123abcd.part",
    ]
    for name in foreign:
        leave(tmp_path, name)
    (tmp_path / ".out.txt.1-0123abcd.part").write_text("a file")
    (tmp_path / ".out.txt.2-0123abcd.part").symlink_to(tmp_path / foreign[0])
    before = names(tmp_path)
    for name in ("out.txt", f"{long}1"):
        check_output(tmp_path / name)
    assert names(tmp_path) == before
    assert (tmp_path / foreign[0] / "out.txt").read_text() == "half of"


def test_outputs_with_long_names_that_begin_alike_do_not_meet(tmp_path: Path) -> None:
    one, other = (tmp_path / ("a" * 60 + end) for end in "bc")
    with whole_file(one) as first, whole_file(other) as second:
        check_names = names(tmp_path)
        first.write_text("1")
        second.write_text("2")
    assert len({name.split(".")[1] for name in check_names}) == 2
    assert (one.read_text(), other.read_text()) == ("1", "2")


def test_what_is_being_written_is_left_and_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with whole_file(output) as path:
        path.write_text("all of it")
        for force in (False, True):
            with pytest.raises(OutputError, match="Another process is at work on this output"):
                check_output(output, force=force)
        with whole_file(output) as other:  # which writes what all may write, such as a cache
            other.write_text("the same")
        output.unlink()
        assert path.read_text() == "all of it"
    assert output.read_text() == "all of it"
    assert names(tmp_path) == ["out.txt"]


def test_killed_between_the_old_output_and_the_new_the_old_one_comes_back(tmp_path: Path) -> None:
    workshop = tmp_path / ".model.4711-0123abcd.part"
    (workshop / "model").mkdir(parents=True)
    (workshop / "replaced").mkdir()
    (workshop / "replaced" / "weights").write_text("old")
    with pytest.raises(OutputError, match="already there"), whole_folder(tmp_path / "model"):
        pass
    assert (tmp_path / "model" / "weights").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_workshop_that_was_taken_for_a_leftover_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = workshops._locked, []

    def taken_once(folder: Path, **options: bool) -> int | None:
        if not taken:
            taken.append(folder)
            folder.rmdir()
        return lock(folder, **options)

    monkeypatch.setattr(workshops, "_locked", taken_once)
    with whole_file(tmp_path / "out.txt") as path:
        path.write_text("all of it")
    assert (tmp_path / "out.txt").read_text() == "all of it"
    assert len(taken) == 1


def test_without_locks_on_folders_nothing_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(9, "bad file descriptor")  # what some network drives answer

    leave(tmp_path)
    monkeypatch.setattr(workshops.fcntl, "flock", refuse)
    with whole_file(tmp_path / "out.txt") as path:
        path.write_text("all of it")
    assert names(tmp_path) == [LEFT, "out.txt"]


@pytest.mark.parametrize("where", ["_locked", "_remove"])
def test_a_signal_while_it_is_made_or_removed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Signals raise wherever Python is."""
    name, module = ("rmtree", workshops.shutil) if where == "_remove" else ("_locked", workshops)
    real, raised = getattr(module, name), []

    def interrupted(*given: object, **named: object) -> object:
        if not raised:
            raised.append(1)
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "out.txt") as path:
        path.write_text("all of it")
    assert set(names(tmp_path)) <= {"out.txt"}
    assert raised


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with only_process(tmp_path), pytest.raises(OutputError, match="Another process"), only_process(tmp_path / "link"):
        pass
    with only_process(tmp_path):
        pass

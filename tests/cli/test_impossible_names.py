"""Names that can be none of an output or a model, and what is said of outputs when a command is stopped or refused."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import Refuse, Run
from polyseme.cli import signals
from polyseme.errors import OutputError, add_note
from polyseme.files import atomic
from polyseme.recipes.pretraining_request import OBJECTIVES


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("Dawn broke.\n")
    (tmp_path / "file").write_text("x")
    return tmp_path


@pytest.mark.parametrize("name", ["/", ".", "..", "", "file/x.npz", "/dev/null", "/proc/x", f"{'a' * 300}.npz"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_outputs_that_cannot_be(refuse: Refuse, tiny: Path, texts: Path, name: str, force: tuple[str, ...]) -> None:
    message = refuse("embed", "t.txt", "-m", tiny, "-o", name, *force, folder=texts)
    expected = "output must be the name" if name == "" else "too long" if len(name) > 255 else name
    assert expected in message
    refuse("convert", "-m", tiny, "-o", name, *force, folder=texts)


@pytest.mark.parametrize("verb", [("show",), ("fill", "a [MASK]"), ("embed", "t.txt", "-o", "v.npz"), ("pieces", "a")])
def test_an_empty_name_of_a_model(refuse: Refuse, texts: Path, verb: tuple[str, ...]) -> None:
    assert "model must be the name of a file or folder, and is empty" in refuse(*verb, "-m", "", folder=texts)


def test_a_name_with_a_line_end_is_shown_on_one_line(run: Run, tiny: Path, texts: Path) -> None:
    ended = run("embed", "t.txt", "-m", tiny, "-o", "a\nb.npz")
    assert ended.code == 0
    assert ended.err.startswith("a\\nb.npz: 1 text")
    assert ended.err.count("\n") == 1


def test_a_full_disk_does_not_contradict_what_is_kept(tmp_path: Path) -> None:
    def write() -> None:
        with atomic.whole_file(tmp_path / "out") as path, Path("/dev/full").open("w") as file:
            path.write_text("half")
            file.write("x")

    with pytest.raises(OutputError) as refused:
        write()
    assert "the disk is full. There is nothing unfinished under its name. Make room" in str(refused.value)
    assert not list(tmp_path.iterdir())


def stopped(command: Callable[[], object]) -> int:
    """The exit code of a command; signals are handled as before when it has ended."""
    kept = {each: signal.getsignal(each) for each in signals._STOPS}
    try:
        return signals.exit_code(command)
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("named", [["-o", "{}"], ["--output={}"], ["-o{}"], ["-o", "./{}"]], ids=str)
@pytest.mark.parametrize("grows_in_place", [False, True])
def test_who_is_stopped_after_the_output_is_in_place_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: list[str],
    grows_in_place: bool,
) -> None:
    def command() -> None:
        if grows_in_place:
            Path("out").mkdir()
            atomic.note_finished("out")
        else:
            with atomic.whole_file("out") as path:
                path.write_text("whole")
        try:
            signal.raise_signal(signal.SIGTERM)
        except signals.StopSignal as stop:
            add_note(stop, "The same command resumes it.")
            raise

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["polyseme", "embed", *(each.format("out") for each in named)])
    assert stopped(command) == 143
    assert (
        capsys.readouterr().err
        == "polyseme: told to stop (SIGTERM); out had been finished, so that nothing is left to do.\n"
    )


def test_who_is_stopped_before_the_output_has_its_name_is_not_told_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever was put in place before, by others or for others."""
    output = tmp_path / "out"
    output.write_text("old")

    def command() -> None:
        with atomic.whole_file(tmp_path / "another") as path:
            path.write_text("whole")
        with atomic.whole_file(output, force=True) as path:
            path.write_text("new")
            with monkeypatch.context() as patch:
                patch.setattr(Path, "replace", lambda *_: signal.raise_signal(signal.SIGTERM))
                atomic.put_in_place(path, output, force=True)

    monkeypatch.setattr(sys, "argv", ["polyseme", "embed", "-o", str(output)])
    assert stopped(command) == 143
    assert capsys.readouterr().err == "polyseme: told to stop (SIGTERM); nothing was left half-written.\n"
    assert output.read_text() == "old"


def test_under_torchrun_the_first_process_refuses_first(
    refuse: Refuse, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(signals.time, "sleep", waited.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    for rank, expected in (("0", 0), ("1", 1)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        refuse("show", "-m", "none", folder=texts)
        assert len(waited) == expected


def test_what_a_recipe_chose_is_not_held_against_the_user() -> None:
    replaced = OBJECTIVES["replaced"]
    assert set(replaced.replaced_by({"sharing": "all"})) == {"generator_share", "generator_depth"}
    assert not replaced.replaced_by({"sharing": "none"})
    assert not OBJECTIVES["masked"].replaced_by({"sharing": "all"})

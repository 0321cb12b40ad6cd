"""Nothing that a terminal would obey is printed, whatever texts, names and labels have in them."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run
from cli.test_terminal import Terminal
from polyseme.cli import printing, signals, terminal
from polyseme.errors import InputError, PolysemeWarning
from polyseme.printable import visible
from polyseme.result_tables import Table

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eexe\u2066\x7f"
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SOURCE = Path(polyseme.__file__).parent
PRINTING = {"cli/printing.py", "keyword_in_context/pattern_worker.py", "verbs/sweep_run.py"}
"""The one place, and processes whose streams are a pipe to the one that started them, or a log."""
PRINTERS = {"echo", "secho", "style", "print", "Console", "print_exc", "print_exception"}
STREAMS = re.compile(r"(sys\.)?(__)?std(out|err)(__)?(\.buffer)?\.write(lines)?")
MAY_PRINT = re.compile(rf"\b({'|'.join(PRINTERS)})\(|{STREAMS.pattern}")


def test_everything_is_printed_in_one_place() -> None:
    beside = [
        f"{name}:{call.lineno}"
        for name, call in _calls()
        if _called(call) in PRINTERS or STREAMS.fullmatch(ast.unparse(call.func))
    ]
    assert not beside, "cli/printing.py prints: print_text, print_data, print_json, progress_display"


def _calls() -> Iterator[tuple[str, ast.Call]]:
    """Calls in all files that may print."""
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        if name not in PRINTING and MAY_PRINT.search(text):
            yield from ((name, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / f"{HOSTILE}.txt".replace("/", "")
    path.write_text(f"Dawn broke {HOSTILE} here.\nA vase{HOSTILE} broke.\nWe broke {HOSTILE}.\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "ask",
    [
        ("similar", "We [broke] even.", "--in"),
        ("senses", "broke", "--in"),
        ("concordance", "broke", "--in"),
        ("compare", "broke", "--in", None, "--in"),
        ("uses", "broke", "--in"),
    ],
)
def test_texts_and_file_names_are_shown_and_not_obeyed(
    run: Run, tiny: Path, hostile: Path, ask: tuple[object, ...]
) -> None:
    model = () if ask[0] == "concordance" else ("-m", tiny)
    ended = run(*(hostile if each is None else each for each in ask), hostile, *model)
    assert not OBEYED.search(ended.out + ended.err)
    assert "\\x1b" in ended.out + ended.err


def test_pieces_are_shown_and_not_obeyed(run: Run, tiny: Path) -> None:
    ended = run("pieces", f"a {HOSTILE}\nb", "-m", tiny)
    assert ended.code == 0
    assert not OBEYED.search(ended.out)


def test_names_in_errors_are_shown_and_not_obeyed(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"a{HOSTILE},b{HOSTILE}\nx,y\n", encoding="utf-8")
    out = ("-o", tmp_path / "v.npz", "-m", tiny)
    for message in (
        refuse("embed", table, *out, folder=tmp_path),
        refuse("embed", table, "--field", HOSTILE, *out, folder=tmp_path),
        refuse("embed", f"no{HOSTILE}such.txt", *out, folder=tmp_path),
        refuse("embed", table, f"--{HOSTILE}", *out, folder=tmp_path),
        refuse(HOSTILE, folder=tmp_path),
        refuse("show", "-m", f"no{HOSTILE}", folder=tmp_path),
    ):
        assert not OBEYED.search(message)
        assert "\\x1b" in message


def test_errors_warnings_and_tables_of_python_are_safe_to_print() -> None:
    for text in (
        str(InputError(HOSTILE)),
        str(PolysemeWarning(HOSTILE)),
        Table(title=HOSTILE, header=(HOSTILE,), rows=[(HOSTILE,)], note=HOSTILE).text(),
    ):
        assert visible(HOSTILE) in text
        assert not OBEYED.search(text)


def test_what_is_escaped_once_stays_so() -> None:
    assert visible(visible(HOSTILE)) == visible(HOSTILE)
    assert visible("naïve 👩‍👩‍👧 \t\n שלום") == "naïve 👩‍👩‍👧 \t\n שלום"


def test_json_means_what_it_meant(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_json({"text": HOSTILE}, ensure_ascii=False)
    printed = capsys.readouterr().out
    assert not OBEYED.search(printed)
    assert json.loads(printed) == {"text": HOSTILE}


def test_data_is_escaped_on_a_terminal_and_as_it_is_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printing.print_data(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    screen = Terminal()
    with os.fdopen(os.dup(screen.side), "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        printing.print_data(HOSTILE)
    assert screen.shown() == f"{visible(HOSTILE)}\r\n"


def test_progress_has_no_markup_and_nothing_that_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "DELAY", 0.0)
    screen = Terminal()
    with os.fdopen(os.dup(screen.side), "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", file)
        patch.setenv("TERM", "xterm")
        with terminal.Bar(f"[red]{HOSTILE}"):
            screen.wait_for(b"exe")
    shown = screen.shown()
    assert "[red]\\x1b]0;owned\\x07" in shown
    assert "\x1b]0;" not in shown


def test_what_an_encoding_lacks_is_escaped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(os.dup(1), "w", encoding="ascii") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        printing.print_text("naïve \udcff")
    assert capfd.readouterr().out == "na\\xefve \\udcff\n"


def test_a_fault_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        signals._show_fault(ValueError, error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert not OBEYED.search(shown)

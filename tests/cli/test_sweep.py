"""`polyseme sweep`: its own options beside those of the command that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import polyseme
from cli.commands import Refuse
from polyseme.cli import main
from polyseme.cli.sweep import SWEPT, swept_command
from polyseme.options import fields_of
from polyseme.verb_options.sweep_options import SweepOptions
from polyseme.verbs import swept_verbs


class Called(Exception):  # noqa: N818
    """Raised in the place of the function, with what it was called with."""


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def function(*arguments: Any, **options: Any) -> None:
        raise Called(arguments, {name: each for name, each in options.items() if name not in ("on_report", "progress")})

    monkeypatch.setattr(polyseme, "sweep", function)
    result = CliRunner().invoke(main, ["sweep", *words])
    assert isinstance(result.exception, Called), result.output
    arguments, options = result.exception.args
    return arguments, options


@pytest.mark.parametrize("verb", SWEPT)
def test_a_sweep_takes_its_own_options_and_those_of_the_command(verb: str) -> None:
    names = {str(each.name) for each in swept_command(verb).params} - {"as_json"}
    own = {each.name for each in fields_of(SweepOptions)} - {"on_report", "progress"}
    assert names == own | set(swept_verbs.SWEPT[verb].own)
    letters = {flag: each.name for each in swept_command(verb).params for flag in each.opts if flag[1:2] not in "-"}
    assert {flag: name for flag, name in letters.items() if flag.startswith("-")} == {"-o": "output", "-m": "model"}


@pytest.mark.parametrize("verb", SWEPT)
def test_the_help_has_every_option(verb: str) -> None:
    text = CliRunner().invoke(main, ["sweep", verb, "--help"]).stdout
    for each in swept_command(verb).params:
        if isinstance(each, click.Option):
            assert each.opts[-1] in text
    assert "COMMAND that" not in text


def test_only_options_that_were_given_reach_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--recipe", "bert-tiny", "--over", "mask-rate=0.05,0.15", "--over", "optimizer=adamw,muon", "--seeds", "2"]
    words += ["--row", "small one: n_layers=1 recipe=gpt-tiny", "--set", "width=16", "-o", "s.html", "--jobs", "0"]
    words += [
        "--then",
        "evaluate blimp --data 'my data' --pairs 10",
        "--then",
        "benchmark glue --data d --tasks rte,cola",
    ]
    arguments, options = call(monkeypatch, "pretrain", "a.txt", "b.txt", *words)
    assert arguments == ("pretrain", ("a.txt", "b.txt"))
    assert options == {
        "recipe": "bert-tiny",
        "over": {"mask_rate": [0.05, 0.15], "optimizer": ["adamw", "muon"]},
        "rows": {"small one": {"n_layers": 1, "recipe": "gpt-tiny"}},
        "seeds": 2,
        "shape": {"width": 16},
        "output": "s.html",
        "jobs": 0,
        "then": [
            ("evaluate", {"name": "blimp", "data": "my data", "pairs": 10}),
            ("benchmark", {"suite": "glue", "data": "d", "tasks": ("rte", "cola")}),
        ],
    }
    arguments, options = call(monkeypatch, "finetune", "sst2", "-m", "x", "--over", "epochs=1,2", "-o", "s.html")
    assert (arguments, options["model"], options["over"]) == (("finetune", "sst2"), "x", {"epochs": [1, 2]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "t.txt", "-o", "s.html"], "nothing to vary"),
        (["pretrain", "t.txt", "--over", "mask_rate", "-o", "s.html"], "--over wants NAME=VALUE"),
        (["pretrain", "t.txt", "--over", "mask_rate=", "-o", "s.html"], "has no values"),
        (["pretrain", "t.txt", "--over", "unit=a", "--over", "unit=b", "-o", "s.html"], "twice"),
        (["pretrain", "t.txt", "--over", "mask_rat=1", "--recipe", "bert-tiny", "-o", "s.html"], "'mask_rate'"),
        (["pretrain", "t.txt", "--row", "mask_rate=1", "-o", "s.html"], "--row wants"),
        (["pretrain", "t.txt", "--over", "unit=a", "--then", "embed x", "-o", "s.html"], "--then wants a command"),
        (["pretrain", "t.txt", "--over", "unit=a", "--then", "evaluate x --pears 2", "-o", "s.html"], "'--pairs'"),
        (["pretrain", "t.txt", "--over", "mask_rate=0.1,0.2"], "-o"),
        (["pretrain", "--over", "mask_rate=0.1,0.2", "--recipe", "bert-tiny", "-o", "s.html"], "nothing to train on"),
        (["finetune", "--over", "epochs=1,2", "-o", "s.html"], "no task"),
        (["finetune", "sst22", "--over", "epochs=1,2", "-m", "none", "--inputs", "char-cnn", "-o", "s.html"], "'sst2'"),
        (["embed", "t.txt"], "no command 'embed' to sweep"),
    ],
)
def test_bad_input_is_refused(
    words: list[str], message: str, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("One.\n\nTwo.\n")
    assert message in refuse("sweep", *words, folder=tmp_path)


def test_the_exit_code_says_that_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("\n\n".join(f"the dawn broke {number} times" for number in range(300)))
    words = ["t.txt", "--recipe", "bert-tiny", "--budget", "2steps", "--vocab-size", "99", "--length", "16", "--set"]
    words += ["width=16", "--set", "n_layers=1", "--batch-size", "4", "--device", "cpu", "--jobs", "0", "-o", "s.html"]
    result = CliRunner().invoke(main, ["sweep", "pretrain", *words, "--over", "learning_rate=1e30"])
    assert result.exit_code == 1
    assert "0 of 1" in result.stdout
    assert "learning_rate=1e+30,seed=0 failed" in result.stderr
    assert Path("s.html").is_file()

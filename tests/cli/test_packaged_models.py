"""Each verb uses the packaged model that can do it, and prints which; one that is not installed is refused."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyseme
from cli.commands import Refuse, Run
from packaged import FAMILIES, MODULE
from polyseme.cli import VERBS, main
from polyseme.errors import MissingPackageError, OptionError
from polyseme.packaged_models import DEFAULTS, PACKAGED, TRAINED

TEXT = "The news broke."
PAIRS = "good\tbad\nDawn broke.\tBroke dawn.\nWe broke even.\tWe even broke.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run: with a text and with minimal pairs."""
    (tmp_path / "text.txt").write_text(f"{TEXT}\n")
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = {
    "fill": ("encoder", ["fill", "The vase [MASK].", "--json"]),
    "generate": ("decoder", ["generate", "The vase", "--max-new", "5"]),
    "score": ("decoder", ["score", "text.txt"]),
    "evaluate": ("decoder", ["evaluate", "pairs.tsv"]),
}
"""Verb → the packaged model that it uses, and a command line without a model."""

CALLS: dict[str, Callable[..., Any]] = {
    "fill": lambda **model: polyseme.fill("The vase [MASK].", **model),
    "generate": lambda **model: polyseme.generate("The vase", max_new=5, **model).continuations,
    "score": lambda **model: polyseme.score("text.txt", **model).totals,
    "evaluate": lambda **model: polyseme.evaluate("pairs.tsv", **model).items,
}


def test_every_verb_with_a_model_has_a_default_or_says_how_to_get_one() -> None:
    with_model = {
        verb
        for verb in VERBS
        if any(each.name == "model" and not each.required for each in main.get_command(None, verb).params)  # type: ignore[arg-type, union-attr, attr-defined]
    } - {"pretrain", "distill"}  # one begins with a new model, the teacher of the other must be named
    assert with_model == {*DEFAULTS, *TRAINED}


def test_packaged_models_can_do_what_they_are_the_default_of(english: Path) -> None:
    for name in FAMILIES:
        card = polyseme.show(model=f"english-{name}")
        assert card.path == str(english / name)
        assert card.family == FAMILIES[name]
        assert set(PACKAGED[f"english-{name}"].defaults) <= set(card.can)
        assert set(PACKAGED[f"english-{name}"].outputs) == set(card.outputs)


@pytest.mark.parametrize("verb", COMMANDS)
def test_without_a_model_a_verb_takes_its_own_and_prints_which(
    verb: str, run: Run, english: Path, folder: Path
) -> None:
    model, arguments = COMMANDS[verb]
    expected = run(*arguments, "-m", english / model)
    ended = run(*arguments)
    assert (ended.code, ended.out) == (0, expected.out)
    assert ended.out
    first, *others = ended.err.splitlines()
    assert first == f"note: the model is english-{model}, the default of {verb}; -m names another."
    assert len(others) == len(expected.err.splitlines())
    named = run(*arguments, "-m", f"english-{model}")
    assert named.out == expected.out
    assert "note: the model is" not in named.err + expected.err


@pytest.mark.parametrize("verb", CALLS)
def test_functions_alike(verb: str, english: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, _ = COMMANDS[verb]
    with caplog.at_level(logging.INFO, logger="polyseme"):
        result = CALLS[verb]()
        assert [record.getMessage().split(";")[0] for record in caplog.records] == [
            f"the model is english-{model}, the default of {verb}"
        ]
        assert result == CALLS[verb](model=english / model)
    assert len(caplog.records) == 1


def test_a_report_is_headed_by_the_name_of_the_model(run: Run, english: Path, folder: Path) -> None:
    for model in ([], ["-m", english / "decoder"]):
        assert run("evaluate", "pairs.tsv", "-o", "out.html", "--force", *model).code == 0
        assert "<h1>pairs.tsv: english-decoder</h1>" in Path("out.html").read_text()


def test_load_by_name(english: Path) -> None:
    assert polyseme.load("english-encoder", device="cpu").path == str(english / "encoder")


def test_a_folder_of_that_name_comes_first(english: Path, folder: Path, tiny: Path) -> None:
    Path("english-encoder").symlink_to(tiny)
    assert polyseme.show(model="english-encoder").family == "bert"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize("named", [False, True])
def test_what_is_not_installed_is_refused(
    verb: str, named: bool, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    model, arguments = COMMANDS[verb]
    message = refuse(*arguments, *(["-m", f"english-{model}"] if named else []), folder=tmp_path)
    assert f"'english-{model}' is not installed" in message
    assert "pip install ./models/english" in message
    assert "-m" in message
    with pytest.raises(MissingPackageError, match="pip install"):
        CALLS[verb]()


def test_without_the_demo_model_a_command_that_works_from_a_clone_is_named(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGED["minilm"].module, None)
    (tmp_path / "in.txt").write_text("Dawn broke.\n")
    message = refuse("embed", tmp_path / "in.txt", "-o", tmp_path / "out.npz", folder=tmp_path)
    assert "from a clone of polyseme with `pip install '.[demo]'`" in message
    assert "name another model with -m" in message


def test_a_module_without_its_models_counts_as_not_installed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MODULE).mkdir()
    (tmp_path / MODULE / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {card.name: card.path for card in polyseme.list_models()}["english-encoder"] is None
    assert "'english-encoder' is not installed" in run("fill", "A [MASK].").err


def test_models_lists_names_defaults_and_what_is_missing(
    run: Run, english: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run("models")
    assert ended.err == ""
    rows = [line.split(maxsplit=2) for line in ended.out.splitlines()[1:4]]
    assert ["english-encoder", "yes", "fill, lens, patch, attention, heads"] in rows
    assert ["english-decoder", "yes", "generate, score, evaluate"] in rows
    cards = {card["name"]: card for card in json.loads(run("models", "--json").out)}
    assert cards["english-decoder"]["path"] == str(english / "decoder")
    assert {verb for card in cards.values() for verb in card["default_of"]} == set(DEFAULTS)
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert "note: english-decoder is not installed. Install it from a clone" in run("models").err


def test_next_names_the_command_that_trains_a_model_for_it(
    run: Run, refuse: Refuse, folder: Path, real_text: Callable[[str, int], str]
) -> None:
    message = refuse("next", "Dawn broke.", "We broke even.", folder=folder)
    command = message.partition("`")[2].partition("`")[0]
    assert command in TRAINED.values()
    with pytest.raises(OptionError, match="polyseme pretrain"):
        polyseme.next("Dawn broke.", "We broke even.")
    # The command itself, smaller.
    (folder / "texts").mkdir()
    (folder / "texts" / "wiki.txt").write_text(real_text("wiki-00", 30_000).replace("\n", "\n\n"))
    _, *arguments = shlex.split(command)
    smaller = {"bert-small": "bert-tiny", "20min": "2steps"}
    sizes = ["--vocab-size", 300, "--batch-size", 2, "--length", 32, "--device", "cpu"]
    assert run(*(smaller.get(each, each) for each in arguments), *sizes).code == 0
    output = arguments[arguments.index("-o") + 1]
    assert 0 < float(run("next", "Dawn broke.", "We broke even.", "-m", output).out) < 1


def test_a_model_that_lacks_an_output_points_to_one_that_has_it(run: Run, english: Path, folder: Path) -> None:
    assert "-m english-encoder" in run("fill", "A [MASK].", "-m", "minilm").err
    assert "-m english-decoder" in run("score", "text.txt", "-m", "minilm").err

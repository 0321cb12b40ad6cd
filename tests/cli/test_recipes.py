"""`polyseme recipes`: the published training and the fitted one, of all recipes and of one."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.recipes.recipe_table import COUNTED, RECIPES
from polyseme.training.run_job import PausedRun
from training.kills import write_text


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["recipes", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_table_has_every_recipe_in_120_columns() -> None:
    lines = printed().splitlines()
    assert max(map(len, lines)) <= 120
    rows = {line.split()[0]: line for line in lines[1:] if line}
    assert rows.keys() >= RECIPES.keys()
    assert rows["bert-base"].split()[-6:] == ["256", "x", "128/512", "0.0001", "1,000,000", "fitted"]
    assert rows["lstm-lm"].endswith("as is")
    assert lines[0].split()[-4:] == ["rows", "rate", "steps", "budget"]


def test_one_recipe_has_both_trainings_side_by_side() -> None:
    output = printed("bert-base", "--budget", "1000steps", "--device", "cpu")
    assert "as published" in output
    assert "fitted to 1000steps on cpu" in output
    lines = {line[:15].strip(): line[15:].split() for line in output.splitlines()}
    assert lines["rows x pieces"][:3] == ["256", "x", "128"]
    assert lines["rows x pieces"][-2:] == ["x", "64"]
    assert lines["optimizer"] == ["adamw-uncorrected", "muon"]
    assert lines["steps"] == ["1,000,000", "about", "1,000"]
    assert lines["mask_rate"] == ["0.15", "0.3"]
    assert max(map(len, output.splitlines())) <= 120


def test_a_recipe_that_is_not_fitted_says_so() -> None:
    output = printed("lstm-lm", "--device", "cpu")
    assert "fitted to" not in output
    assert "the same whatever the budget" in output


def test_json_has_both_too() -> None:
    cards = {card["name"]: card for card in json.loads(printed("--json"))}
    assert cards.keys() == {**RECIPES, **COUNTED}.keys()
    assert cards.pop("kneser-ney")["published"] is None
    for name, card in cards.items():
        assert card["scales"] == (RECIPES[name].scaling is not None)
        assert card["published"]["optimizer"]["lr"] == RECIPES[name].training.optimizer.lr
        assert card["fitted"] is None
    [one] = json.loads(printed("t5-small", "--json", "--budget=500steps", "--device=cpu"))
    assert (one["fitted"]["budget"], one["fitted"]["training"]["optimizer"]["kind"]) == ("500steps", "muon")
    assert one["fitted"]["fit"]["length"] == one["fitted"]["training"]["phases"][0]["length"]


def test_what_is_shown_is_what_pretrain_begins_with(tmp_path: Path) -> None:
    """But for what goes by the text: here it is short, and rows are fewer."""
    write_text(tmp_path / "text.txt")
    settings = {"recipe": "bert-tiny", "budget": "20steps", "device": "cpu"}
    [card] = polyseme.list_recipes(**settings)
    assert card.fitted is not None
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        paused = polyseme.pretrain(tmp_path / "text.txt", output=tmp_path / "run", stop_after="0.001s", **settings)
    assert isinstance(paused, PausedRun)
    training = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["training"]
    assert training["optimizer"] == json.loads(json.dumps(card.fitted.training.optimizer.to_json()))
    assert training["schedule"] == card.fitted.training.schedule.to_json()
    assert training["phases"][0]["length"] == card.fitted.fit.length


@pytest.mark.parametrize("options", [{"budget": "1h"}, {"device": "cpu"}], ids=str)
def test_a_budget_or_a_device_needs_a_recipe(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"Name a recipe, as in: polyseme recipes bert-small --budget 1h"):
        polyseme.list_recipes(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["bert-smal"], "bert-small"), (["bert-small", "--budget", "soon"], "20min"), (["t5-base", "--device=x"], "'x'")],
)
def test_what_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["recipes", *arguments])
    assert done.exit_code == 2
    assert message in done.output

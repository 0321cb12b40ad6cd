"""The quick benchmark: figures beside floors, parts that fail, and that no script is forgotten. No load is run here."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
BELOW = """
import pathlib, sys
from measure import Figure, publish
publish([Figure(what="embed", peer="a peer", value=1.5, floor=2.0)], pathlib.Path(sys.argv[-1]))
"""
FAILS = BELOW + "raise ValueError('no such model')\n"
SKIPS = "from measure import skip\nskip('torch sees no GPU here')\n"
SILENT = "print('a table without figures')\n"
ENDLESS = "while True: pass\n"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a script of the folder; none of them stays imported."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]


def options_of(script: Path) -> set[str]:
    """The names of the options that a script takes."""
    calls = [node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = {
        argument.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    publishes = any(isinstance(call.func, ast.Name) and call.func.id == "add_figures_option" for call in calls)
    return names | ({"--figures"} if publishes else set())


def test_every_script_is_a_part_or_is_named_as_left_out(load: Any) -> None:
    quick = load("quick")
    named = {part.script for part in quick.PARTS} | {*quick.NOT_RATIOS, *quick.GPU_SCRIPTS, "quick.py"}
    scripts = {path.name for path in FOLDER.glob("*.py") if "def main" in path.read_text(encoding="utf-8")}
    assert scripts <= named


def test_scripts_take_the_options_of_their_parts(load: Any) -> None:
    for part in load("quick").PARTS:
        options = options_of(FOLDER / part.script)
        for tiny in (False, True):
            asked = {each for each in part.options(tiny=tiny) if each.startswith("-")} | {"--figures"}
            assert asked <= options, part.name


def test_a_figure_is_judged_by_its_floor(load: Any) -> None:
    measure = load("measure")
    every = {"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 4.0, 8.0]}
    figure = measure.ratio(every, "theirs", "ours", what="embed", peer="a peer", floor=2.0)
    assert (figure.value, figure.rounds, figure.reached) == (2.0, (3.0, 2.0, 2.0), True)
    assert "2.00 × (2.00–3.00) [a peer]; floor 2: reached" in figure.line()
    below = measure.ratio(every, "theirs", "ours", what="embed", peer="a peer", floor=2.01)
    assert below.reached is False
    assert "not reached" in below.line()
    assert measure.ratio(every, "theirs", "ours", what="time", peer="a peer", floor=1.9, at_most=True).reached is False
    assert measure.Figure(what="embed", peer="", value=1.0).reached is None


def test_published_figures_are_read_back(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure = load("measure")
    figures = [
        measure.Figure(what="embed", peer="a peer", value=3.0, floor=2.0, rounds=(2.5, 3.5), note="cosine 0.99"),
        measure.Figure(what="import", peer="", value=17.0, unit="ms", floor=50.0, aim=20.0, at_most=True),
    ]
    for figure in figures:
        measure.publish([figure], tmp_path / "figures.jsonl")
    assert measure.read_figures((tmp_path / "figures.jsonl").read_text().splitlines()) == figures
    assert capsys.readouterr().out.splitlines() == [figure.line() for figure in figures]


def test_peers_at_their_best_settings_stand_beside_those_as_they_come(load: Any) -> None:
    script = load("embed_cpu")
    routes = {
        "transformers pipeline, input order, batches of 1": 9.0,
        "transformers pipeline, input order, batches of 8": 8.0,
        "transformers pipeline, sorted by length, batches of 32": 5.0,
        "sentence-transformers, token embeddings": 4.0,
        "sentence-transformers, sentence vectors": 3.0,
        "sentence-transformers, sentence vectors, compiled": 2.5,
        "polyseme, every word": 1.0,
        "polyseme, every word, bf16": 0.5,
    }
    figures = script.figures_of({name: [each] for name, each in routes.items()}, "AVX512", {"bf16": "cosine 1"})
    assert [(figure.value, figure.floor) for figure in figures] == [
        (8.0, 3.2), (5.0, None), (3.0, 2.1), (2.5, None), (2.0, None),
    ]  # fmt: skip
    assert {figure.floor for figure in script.figures_of({name: [1.0] for name in routes}, "DEFAULT", {})} == {None}


def test_floors_of_generation_are_those_of_the_peer_with_its_defaults(load: Any) -> None:
    script = load("generate")
    names = [*script.PEERS.values(), script.OURS["own"], script.OURS["bf16"]]
    every = dict(zip(names, ([6.0], [2.0], [4.0], [2.0], [1.0]), strict=True))
    texts = {name: [[1, 2]] for name in names} | {script.PEERS["bf16"]: [[1, 3]]}
    figures = script.figures_of(every, texts, ("gpt2", "cpu", 1), "fp32")
    assert [(each.peer, each.value, each.floor, each.note) for each in figures] == [
        (script.PEERS["dynamic"], 3.0, 1.5, "1 of 1 texts equal"),
        (script.PEERS["bf16"], 2.0, None, "0 of 1 texts equal"),
        (script.PEERS["static"], 2.0, None, "1 of 1 texts equal"),
    ]


def test_a_part_that_fails_leaves_the_others(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = load("quick")
    scripts = {"below": BELOW, "fails": FAILS, "skips": SKIPS, "silent": SILENT, "endless": ENDLESS}
    for name, content in scripts.items():
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.setattr(quick, "FOLDER", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    parts = [
        quick.Part(name=name, script=f"{name}.py", load="", tiny="", limit=60, left_out=f"most of {name}")
        for name in scripts
    ]
    results = [quick.run_part(part, tiny=False, limit=0 if part.name == "endless" else 60) for part in parts]
    assert {each.part.name: each.outcome for each in results} == {
        "below": "measured", "fails": "failed", "skips": "skipped", "silent": "failed", "endless": "stopped",
    }  # fmt: skip
    assert [len(each.figures) for each in results] == [1, 1, 0, 0, 0]
    assert "no such model" in results[1].reason
    assert results[2].reason == "torch sees no GPU here"
    quick.print_table(results, list(scripts))
    printed = capsys.readouterr().out
    assert "0 of 2 floors reached" in printed
    assert "| embed | 1.50 × | a peer | 2 | **no** |" in printed
    assert "- below: most of below" in printed
    assert "gpu_floors.py" in printed


def test_a_script_without_its_arguments_skips() -> None:
    run = subprocess.run([sys.executable, str(FOLDER / "ngram_kenlm.py")], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("skipped: ")


def test_results_are_written_whole(load: Any, tmp_path: Path) -> None:
    quick = load("quick")
    figure = load("measure").Figure(what="embed", peer="a peer", value=1.5, floor=2.0, rounds=(1.0, 2.0))
    part = quick.PARTS[0]
    result = quick.Result(part=part, command=quick.shown_command(part, tiny=True), figures=[figure], output="a table")
    settings = quick.argparse.Namespace(cores=2, tiny=True)
    quick.write_json(tmp_path / "ratios.json", quick.json_of([result], "a machine", settings))
    [written] = json.loads((tmp_path / "ratios.json").read_text())["parts"]
    assert written["figures"][0]["reached"] is False
    assert written["command"].startswith(f"python benchmarks/{part.script} ")
    assert [path.name for path in tmp_path.iterdir()] == ["ratios.json"]

"""What is loaded late: modules when they are asked for, entries of a table when they are met."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from polyseme import extras
from polyseme.extras import FROZEN_BY_PYTHON, LateTable, later
from tiny_models import tiny_model


def test_an_entry_is_loaded_once_and_when_it_is_asked_for() -> None:
    loaded: list[int] = []

    def load(home: int) -> str:
        loaded.append(home)
        return str(home)

    table = LateTable({"one": 1, "two": 2}, load)
    assert list(table) == ["one", "two"]
    assert len(table) == 2
    assert "two" in table
    assert "three" not in table
    assert table.get("three") is None
    assert loaded == []
    assert [table["two"], table["two"], table.get("two")] == ["2", "2", "2"]
    assert loaded == [2]
    assert dict(table) == {"one": "1", "two": "2"}
    assert loaded == [2, 1]
    with pytest.raises(KeyError, match="three"):
        table["three"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(
    enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_to_load_late.py").write_text("import gc\nENABLED = gc.isenabled()\n")
    (tmp_path / "module_that_fails.py").write_text("raise RuntimeError('as it must')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        assert later("module_to_load_late").ENABLED is False
        assert gc.isenabled() is enabled
        with pytest.raises(RuntimeError, match="as it must"):
            later("module_that_fails")
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() < FROZEN_BY_PYTHON
    finally:
        (gc.enable if was_enabled else gc.disable)()
        sys.modules.pop("module_to_load_late", None)


@pytest.mark.parametrize("whose", ["the program", "the interpreter"])
def test_what_the_program_has_frozen_stays_frozen(whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on some objects are frozen from the start, which keeps nothing from being done as before."""
    (tmp_path / "module_to_load_late.py").write_text("import gc\nENABLED = gc.isenabled()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    if whose == "the interpreter":
        monkeypatch.setattr(extras, "FROZEN_BY_PYTHON", sys.maxsize)
    gc.freeze()
    try:
        assert later("module_to_load_late").ENABLED is False
        assert (gc.get_freeze_count() > FROZEN_BY_PYTHON) is (whose == "the program")
        n_young = len(gc.get_objects(0)) + len(gc.get_objects(1))
        assert whose == "the program" or n_young < len(gc.get_objects(2))
    finally:
        gc.unfreeze()
        sys.modules.pop("module_to_load_late", None)


FIRST_VECTOR = """
import sys
import polyseme
[document] = polyseme.load({!r}, device="cpu").embed(["Dawn broke."])
assert len(document.vectors) == 3
print(*sorted(sys.modules))
"""


def test_the_first_vector_waits_for_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "bert")
    script = FIRST_VECTOR.format(str(tmp_path / "bert"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "polyseme.convert.bert" in loaded
    for other in ("roberta", "gpt2", "t5", "xlnet", "elmo", "lstm"):
        assert f"polyseme.convert.{other}" not in loaded
    for other in ("encoders.recurrent", "encoders.two_way", "vectors.job", "files.spool", "verbs", "uses", "cli"):
        assert f"polyseme.{other}" not in loaded
    for room in ("decode", "training", "objectives", "recipes", "analysis", "corpus"):
        assert not any(name.startswith(f"polyseme.{room}") for name in loaded)
    assert loaded.isdisjoint({"pyarrow", "h5py", "rich", "click", "matplotlib", "sklearn"})

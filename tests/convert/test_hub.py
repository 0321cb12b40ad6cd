"""Models of a hub: fetched only when named so; offline, what is in the cache, or one clear refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

import polyseme
from convert.spoiling import refusal


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["google-bert/bert-base-cased", "no/such/name", "", "-"])
def test_offline_the_message_says_what_to_do(name: str) -> None:
    message = refusal(f"hub:{name}")
    assert f"The model {name!r} could not be fetched from the hub" in message
    assert "copy its folder" in message


def test_offline_a_model_in_the_cache_is_found(cache: Path, good: dict[str, Path]) -> None:
    kept = cache / "models--someone--something"
    shutil.copytree(good["bert"], kept / "snapshots" / "0123abcd")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123abcd")
    assert polyseme.load("hub:someone/something").show().family == "bert"


@pytest.mark.usefixtures("cache")
def test_a_path_is_a_path_and_never_asks_a_hub() -> None:
    """A name as the hub has them, without `hub:`, is a folder that is not there."""
    assert "no such folder" in refusal("google-bert/bert-base-cased")

"""A task model as a folder, the cache of frozen vectors, and reports."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import polyseme
from polyseme.errors import ModelError, OutputError, PolysemeWarning
from polyseme.tasks.items import Answer, Item
from polyseme.tasks.predictions import Judgment
from polyseme.transfer import frozen_features
from polyseme.transfer.finetune_report import FinetuneReport, page_of, worst_errors
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneResult, FinetuneRun, finetune_task
from polyseme.transfer.frozen_features import different_documents, word_store
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, small_task


def fitted(kind: str, family: str = "bert", **settings: Any) -> FinetuneResult:
    given = {"epochs": 1, "learning_rate": 1e-2, "batch_size": 16, **settings}
    bundle = None if family == "none" else tiny_model(family).bundle
    return finetune_task(small_task(kind, n_train=48, n_dev=16), bundle, FinetuneSettings(**given))


@pytest.mark.parametrize(
    ("kind", "family", "settings"),
    [
        ("classify", "bert", {"readout": "pooled"}),
        ("pair", "elmo", {}),
        ("tag", "gpt2", {"frozen": True, "head": "bilstm-crf", "inner_width": 8}),
        ("tag", "none", {"inputs": "char-cnn", "inner_width": 8}),
        ("span", "bert", {"layer": "mix"}),
        ("choose", "t5", {"frozen": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_saved_and_loaded_it_says_the_same(kind: str, family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    done = fitted(kind, family, **settings)
    save_task_model(done.model, tmp_path / "model")
    loaded = load_task_model(tmp_path / "model")
    items = small_task(kind).splits["dev"][:10]
    before, after = (judge(model, prepare(model, items, learning=False)) for model in (done.model, loaded))
    for one, other in zip(before, after, strict=True):
        assert one.answer == other.answer
        np.testing.assert_array_equal(np.array(one.probabilities), np.array(other.probabilities))


def test_the_folder_is_a_model_folder_too(tmp_path: Path) -> None:
    done = fitted("classify")
    save_task_model(done.model, tmp_path / "model")
    model = polyseme.load(tmp_path / "model", device="cpu")
    assert done.model.bundle is not None
    weights = dict(model.bundle.encoder.named_parameters())
    for name, parameter in done.model.bundle.encoder.named_parameters():
        assert torch.equal(parameter, weights[name])
    assert model.embed(["the crane"])[0].vectors.shape[0] == 2


def test_folders_that_are_no_task_models(tmp_path: Path) -> None:
    tiny_model("bert").save(tmp_path / "plain")
    with pytest.raises(ModelError, match="without a head"):
        load_task_model(tmp_path / "plain")
    save_task_model(fitted("classify").model, tmp_path / "model")
    card, head = tmp_path / "model" / "polyseme.json", tmp_path / "model" / "head.safetensors"
    written = json.loads(card.read_text())
    written["task"]["head"]["kind"] = "clasify"
    card.write_text(json.dumps(written))
    with pytest.raises(ModelError, match="Did you mean 'classify'"):
        load_task_model(tmp_path / "model")
    written["task"]["head"]["kind"] = "classify"
    card.write_text(json.dumps(written))
    weights = load_file(head)
    names = list(weights)
    save_file({name: weights[name] for name in names[1:]}, head)
    with pytest.raises(ModelError, match=r"head\.safetensors does not fit its card: .*" + re.escape(names[0])):
        load_task_model(tmp_path / "model")
    save_file({**weights, names[0]: weights[names[0]][..., :1].contiguous()}, head)
    with pytest.raises(ModelError, match=r"head\.safetensors does not fit its card: .*" + re.escape(names[0])):
        load_task_model(tmp_path / "model")
    save_file(weights, head)
    whole = head.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no weights"):
        head.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"head\.safetensors cannot be read .* cut short or damaged"):
            load_task_model(tmp_path / "model")
    head.unlink()
    with pytest.raises(ModelError, match=r"has no head\.safetensors"):
        load_task_model(tmp_path / "model")


def test_whoever_may_read_the_folder_may_read_all_of_it(tmp_path: Path) -> None:
    save_task_model(fitted("classify").model, tmp_path / "model")
    modes = {file.name: file.stat().st_mode for file in (tmp_path / "model").iterdir()}
    assert modes["head.safetensors"] == modes["model.safetensors"] == modes["polyseme.json"]


# --- frozen vectors ---------------------------------------------------------------------------------------------------


def test_frozen_vectors_are_those_of_embed_and_kept_by_what_decides_them(tmp_path: Path) -> None:
    model = tiny_model("bert")
    items = [Item(text="the crane broke"), Item.of_words(["a", "fish"]), Item(text="the crane broke")]
    documents = different_documents(items)
    assert len(documents) == 2
    store = word_store(model.bundle, documents, layer="mix", pool="mean", cache=tmp_path)
    expected = np.concatenate([each.vectors for each in model.embed(list(documents.values()), layer="all")])
    np.testing.assert_allclose(store.vectors.numpy(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    [kept] = tmp_path.iterdir()
    changed = kept.stat().st_mtime_ns
    word_store(model.bundle, documents, layer="mix", pool="mean", cache=tmp_path)
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [changed]
    others = (
        (model.bundle, documents, {"layer": "-1", "pool": "mean"}),
        (model.bundle, documents, {"layer": "mix", "pool": "first"}),
        (model.bundle, different_documents(items[:1]), {"layer": "mix", "pool": "mean"}),
        (tiny_model("roberta").bundle, documents, {"layer": "mix", "pool": "mean"}),
    )
    for number, (bundle, texts, how) in enumerate(others, start=2):
        word_store(bundle, texts, cache=tmp_path, **how)
        assert len(list(tmp_path.iterdir())) == number


@pytest.mark.parametrize("file", ["vectors.npy", "ends.npy"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "garbage", "bit"])
def test_damaged_vectors_are_said_and_computed_again(tmp_path: Path, file: str, damage: str) -> None:
    model = tiny_model("bert")
    documents = different_documents([Item(text="the crane broke"), Item(text="a fish")])
    how: dict[str, Any] = {"layer": "-1", "pool": "mean", "cache": tmp_path}
    first = word_store(model.bundle, documents, **how)
    assert first.computed
    assert not word_store(model.bundle, documents, **how).computed
    expected = first.vectors.clone()
    [place] = tmp_path.glob(f"*/{file}")
    content = place.read_bytes()
    place.unlink()
    if damage != "gone":
        noise = bytes([*content[:-3], content[-3] ^ 1, *content[-2:]])
        damaged = {"cut": content[:-8], "empty": b"", "garbage": b"x" * len(content), "bit": noise}
        place.write_bytes(damaged[damage])
    with pytest.warns(PolysemeWarning, match="are damaged .* and are computed again"):
        again = word_store(model.bundle, documents, **how)
    assert again.computed
    torch.testing.assert_close(again.vectors, expected, rtol=0, atol=0)


def test_vectors_of_an_older_version_are_used_and_their_lack_of_checksums_is_stated_once(tmp_path: Path) -> None:
    documents = different_documents([Item(text="a fish")])
    how: dict[str, Any] = {"layer": "-1", "pool": "mean", "cache": tmp_path}
    word_store(tiny_model("bert").bundle, documents, **how)
    [about] = tmp_path.glob("*/about.json")
    content = json.loads(about.read_text())
    about.write_text(json.dumps({name: each for name, each in content.items() if name != "checksums"}))
    with pytest.warns(PolysemeWarning, match="without checksums") as said:
        assert not any(word_store(tiny_model("bert").bundle, documents, **how).computed for _ in range(2))
    assert len(said) == 1


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    documents = different_documents([Item(text="a fish")])
    with pytest.raises(OutputError, match="file"):
        word_store(tiny_model("bert").bundle, documents, layer="-1", pool="mean", cache=tmp_path / "file")


def test_a_disk_that_is_too_small_for_the_vectors_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    documents = different_documents([Item(text=f"the crane broke {number} times") for number in range(50)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OutputError, match="largest file allowed"):
            word_store(tiny_model("bert").bundle, documents, layer="mix", pool="mean", cache=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_frozen_vectors_are_padded() -> None:
    documents = different_documents([Item(text="the crane broke"), Item(text="fish"), Item(text="")])
    store = word_store(tiny_model("bert").bundle, documents, layer="-1", pool="mean", cache=None)
    words, mask = store.rows([1, 0, 2], torch.device("cpu"))
    assert mask.tolist() == [[True, False, False], [True, True, True], [False, False, False]]
    assert not words[~mask].any()
    torch.testing.assert_close(words[1], store.vectors[:3])


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_over_seeds() -> None:
    data = small_task("classify", n_train=64, n_dev=20, n_test=20)
    done = finetune_task(
        data, tiny_model("bert").bundle, FinetuneSettings(epochs=2, learning_rate=1e-3, seeds=(0, 1, 2))
    )
    report = done.report
    figures = [each.dev["accuracy"] for each in report.seeds]
    assert report.dev["accuracy"].median == sorted(figures)[1]
    assert report.best.dev["accuracy"] == max(figures)
    assert report.n_failed == sum(value <= report.baseline["accuracy"] for value in figures)
    assert set(report.best.others) == {"test"}
    counts = np.array(report.confusion["counts"])  # type: ignore[index]
    assert counts.sum() == 20
    assert np.trace(counts) / 20 == report.best.dev["accuracy"]
    assert report.errors.n == 20 - np.trace(counts)
    again = FinetuneReport.from_json(json.loads(json.dumps(report.to_json())))
    assert again.dev == report.dev
    assert again.errors == report.errors
    text = "\n".join(report.lines())
    assert "dev (chose the weights)" in text
    assert "test (scored once)" in text
    assert "baseline on dev (majority label): accuracy" in text


@pytest.mark.parametrize("kind", MAKERS)
def test_hostile_text_in_a_page_runs_nothing(kind: str) -> None:
    done = fitted(kind)
    report = done.report
    hostile = "<script>alert(1)</script>"
    worst = [{**each, "text": hostile, "words": [hostile] * len(each.get("words", []))} for each in report.errors.worst]
    errors = {"n": report.errors.n, "worst": worst}
    page = page_of(
        FinetuneReport.from_json({**report.to_json(), "task": hostile, "errors": errors, "notes": [hostile]})
    )
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_the_worst_errors_of_many_are_counted_and_say_how_sure_the_model_was() -> None:
    items = [Item(text=f"text {number}", gold="good") for number in range(30)]
    shares = [0.51 + number / 100 for number in range(30)]
    judged = [Judgment("bad", [share, 1 - share]) for share in shares[:25]] + [Judgment("good", [0.1, 0.9])] * 5
    found = worst_errors("classify", items, judged, ("bad", "good"))
    assert found.n == 25
    assert [each["text"] for each in found.worst] == [f"text {number}" for number in range(24, 4, -1)]
    assert [each["probability"] for each in found.worst] == shares[24:4:-1]
    page = page_of(dataclasses.replace(fitted("classify").report, errors=found))
    assert "Worst errors (20 of 25)" in page
    assert "at 75.0%" in page


@pytest.mark.parametrize(
    ("kind", "gold", "judged", "probability"),
    [
        ("choose", 0, Judgment(1, [0.3, 0.7]), 0.7),
        ("span", (Answer(0, "a"),), Judgment("b", [0.6, 0.3], ((2, 3, "b", 0.6), (0, 1, "a", 0.3))), 0.6),
        ("span", (Answer(0, "a"),), Judgment("", [0.6], ((2, 3, "b", 0.6),)), None),
        ("tag", ("x", "y"), Judgment(("x", "x"), [[0.9, 0.1], [0.9, 0.1]]), None),
        ("classify", ("x",), Judgment(("y",), [0.1, 0.9]), None),
        ("pair", 1.5, Judgment(3.0), None),
    ],
)
def test_how_sure_the_model_was_of_an_answer(kind: str, gold: Any, judged: Judgment, probability: float | None) -> None:
    item = Item(text="a b", words=("a", "b"), second="?", choices=("a", "b"), gold=gold)
    [error] = worst_errors(kind, [item], [judged], ("x", "y")).worst
    assert error["probability"] == probability


def test_a_run_that_cannot_learn_is_said_to_have_failed() -> None:
    data = small_task("classify", n_train=48, n_dev=16)
    done = finetune_task(data, tiny_model("bert").bundle, FinetuneSettings(epochs=1, learning_rate=1e-12))
    assert done.report.n_failed == int(done.report.best.dev["accuracy"] <= done.report.baseline["accuracy"])
    broken = finetune_task(
        data, tiny_model("bert").bundle, FinetuneSettings(epochs=1, learning_rate=1e30, max_grad_norm=None)
    )
    assert broken.report.seeds[0].diverged or not broken.report.seeds[0].learned
    assert broken.report.ledger.steps == sum(each.n_taken for each in broken.report.seeds)


def test_the_cost_of_a_run_that_diverged_is_that_of_the_steps_it_took() -> None:
    data = small_task("classify", n_train=48, n_dev=16)
    settings = FinetuneSettings(epochs=5, batch_size=16, learning_rate=1e30, max_grad_norm=None)
    report = finetune_task(data, tiny_model("bert").bundle, settings).report
    [seed] = report.seeds
    assert seed.diverged
    assert seed.n_steps == 15
    assert report.ledger.steps == seed.n_taken == 3 * (len(seed.curve) + 1)
    assert FinetuneReport.from_json(json.loads(json.dumps(report.to_json()))).seeds[0].n_taken == seed.n_taken


def test_the_progress_of_whole_rows_is_counted_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(frozen_features.BATCH_PIECES, "cpu", 40)
    seen: list[tuple[int, int | None]] = []
    data = small_task("classify", n_train=24, n_dev=8)
    settings = FinetuneSettings(epochs=1, frozen=True, head="linear", readout="first")
    finetune_task(data, tiny_model("bert").bundle, settings, FinetuneRun(progress=lambda *each: seen.append(each)))
    last = [done for done, following in zip(seen, [*seen[1:], (0, None)], strict=True) if following[0] <= done[0]]
    assert last == [(24, 24), (8, 8)]
    assert len(seen) > 4

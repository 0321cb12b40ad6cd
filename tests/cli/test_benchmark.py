"""`polyseme benchmark`: a suite of tasks is one table, resumed task by task, and what is refused."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

import polyseme
from cli.commands import Refuse, Run
from cli.test_finetune import QUICK, write_conll, write_rte
from gap_files import ROW, changed, gap
from polyseme.datasets.named_benchmarks import BENCHMARKS
from polyseme.datasets.suites import SUITES
from polyseme.tasks.items import Item
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.verbs.benchmark import _space_evenly

LABELS = ["entailment", "not_entailment"] * 4


def test_a_table_that_cannot_be(tiny: Path, tmp_path: Path, refuse: Refuse) -> None:
    line = ("benchmark", "glue", "-m", tiny, "--data", tmp_path, "-o", tmp_path / "glue")
    assert "Did you mean 'mrpc'?" in refuse(*line, "--tasks", "mrpcc", folder=tmp_path)
    assert "no task of GLUE" in refuse(*line, "--tasks", "trec", folder=tmp_path)
    assert "holds no data of GLUE" in refuse(*line, folder=tmp_path)
    assert "one seed at least" in refuse(*line, "--seeds", "0", folder=tmp_path)
    assert "no rate 'x'" in refuse(*line, "--cost-rates", "x=1", folder=tmp_path)
    assert "does not hold the data of rte" in refuse(*line, "--tasks", "rte", folder=tmp_path)
    write_rte(tmp_path / "rte", ["entailment", "not_entailment"] * 4)
    other = ("benchmark", "glue", "-m", tmp_path / "nowhere", "--data", tmp_path, "-o", tmp_path / "glue")
    assert "There is no model" in refuse(*other, folder=tmp_path)
    assert "has no 'crf'" in refuse(*line, "--tasks", "rte", "--head", "crf", *QUICK, folder=tmp_path)
    write_rte(tmp_path / "rte", ["entailment"] * 8)
    assert "one label 'entailment'" in refuse(*line, "--tasks", "rte", *QUICK, folder=tmp_path)


def test_the_same_can_be_set_of_one_task_and_of_nine() -> None:
    """Every setting of a fine-tuning is a parameter of both verbs, with one default."""
    one, nine = (inspect.signature(verb).parameters for verb in (polyseme.finetune, polyseme.benchmark))
    settings = {each.name for each in dataclasses.fields(FinetuneSettings)} | {"warmup"}
    assert settings <= set(nine)
    shared = (set(nine) & set(one)) - {"data"}
    assert settings <= shared
    assert {name: nine[name].default for name in shared} == {name: one[name].default for name in shared}


def test_a_suite_that_there_is_not(tiny: Path, tmp_path: Path, refuse: Refuse) -> None:
    line = ("-m", tiny, "--data", tmp_path, "-o", tmp_path / "out.html")
    assert "There is no suite 'gleu'. Did you mean 'glue'?" in refuse("benchmark", "gleu", *line, folder=tmp_path)
    assert "fits nothing, so epochs" in refuse("benchmark", "babylm", *line, "--epochs", "2", folder=tmp_path)
    assert "no task of BabyLM 'blip'" in refuse("benchmark", "babylm", *line, "--tasks", "blip", folder=tmp_path)
    write_rte(tmp_path / "rte", LABELS)
    assert "train_items must be at least 1" in refuse("benchmark", "glue", *line, "--train-items", "0", folder=tmp_path)


def test_a_suite_is_one_table_of_what_is_there(tiny: Path, tmp_path: Path, run: Run) -> None:
    """Tasks without data are named; finished tasks stay, and other settings are refused."""
    write_rte(tmp_path / "data" / "rte", LABELS)
    line = ("benchmark", "glue", "-m", tiny, "--data", tmp_path / "data", "-o", tmp_path / "glue", "--train-items", "6")
    first = run(*line, "--frozen", "--layer", "-1", *QUICK)
    assert "not the same thing" in first.out
    assert "No data, so left out: cola, sst2, mrpc, stsb, qqp, mnli, qnli, wnli." in first.out
    assert "rte*" in first.out, "trained on a part of what is there"
    model, table = tmp_path / "glue" / "rte" / "head.safetensors", tmp_path / "glue" / "benchmark.json"
    before = model.stat().st_mtime_ns, table.read_bytes()
    assert run(*line, "--frozen", "--layer", "-1", *QUICK).out == first.out
    assert (model.stat().st_mtime_ns, table.read_bytes()) == before
    other = run(*line, "--frozen", "--layer", "0", *QUICK)
    assert other.code == 2
    assert "layer was" in other.err
    report = json.loads(table.read_text())["reports"]["rte"]
    assert report["sizes"]["train"] == 6
    assert "6 of 8 items of train, evenly spaced." in report["notes"]
    page = (tmp_path / "glue" / "benchmark.html").read_text()
    assert "BERT-base (published, test)" in page
    assert (tmp_path / "glue" / "benchmark.md").read_text().startswith("| task | figure | frozen (dev, median) |")


def test_one_file_is_resumed_task_by_task(
    tiny: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stopped is finished by the same command, from the folder beside the output, which then goes."""
    write_rte(tmp_path / "rte", LABELS)
    (tmp_path / "wnli").mkdir()
    line = ("benchmark", "glue", "-m", tiny, "--data", tmp_path, "-o", tmp_path / "glue.html", "--frozen", *QUICK)
    for split in ("train", "dev"):
        (tmp_path / "wnli" / f"{split}.tsv").write_text("no such table\n")
    assert "another layout" in run(*line).err
    done = tmp_path / "glue.html.unfinished" / "rte" / "report.json"
    before = done.read_bytes()
    for split in ("train", "dev"):
        rows = "".join(f"{number}\tthe crane\ta fish\t{number % 2}\n" for number in range(8))
        (tmp_path / "wnli" / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    called: list[str] = []
    inner = polyseme.verbs.benchmark.finetune  # type: ignore[attr-defined]

    def watched(data: object, **options: object) -> object:
        called.append(data.name)  # type: ignore[attr-defined]
        return inner(data, **options)

    monkeypatch.setattr("polyseme.verbs.benchmark.finetune", watched)
    assert run(*line).code == 0
    assert called == ["wnli"]
    assert before
    assert not done.exists()
    assert "wnli" in (tmp_path / "glue.html").read_text()


def test_elmo_s_tasks_with_and_without_the_vectors(tiny: Path, tmp_path: Path, run: Run, refuse: Refuse) -> None:
    """A baseline without the model, its vectors beside that, what they gain, and the mean over what is there."""
    gap(tmp_path / "data" / "gap", *([ROW, changed(A_coref="FALSE", B_coref="TRUE")] * 4))
    for split in ("train", "dev", "test"):
        write_conll(tmp_path / "data" / "wikigold" / f"{split}.conll", 6)
    line = ("benchmark", "elmo-six", "--data", tmp_path / "data", "-o", tmp_path / "six.json", "--inner-width", "4")
    assert "elmo-six decides frozen (baseline, + vectors)" in refuse(*line, "-m", tiny, "--frozen", folder=tmp_path)
    assert "compares a model with none" in refuse(*line, "-m", "none", folder=tmp_path)
    assert run(*line, "-m", tiny, "--seeds", "2", *QUICK).code == 0
    table = json.loads((tmp_path / "six.json").read_text())
    rows = {row[0]: dict(zip(table["columns"], row, strict=False)) for row in table["rows"]}
    assert list(rows) == ["gap†", "wikigold†", "mean of gap, wikigold"]
    assert (rows["wikigold†"]["split"], rows["gap†"]["split"]) == ("test", "dev")
    assert (rows["gap†"]["baseline of 2018 (test)"], rows["gap†"]["ELMo (test)"]) == ("67.2", "70.4")
    assert any("without squad, snli, srl, sst5" in note for note in table["notes"])
    reports = table["reports"]
    assert set(reports) == {f"{task}/{name}" for task in ("gap", "wikigold") for name in ("baseline", "+ vectors")}
    assert reports["gap/baseline"]["model"] == "no language model"
    assert reports["gap/+ vectors"]["settings"]["layer"] == "mix"
    assert {each["settings"]["inputs"][0] for each in reports.values()} == {"char-cnn"}
    medians = [reports[f"gap/{name}"]["summary"]["dev"]["f1"]["median"] for name in ("baseline", "+ vectors")]
    gain = table["gains"]["gap"]["+ vectors"]
    assert gain["increase"] == pytest.approx(medians[1] - medians[0])
    assert gain["error_reduction"] == pytest.approx((medians[1] - medians[0]) / (1 - medians[0]))
    assert {"f1 (feminine)"} <= set(reports["gap/baseline"]["summary"]["dev"])


def test_samples_are_spaced_by_text() -> None:
    items = [Item(text=f"passage {number // 5}", second=str(number)) for number in range(100)]
    sample = _space_evenly(items, 10)
    assert [item.text for item in sample] == ["passage 0"] * 5 + ["passage 10"] * 5
    assert len(_space_evenly(items, 7)) == 7


def test_babylm_is_a_suite_that_fits_nothing(tmp_path: Path, tiny: Path, run: Run) -> None:
    folder = tmp_path / "data" / "blimp_filtered"
    folder.mkdir(parents=True)
    row = {"sentence_good": "Dawn broke.", "sentence_bad": "Broke dawn.", "UID": "a", "linguistics_term": "b"}
    (folder / "a.jsonl").write_text(json.dumps(row) + "\n")
    ended = run("benchmark", "babylm", "-m", tiny, "--data", tmp_path / "data", "--json")
    table = json.loads(ended.out)
    assert [row[0] for row in table["rows"]] == ["blimp"]
    assert table["mean"] is None, "of one part there is no mean"
    assert any("supplement part" in note for note in table["notes"])


def test_every_suite_names_tasks_that_there_are() -> None:
    for name, suite in SUITES.items():
        assert suite.name == name
        assert set(suite.mean_over) <= set(suite.names)
        assert len({strategy.name for strategy in suite.strategies}) == len(suite.strategies)
        if not suite.evaluation:
            assert set(suite.names) <= set(BENCHMARKS)

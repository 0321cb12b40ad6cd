"""`polyseme probe` on the command line: a table and a page, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.test_probe import NAMES, treebank
from cli.commands import Refuse, Run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    treebank(tmp_path / "train.conllu")
    treebank(tmp_path / "test.conllu", NAMES[:3])
    return tmp_path


def test_a_table_with_baselines_and_json(run: Run, files: Path, tiny: Path) -> None:
    command = ("probe", "tag", "--train", files / "train.conllu", "--test", files / "test.conllu", "-m", tiny)
    ended = run(*command, "--layers", "0,2", "--label", "xpos")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["layer", "0", "2", "majority", "per"]
    read = json.loads(run(*command, "--layers", "-1", "--json").out)
    assert (read["records"][0]["layer"], read["split"], read["n_labels"]) == ("3", "test", 4)
    mixed = run(*command, "--layers", "mix", "--max-items", 8, "-o", files / "mix.html")
    assert mixed.out.splitlines()[2].split()[0] == "mix"
    assert "The mix of all layers labels" in (files / "mix.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--label", "Numbr"), "Did you mean 'Number'?"),
        (("--layers", "0,7"), "Layer '7' is not there: the encoder has layers 0 to 3"),
        (("--layers", "mean:0:1"), "all, numbers, and mix"),
        (("--layers", "mix", "--control"), "all,mix"),
        (("--unit", "arc"), "Did you mean 'arcs'?"),
        (("--unit", "spans"), "Use --unit words"),
        (("--label", "Tense"), "have the same label, 'Past'"),
        (("--split", "train"), "must be dev or test"),
        (("--l2", "0"), "must be above 0"),
        (("--probe", "mlp", "--code-length"), "linear probes"),
        (("--seeds", "0"), "at least one seed"),
        (("-o", "probe.pdf"), "must end in .html"),
    ],
)
def test_refused(refuse: Refuse, files: Path, tiny: Path, options: tuple[str, ...], problem: str) -> None:
    command = ("probe", "tag", "--train", files / "train.conllu", "--test", files / "test.conllu", "-m", tiny)
    assert problem in refuse(*command, *options, folder=files)


def test_data_that_cannot_be_probed_is_refused(refuse: Refuse, files: Path, tiny: Path) -> None:
    def refused(*arguments: object) -> str:
        return refuse("probe", *arguments, "-m", tiny, folder=files)

    assert "labels of whole texts" in refused("sst2", "--data", files)
    assert "Did you mean 'ud-ewt'?" in refused("ud-ewtt")
    assert "is for data of your own" in refused("ud-ewt", "--train", files / "train.conllu")
    assert "--train FILE" in refused("edges")
    wrong = files / "wrong.conllu"
    wrong.write_text((files / "train.conllu").read_text(encoding="utf-8").replace("= Ann saw", "= Anne saw"), "utf-8")
    assert "wrong.conllu, line" in refused("tag", "--train", wrong)
    folder = files / "ud-ewt"
    folder.mkdir()
    treebank(folder / "en_ewt-ud-train.conllu")
    treebank(folder / "en_ewt-ud-dev.conllu", NAMES[:2])
    assert "has no test split" in refused("ud-ewt", "--data", files, "--split", "test")
    assert "is word 9" in _with_head_9(files, refused)
    (files / "bad.jsonl").write_text('{"text": "Dawn broke", "targets": [{"span1": [0, 3], "label": "a"}]}\n', "utf-8")
    assert "there are 2 words" in refused("edges", "--train", files / "bad.jsonl")
    assert "Leave --label out" in refused("edges", "--train", files / "bad.jsonl", "--label", "relation")
    (files / "bad.jsonl").write_text('{"text": "Dawn broke", "targets": [{"span1": [0, 1], "lable": "a"}]}\n', "utf-8")
    assert "needs 'label'. Did you mean 'lable'?" in refused("edges", "--train", files / "bad.jsonl")
    (files / "bad.jsonl").write_text('{"text": "Dawn broke", "targets": [{"span1": [0, 1], "label": ["a", "b"]}]}\n')
    assert "one label" in refused("edges", "--train", files / "bad.jsonl")


def _with_head_9(files: Path, refused: object) -> str:
    path = files / "heads.conllu"
    path.write_text((files / "train.conllu").read_text(encoding="utf-8").replace("\t4\tdet", "\t9\tdet"), "utf-8")
    return refused("tag", "--train", path, "--unit", "arcs")  # type: ignore[operator,no-any-return]

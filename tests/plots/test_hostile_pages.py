"""Every page that a verb writes, made of hostile texts, names, labels and folders, in a real browser: no script runs.

A page's policy forbids scripts that are not its own. Each page is also opened without its policy, so that the escaping
is tested, and not the policy alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

import polyseme
from plots.test_pages import check_policy
from polyseme.claims.claim_page import claim_page
from polyseme.claims.claim_result import packaged_results
from polyseme.claims.claim_table import CLAIMS
from polyseme.cli import VERBS, main
from polyseme.errors import PolysemeWarning
from polyseme.extras import later
from polyseme.plots.html_page import framed_page
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.task_folder import save_task_model
from polyseme.transfer.task_model import TaskConfig
from tiny_models import tiny_model

RUN = "document.title='RAN'"
WORD = f"<img/src=x/onerror={RUN}>"
"""One word, without blanks; also the name of a folder and of files, where `/` cannot be."""
NAME = f'"><img src=x onerror={RUN}>'
LINES = (
    f"<script>{RUN}</script> the vase broke",
    f"</script><script>{RUN}</script> dawn broke",
    f"</style></title></textarea><img src=x onerror={RUN}> the news broke",
    f'"><svg onload="{RUN}"> a crane broke',
    f"' autofocus onfocus='{RUN}' broke",
    f'javascript:{RUN} <a href="javascript:{RUN}">broke</a> <iframe src="javascript:{RUN}"></iframe>',
    f"]]> --> <!-- <base href=//evil> &lt;script&gt;{RUN}&lt;/script&gt; broke \u202e \u2028 \x1b[31m",
    f"{{{{{RUN}}}}} ${{{RUN}}} \\u003cscript\\u003e{RUN} broke",
)
LABELS = (WORD, f"</script><script>{RUN}</script>")


def tree(number: int) -> str:
    forms, relations = ("The", WORD, "broke"), (WORD, f"'onclick={RUN}", "root")
    lines = (
        f"{n + 1}\t{forms[n]}\t{forms[n]}\t{LABELS[(n + number) % 2]}\t_\t_\t{(2, 3, 0)[n]}\t{relations[n]}\t_\t_"
        for n in range(3)
    )
    return f"# text = {' '.join(forms)}\n" + "\n".join(lines) + "\n\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose very name is hostile, with models and inputs whose names and content are."""
    folder = tmp_path_factory.mktemp("pages") / NAME
    folder.mkdir()
    for family in ("bert", "lstm"):
        tiny_model(family, **({"max_positions": 400} if family == "bert" else {})).save(folder / f"{family} {NAME}")
    for kind in ("classify", "tag"):
        model = build_task_model(
            tiny_model("bert").bundle, TaskConfig(kind=kind, max_pieces=40), "linear", head_settings={"labels": LABELS}
        )
        save_task_model(model, folder / f"{kind} {NAME}", card={})
    (folder / f"texts {NAME}.txt").write_text("\n".join(LINES * 4) + "\n", encoding="utf-8")
    (folder / f"other {NAME}.txt").write_text("\n".join(reversed(LINES * 4)) + "\n", encoding="utf-8")
    rows = [{NAME: line, WORD: LABELS[n % 2], "id": NAME} for n, line in enumerate(LINES * 3)]
    (folder / f"rows {NAME}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs = [{"good": line, "bad": " ".join(reversed(line.split())), "group": WORD} for line in LINES]
    (folder / f"pairs {NAME}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    for name in ("trees", "dev"):
        (folder / f"{name} {NAME}.conllu").write_text("".join(map(tree, range(12))), encoding="utf-8")
    data = folder / "data" / "cola"
    data.mkdir(parents=True)
    for split in ("train", "dev"):
        (data / f"{split}.tsv").write_text(
            "".join(f"a\t{n % 2}\t*\t{line}\n" for n, line in enumerate(LINES * 2)), "utf-8"
        )
    return folder


TEXTS, OTHER = f"texts {NAME}.txt", f"other {NAME}.txt"
ROWS, PAIRS = f"rows {NAME}.jsonl", f"pairs {NAME}.jsonl"
TREES, DEV = f"trees {NAME}.conllu", f"dev {NAME}.conllu"
BERT, LSTM, CLASSIFY, TAG = (f"{name} {NAME}" for name in ("bert", "lstm", "classify", "tag"))
_FIT = ("--text", NAME, "--label", WORD, "--epochs", "1", "--batch-size", "8")
_SMALL = ("--set", "n_layers=1", "--set", "width=16", "--set", "n_heads=2", "--set", "inner_width=32", "--length", "16")
PAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "similar": (
        "out.html",
        [f"[{WORD}] broke", "--in", ROWS, "--field", NAME, "--fields", "all", "--id-field", "id", "-m", BERT],
    ),
    "senses": ("out.html", ["broke", "--in", ROWS, "--field", NAME, "--id-field", "id", "-m", BERT, "--names", BERT]),
    "concordance": (
        "out.html",
        ["broke", "--in", ROWS, "--field", NAME, "--fields", "all", "--like", f"{NAME} [broke]", "-m", BERT],
    ),
    "compare a word": ("out.html", ["broke", "--in", TEXTS, "--in", OTHER, "-m", BERT]),
    "compare all words": ("out.html", ["--in", TEXTS, "--in", OTHER, "--min-uses", "2", "-m", BERT]),
    "finetune": ("out/report.html", ["classify", "--train", ROWS, *_FIT, "--frozen", "-m", BERT]),
    "finetune tags": (
        "out/report.html",
        ["tag", "--train", TREES, "--dev", DEV, "--label", "upos", "--epochs", "1", "-m", BERT],
    ),
    "finetune on shares": (
        "out/report.html",
        ["classify", "--train", ROWS, *_FIT, "--frozen", "--train-share", "50%,100%", "-m", BERT],
    ),
    "tradeoffs": (
        "out.html",
        [ROWS, *_FIT[:4], "--forms", "full,bf16", "--rounds", "1", "--also", CLASSIFY, "-m", CLASSIFY],
    ),
    "benchmark": ("out.html", ["glue", "--data", "data", "--tasks", "cola", "--epochs", "1", "-m", BERT]),
    "prune": ("out/pruning.html", ["--dev", TEXTS, "--points", "1", "-m", BERT]),
    "sweep": (
        "out.html",
        [
            "finetune",
            "classify",
            "--train",
            ROWS,
            *_FIT,
            "--frozen",
            "-m",
            BERT,
            "--jobs",
            "0",
            "--row",
            f"{NAME}: learning_rate=0.1",
            "--row",
            f"{WORD.replace(':', '')}: learning_rate=0.2",
        ],
    ),
    "score": ("out.html", [ROWS, "--field", NAME, "--id-field", "id", "-m", BERT]),
    "evaluate": ("out.html", [PAIRS, "-m", BERT]),
    "evaluate a task model": ("out.html", [ROWS, *_FIT[:4], "-m", CLASSIFY]),
    "probe": ("out.html", ["tag", "--train", TREES, "--dev", DEV, "--label", "upos", "--control", "-m", BERT]),
    "probe trees": (
        "out.html",
        ["tag", "--structural", "depth", "--train", TREES, "--test", DEV, "--rank", "2", "-m", BERT],
    ),
    "show": ("out.html", ["-m", CLASSIFY]),
    "attention": ("out.html", [LINES[1], "--pieces", "-m", BERT]),
    "lens": ("out.html", [f"{LINES[0]} [MASK]", "-m", BERT]),
    "geometry": ("out.html", ["--in", TEXTS, "--against", BERT, "-m", BERT]),
    "heads": ("out.html", [DEV, "--train", TREES, "--min-count", "1", "-m", BERT]),
    "attribute": ("out.html", [*LINES[:3], "--steps", "2", "-m", CLASSIFY]),
    "attribute tags": ("out.html", ["the vase broke", "--word", "vase", "--steps", "2", "-m", TAG]),
    "uses": ("out.html", ["broke", "--in", TEXTS, "--sentence", f"{LINES[2]}", "-m", BERT]),
    "patch": ("out.html", [f"{WORD} vase [broke]", f"{WORD} news [is]", "-m", BERT]),
    "cells": ("out.html", [f"{LINES[3]} {LINES[1]}", "--property", "inside quotes", "-m", LSTM]),
}
"""The verb (with a word for what it is used for, where it has several pages), the page it writes, and its arguments."""


BY_FUNCTION = "claims"
"""The verb whose command takes too long: its page is made of a packaged result, with hostile names put into it."""
OF_THE_PACKAGE = "published"
"""The verb whose page shows what is in the package alone, and nothing of the user's."""

PICTURES: Mapping[str, tuple[str, Sequence[str]]] = {
    name: ("out.svg", PAGES[name][1]) for name in ("show", "senses", "tradeoffs", "evaluate", "evaluate a task model")
}
"""Pictures that browsers open, too; `sweep` and `finetune on shares` write theirs beside the page."""


def test_every_verb_with_a_page_is_here() -> None:
    def writes_pages(verb: str) -> bool:
        command: click.Command = later(f"polyseme.cli.{verb}").command
        outputs = [
            each.help or "" for each in command.params if isinstance(each, click.Option) and each.name == "output"
        ]
        return any(".html" in help for help in outputs) or verb == "sweep"

    here = {name.split(maxsplit=1)[0] for name in PAGES} | {BY_FUNCTION} | {OF_THE_PACKAGE}
    assert {verb for verb in VERBS if writes_pages(verb)} == here


def write(place: Path, number: int, name: str, page: str, arguments: Sequence[str]) -> Path:
    folder = place / f"{number} {NAME}"
    folder.mkdir()
    output = folder / page.partition("/")[0]
    with pytest.MonkeyPatch.context() as context, warnings.catch_warnings(action="ignore"):
        context.chdir(place)
        line = [name.split(maxsplit=1)[0], *arguments, "-o", str(output)]
        ended = CliRunner().invoke(main, line, catch_exceptions=False)
    assert ended.exit_code == 0, f"{name}: {ended.stderr}"
    return folder / page


@pytest.fixture(scope="module")
def written(place: Path) -> dict[str, Path]:
    """Every page, by what it is of."""
    pages = {name: write(place, number, name, *PAGES[name]) for number, name in enumerate(PAGES)}
    pages["view"] = place / "view.html"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        words = [[WORD, "broke", NAME, *LINES]]
        polyseme.view(polyseme.load(place / BERT).embed(words), to=WORD).save(pages["view"])
    pages[BY_FUNCTION] = place / "claim.html"
    pages[BY_FUNCTION].write_text(page_of_a_claim(), encoding="utf-8")
    return pages


def page_of_a_claim() -> str:
    """A packaged result as a file could have it: every text in it is hostile."""
    claim = CLAIMS["nnlm-with-kn5"]
    [result] = packaged_results(claim.name)
    runs = tuple(
        dataclasses.replace(run, settings={NAME: LINES[number % 8]}, message=WORD)
        for number, run in enumerate(result.sweep.runs)
    )
    outcomes = [{**outcome, "condition": LINES[2]} for outcome in result.outcomes]
    sweep = dataclasses.replace(result.sweep, title=NAME, runs=runs)
    texts = {"rule": LINES[0], "note": LINES[1], "device": LINES[3], "budget": WORD, "version": LINES[4]}
    return claim_page(claim, dataclasses.replace(result, outcomes=outcomes, sweep=sweep, **texts))


def in_browser(html: str, folder: Path, name: str) -> str:
    """What the browser makes of a page."""
    path = folder / f"{name}.html"
    path.write_text(html, encoding="utf-8")
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--dump-dom",
        f"--user-data-dir={folder / name}",
        path.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, check=True, timeout=300).stdout.decode("utf-8")


@pytest.mark.slow
def test_pictures_hold_nothing_that_runs(place: Path, written: dict[str, Path]) -> None:
    paths = [write(place, 100 + number, name, *PICTURES[name]) for number, name in enumerate(PICTURES)]
    beside = [written["sweep"].with_suffix(".svg"), written["finetune on shares"].with_name("curve.svg")]
    for path in [*paths, *beside]:
        elements = list(ElementTree.parse(path).iter())
        assert {"script", "foreignObject", "img", "iframe"}.isdisjoint(
            str(each.tag).rpartition("}")[2] for each in elements
        )
        names = {name for each in elements for name in each.attrib}
        assert not [name for name in names if name.startswith("on")]
        links = [value for each in elements for name, value in each.attrib.items() if name.endswith("href")]
        assert all(value.startswith("#") for value in links)


def has_run(dom: str) -> bool:
    return re.search(r"<title>\s*RAN", dom) is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_no_page_runs_what_a_text_says(written: dict[str, Path], tmp_path: Path) -> None:
    """As it is; without its policy; and in a notebook's frame, out of which nothing may break.

    That a page which does not escape its text would be found out is tested, too.
    """
    tried: list[tuple[str, str, str]] = [("unescaped", "nothing", f"<!doctype html><title>x</title>{LINES[2]}")]
    for name, path in written.items():
        html = path.read_text(encoding="utf-8")
        check_policy(html)
        assert "RAN" in html, f"the page of {name} shows nothing of the hostile text"
        bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
        assert bare != html
        framed = f"<!doctype html><title>notebook</title>{framed_page(bare)}"
        tried += [(name, "as it is", html), (name, "without its policy", bare), (name, "in a frame", framed)]
    with ThreadPoolExecutor(2) as pool:
        doms = pool.map(lambda each: in_browser(each[1][2], tmp_path, f"page{each[0]}"), enumerate(tried))
        ran = [(name, how) for (name, how, _), dom in zip(tried, doms, strict=True) if has_run(dom)]
    assert ran == [("unescaped", "nothing")]

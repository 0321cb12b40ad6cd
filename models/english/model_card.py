"""The card of a packaged model: what it is, its data with their licenses, training, cost, scores and limits.

Everything but the limits is read from files: run.json, ledger.json, log.jsonl and corpus/corpus.json in the folder of
the run, what `experiments/pretraining_rows.py` has written of it, and other reports in the folder's scores/ (`polyseme
evaluate … -o scores/agreement.json`, `polyseme benchmark glue … -o scores/glue`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polyseme
from polyseme.errors import InputError
from polyseme.metrics.evaluation_report import format_figure
from polyseme.model_card import front_matter, table
from polyseme.training.energy_ledger import Ledger
from polyseme.training.run_folder import LEDGER, Run

SOURCES: Mapping[str, tuple[str, str]] = {
    "wiki": ("English Wikipedia and Simple English Wikipedia, full articles", "CC BY-SA 3.0 and 4.0"),
    "edu": ("OpenStax college textbooks, 20 titles, revisions of 2023", "CC BY 4.0"),
    "books": ("Standard Ebooks editions of books from the 1790s to the early 1960s", "public domain (US), CC0"),
    "news-00": (
        "Wikinews 2019–2020; Digital.gov articles; 18F blog; US State of the Union and inaugural addresses",
        "CC BY 2.5; public domain (US), CC0",
    ),
    "web": (
        "Stack Exchange (beer, coffee, mathematics education, artificial intelligence, meta sites); ACL Anthology "
        "abstracts (2016 on); MedQuAD (NIH health pages)",
        "CC BY-SA; CC BY 4.0; CC BY 4.0",
    ),
    "chat": (
        "Topical-Chat (its valid and test conversations); Self-dialogue Corpus; Schema-Guided Dialogue (train)",
        "CDLA-Sharing 1.0; BSD-3-Clause; CC BY-SA 4.0",
    ),
}
"""How the name of a file of text begins → its sources, and their licenses. Text that is not listed is not published."""

LIMITS = """\
- A small model, trained once, with one seed, on little text: it knows common grammar and common words, few facts, and
  confuses what it knows. What it writes is not to be relied on.
- English only, most of it edited prose. The books speak as their times did, also about people; conversations have the
  typing errors that people made. Nothing was filtered for tone or bias, and what the model writes shows both.
- Wikipedia's extracts lost what templates produced: now and then a measure or a foreign name is missing in a sentence.
- Lines that share ten words in a row with the dev or test parts of the usual benchmarks were left out of the text;
  shorter overlaps, and training parts, were not looked for. Do not evaluate on Topical-Chat.
- It reads {window:,} pieces at once."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What a model is for: a sentence, a command that shows it, and the class of `transformers` that loads it."""

    kind: str
    example: str
    auto_class: str
    task: str


def card_of(name: str, use: Use, run: Path, result: Path, command: str, model: polyseme.Model) -> str:
    """The card, in Markdown; `result` is the file of the experiment, which may be missing."""
    settings = _settings(run, command)
    ledger = Ledger.from_json(_json(run / LEDGER))
    shown = model.show()
    parts = [
        _front_matter(use),
        f"# {name}\n\n{use.kind}: {shown.layers} layers of width {shown.width}, {shown.vocabulary:,} pieces, "
        f"{shown.parameters:,} parameters, stored in bf16. Trained from scratch by polyseme.",
        f"```sh\n{use.example}\n```",
        f"In Python, `polyseme.load({name!r})`; or, with the path that `polyseme models --json` gives,\n"
        f"`transformers.{use.auto_class}.from_pretrained(path)`.",
        _data(run),
        _training(run, _result(result, settings), command, settings),
        "## Cost\n\n" + "\n".join(f"- {line}" for line in ledger.lines()),
        _scores(run, _result(result, settings)),
        f"## Limits\n\n{LIMITS.format(window=shown.window or 0)}",
        "## License\n\nApache-2.0. The texts are not in the package; their licenses are above.",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(use: Use) -> str:
    fields = {"language": "en", "license": "apache-2.0", "library_name": "polyseme", "pipeline_tag": use.task}
    return front_matter(fields).rstrip()


# --- what is read -----------------------------------------------------------------------------------------------------


def _settings(run: Path, command: str) -> Mapping[str, Any]:
    """The settings of a finished run; refused where the command says otherwise."""
    opened = Run.open(run)
    if not opened.finished:
        raise InputError(f"{run} is not finished. Resume it with `polyseme pretrain --resume {run}`.")
    settings = opened.settings
    words = shlex.split(command)
    in_run = {"recipe": settings["recipe"], "budget": settings["budget"], "seed": settings["training"]["seed"]}
    for option, value in in_run.items():
        flag = f"--{option}"
        if flag not in words or words[words.index(flag) + 1] != str(value):
            raise InputError(
                f"The run in {run} has the {option} {value!r}, and the command of the card, `{command}`, has not "
                f"'{flag} {value}'. Write the command that was run into COMMANDS in pack.py."
            )
    return settings


def _result(path: Path, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an experiment has measured of the run; nothing where there is no such file."""
    result: Mapping[str, Any] = _json(path) if path.is_file() else {}
    if result and result["settings"] != settings:
        raise InputError(f"{path} is about a run with other settings than the one that is packed.")
    return result


def _json(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"There is no {path}. The card is written from it: copy it with the run.")
    return json.loads(path.read_text(encoding="utf-8"))


def _source_of(file: str) -> str:
    name = Path(file).name
    key = next((key for key in SOURCES if name.startswith(key)), None)
    if key is None:
        raise InputError(
            f"The run was trained on {name}, whose source and license are not in SOURCES of model_card.py. A model is "
            "packaged only if all of its text may be published: train it without that file."
        )
    return key


# --- sections ---------------------------------------------------------------------------------------------------------


def _data(run: Path) -> str:
    corpus = _json(run / "corpus" / "corpus.json")
    sources = corpus["sources"]
    files = sorted(Path(file).name for source in sources for file in source["files"])
    used = {key: [file for file in files if _source_of(file) == key] for key in SOURCES}
    counts = [source["splits"]["train"]["counts"] for source in sources]
    total = {name: sum(each[name] for each in counts) for name in ("bytes", "documents", "words", "pieces")}
    rows = [(", ".join(used[key]), *SOURCES[key]) for key in SOURCES if used[key]]
    case = "lowercased" if corpus["settings"].get("lowercase") else "in its own case"
    return (
        f"## Data\n\n{total['bytes'] / 1e6:,.1f} MB of English in {total['documents']:,} documents, {case}: "
        f"{total['words']:,} words, {total['pieces']:,} pieces; {corpus['settings']['held_out']:.1%} of the documents "
        "were held out.\n\n" + table(("files", "source", "license"), rows)
    )


def _training(run: Path, result: Mapping[str, Any], command: str, settings: Mapping[str, Any]) -> str:
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    held_out = next(line["held_out"]["loss"] for line in reversed(log) if "held_out" in line)
    beside = f" (unigram entropy {result['unigram_entropy']:.3f})" if result else ""
    lines = [
        f"## Training\n\nOne command, seed {settings['training']['seed']}:\n\n```sh\n{command}\n```",
        f"Loss on held-out documents at the end: {held_out:.3f} nats per piece{beside}.",
        *(["![Learning curve](curve.svg)"] if (run / "curve.svg").is_file() else []),
    ]
    return "\n\n".join(lines)


def _scores(run: Path, result: Mapping[str, Any]) -> str:
    """What the experiment measured; of every other report the figures of all items and of the widest groups."""
    parts = [_blimp(result["blimp"])] if "blimp" in result else []
    parts += [_glue(result["glue"])] if "glue" in result else []
    parts += [
        _glue(report) if "mean_over" in report else _evaluation(report)
        for path in sorted([*(run / "scores").glob("*.json"), *(run / "scores").glob("*/benchmark.json")])
        for report in [_json(path)]
    ]
    return "\n\n".join(["## Scores", *parts]) if parts else "## Scores\n\nNone were measured."


def _blimp(figures: Mapping[str, Any]) -> str:
    """By phenomenon, one column for each method of scoring."""
    methods = [each for each in figures.values() if isinstance(each, Mapping)]
    header = ("BLiMP, accuracy", *(each["method"] for each in methods))
    names = ["all", *methods[0]["phenomena"]]
    values = [{"all": each["accuracy"], **each["phenomena"]} for each in methods]
    return table(header, [(name, *(format_figure("accuracy", each[name]) for each in values)) for name in names])


def _evaluation(report: Mapping[str, Any]) -> str:
    column = next(iter(report["columns"]))
    rows = [
        (line["name"], f"{line['n']:,}", format_figure(column, line["figures"][column]))
        for line in report["lines"]
        if line["depth"] <= 1
    ]
    figures = table((report["evaluation"], "items", column.replace("_", " ")), rows)
    return f"{figures}\n\nScored {report['method']}."


def _glue(report: Mapping[str, Any]) -> str:
    columns, rows = report["columns"], report["rows"]
    return f"{table(columns, rows)}\n\n" + "\n".join(report["notes"])

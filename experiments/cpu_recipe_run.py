"""One tiny recipe, trained on the cores that this process is bound to, and what it makes of fixed prompts, as JSON.

`cpu_recipes.py` starts this script once per recipe.

    python experiments/cpu_recipe_run.py RECIPE TEXTS... -o runs/cpu --results results/ --budget 5min
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()  # before torch is imported

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from pretraining_runs import Clock, figures_of, model_folders, train  # noqa: E402
from tiny_prompts import CONTINUED, FILLED, REPLACED  # noqa: E402

import polyseme  # noqa: E402
from polyseme.api import Model  # noqa: E402

TOP = 5
Answer = dict[str, Any]
"""The columns and the rows of a table."""


def outputs_of(run: Path) -> list[dict[str, Any]]:
    """What the models of a run make of the prompts, each by what it can do."""
    outputs = []
    for folder in model_folders(run):
        model = polyseme.load(folder, device="cpu")
        outputs += [
            {"model": folder.name, "kind": kind, **answer(model)}
            for output, (kind, answer) in ANSWERS.items()
            if output in model.bundle.outputs
        ]
    return outputs


def fill(model: Model) -> Answer:
    """The likeliest pieces at the mask."""
    rows = []
    for prompt in FILLED:
        [filled] = model.fill(prompt, top=TOP)
        answers = [f"{piece} {share:.2f}" for piece, share in zip(filled.pieces, filled.probabilities, strict=True)]
        rows.append([prompt, ", ".join(answers)])
    return {"columns": ["prompt", f"the {TOP} likeliest pieces, with their probabilities"], "rows": rows}


def continue_texts(model: Model) -> Answer:
    """What follows: the likeliest piece each time, and a sample."""
    greedy = model.generate(CONTINUED, max_new=20, temperature=0)
    sampled = model.generate(CONTINUED, max_new=20, temperature=0.8, top_p=0.9, seed=0)
    rows = [list(row) for row in zip(CONTINUED, greedy, sampled, strict=True)]
    return {"columns": ["prompt", "greedy", "sampled (temperature 0.8, top-p 0.9, seed 0)"], "rows": rows}


def next_words(model: Model) -> Answer:
    """The likeliest next words, and what follows if the likeliest is taken each time."""
    likeliest = model.generate(CONTINUED, max_new=1, beam=TOP, n=TOP)
    greedy = model.generate(CONTINUED, max_new=12, temperature=0)
    words = (", ".join(word.strip() for word in each) for each in likeliest)
    rows = [list(row) for row in zip(CONTINUED, words, greedy, strict=True)]
    return {"columns": ["prompt", f"the {TOP} likeliest next words", "greedy"], "rows": rows}


def find_replaced(model: Model) -> Answer:
    """The words that look replaced most, and how sure the model is; a word is as suspect as its worst piece."""
    rows, n_right = [], 0
    for sentence, word, other in REPLACED:
        at = next(at for end in " ." if (at := sentence.find(f" {word}{end}") + 1))
        text = sentence[:at] + other + sentence[at + len(word) :]
        suspects = suspects_in(model, text)
        ranked = sorted(suspects, key=lambda start: -suspects[start])
        n_right += ranked[0] == at
        named = [f"{text[start:].split()[0].strip('.,')} {suspects[start]:.2f}" for start in ranked[:3]]
        rows.append([text, other, ", ".join(named)])
    columns = ["sentence", "replaced", "the three most suspect words, with their probabilities"]
    return {"columns": columns, "rows": rows, "n_right": n_right}


def suspects_in(model: Model, text: str) -> dict[int, float]:
    """For each word of a text, by where it starts, the probability that it was replaced."""
    read = model.pieces(text)
    with torch.inference_mode():
        shares = model.bundle.outputs["replaced"].log_probs(torch.from_numpy(read.states[-1]))[:, 1].exp().tolist()
    suspects: dict[int, float] = {}
    for (start, end), share in zip(read.spans.tolist(), shares, strict=True):
        if end > start:
            first = text.rfind(" ", 0, start + 1) + 1
            suspects[first] = max(suspects.get(first, 0.0), share)
    return suspects


ANSWERS: Mapping[str, tuple[str, Callable[[Model], Answer]]] = {
    "masked": ("fills masks", fill),
    "causal": ("continues texts", continue_texts),
    "two-way": ("predicts the next word", next_words),
    "replaced": ("finds replaced words", find_replaced),
}
"""By the output that it takes: what a model can do, and how it answers."""


def main() -> None:
    """Train, question, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--budget", default="5min")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run = options.output / options.recipe
    settings = {"recipe": options.recipe, "budget": options.budget, "seed": options.seed, "device": "cpu"}
    train(run, options.texts, Clock(STARTED, None), **settings)
    result = {
        "recipe": options.recipe,
        "request": settings,
        "cores": len(os.sched_getaffinity(0)),
        "texts": [Path(text).name for text in options.texts],
        **figures_of(run),
        "outputs": outputs_of(run),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    (options.results / f"{options.recipe}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

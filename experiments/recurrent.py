"""Recurrent language models trained in minutes: words of WikiText-2, characters, and a biLM of ELMo's smallest size.

    python experiments/recurrent.py wikitext WIKITEXT-2-FOLDER -o runs/ [--budget 5min]
    python experiments/recurrent.py characters TEXTS... -o runs/ [--budget 3min]
    python experiments/recurrent.py elmo TEXTS... -o runs/ [--budget 5min] [--fresh 0.1]

Each trains with `polyseme.pretrain`, writes its results to `runs/NAME.json`, and prints them. `--fresh` is the share of
rows in which the state of the biLM is reset; `curve` in the results has the held-out losses.

WikiText-2 is one stream of words in which every line that is not blank ends with a marker. The state is carried through
the whole file, as for the published figures. Those also count the ends of blank lines, which are easy to predict; here
blank lines are left out. The share and the sharpness of the cache are chosen on the validation file.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import machine

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.text.documents import string_to_document
from polyseme.types import Batch

SHARES = (0.1, 0.2, 0.3)
SHARPNESSES = (0.0, 0.1, 0.2, 0.4, 0.7)
CACHE = 2000
STRETCH = 2048
ELMO_WORDS = 32_768
"""Size of the biLM's softmax."""


def train(recipe: str, sources: list[str], run: Path, budget: str, **settings: Any) -> dict[str, Any]:
    """One run: its ledger, its last evaluation and figures of its corpus."""
    ledger = polyseme.pretrain(sources, output=run, recipe=recipe, budget=budget, force=True, **settings)
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    corpus = Corpus.open(run / "corpus")
    model = polyseme.load(run, device="cpu")
    return {
        "recipe": recipe,
        "settings": settings,
        "parameters": model.bundle.n_parameters(),
        "machine": machine("torch"),
        "train_pieces": corpus.n_pieces("train"),
        "unigram_entropy": corpus.unigram_entropy("held"),
        "held_out": next(line["held_out"] for line in reversed(log) if "held_out" in line),
        "curve": [[line["step"], line["held_out"]["loss"]] for line in log if "held_out" in line],
        "ledger": ledger.to_json(),
    }


# --- words ------------------------------------------------------------------------------------------------------------


def stream_of(path: Path, tokenizer: Any) -> torch.Tensor:
    """A file as one stream of words, with a marker at the end of each line that is not blank."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    end = [tokenizer.specials["end"]]
    encoded = tokenizer.encode_many([string_to_document(line) for line in lines])
    return torch.from_numpy(np.concatenate([np.concatenate([each.ids, end]) for each in encoded]))


@torch.inference_mode()
def read(model: polyseme.Model, stream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The state that predicts each word of a stream [N, D], carried through all of it, and log-probabilities [N]."""
    bundle = model.bundle
    ids = stream.to(bundle.device)
    before = torch.cat([ids[-1:], ids[:-1]])  # it begins as it ends, with the marker
    memory = bundle.encoder.new_memory(1)
    states, log_probs = [], []
    for inputs, targets in zip(before.split(STRETCH), ids.split(STRETCH), strict=True):
        result = bundle.encoder(Batch(inputs[None]), layers=[-1], memory=memory)
        memory = result.memory
        states.append(result[-1][0])
        log_probs.append(bundle.outputs["causal"].log_probs(states[-1]).gather(1, targets[:, None])[:, 0])
    return torch.cat(states), torch.cat(log_probs)


def perplexity(log_probs: torch.Tensor) -> float:
    """Per word, markers included."""
    return math.exp(-float(log_probs.double().mean()))


def wikitext(folder: list[str], runs: Path, budget: str) -> dict[str, Any]:
    """An LSTM of 2 × 650 (`lstm-lm`), with and without the cache."""

    def file(split: str) -> Path:
        return next(path for path in sorted(Path(folder[0]).iterdir()) if path.name.startswith(f"wiki.{split}"))

    results = train(
        "lstm-lm",
        [str(file("train"))],
        runs / "wikitext",
        budget,
        tokenizer="blanks",
        documents="line",
        held_out=0.005,
        dtype="fp32",
    )
    model = polyseme.load(runs / "wikitext", device="cuda" if torch.cuda.is_available() else "cpu")
    valid, test = (stream_of(file(split), model.bundle.tokenizer) for split in ("valid", "test"))
    (valid_states, valid_alone), (test_states, test_alone) = read(model, valid), read(model, test)

    def cached(settings: NeuralCache, states: torch.Tensor, stream: torch.Tensor, alone: torch.Tensor) -> float:
        return perplexity(Caches(settings)(0, states, stream.to(states.device), alone))

    settings_tried = [
        NeuralCache(size=CACHE, share=share, sharpness=sharpness) for share in SHARES for sharpness in SHARPNESSES
    ]
    perplexities = [cached(settings, valid_states, valid, valid_alone) for settings in settings_tried]
    best = settings_tried[int(np.argmin(perplexities))]
    return results | {
        "words": {"valid": len(valid), "test": len(test)},
        "valid": {"without": perplexity(valid_alone), "with": min(perplexities)},
        "test": {"without": perplexity(test_alone), "with": cached(best, test_states, test, test_alone)},
        "cache": {"size": best.size, "share": best.share, "sharpness": best.sharpness},
    }


# --- characters, and characters of words ------------------------------------------------------------------------------


def characters(texts: list[str], runs: Path, budget: str) -> dict[str, Any]:
    """`char-lm`: bits per character of held-out text."""
    results = train("char-lm", texts, runs / "characters", budget)
    return results | {"bits_per_character": results["held_out"]["loss"] / math.log(2)}


def elmo(texts: list[str], runs: Path, budget: str, fresh: float) -> dict[str, Any]:
    """`elmo-small` with a full softmax over the most frequent words and AdamW, for a budget of minutes.

    Nothing is clipped: clipping is for training with Adagrad, and without it cuDNN runs the layers.
    """
    results = train(
        "elmo-small",
        texts,
        runs / "elmo",
        budget,
        shape={"n_outputs": ELMO_WORDS, "cell_clip": None, "projection_clip": None},
        objective={"softmax": "full", "fresh": fresh},
        optimizer="adamw",
        learning_rate=1e-3,
        schedule="cosine",
        warmup=0.05,
    )
    return results | {"perplexity": {side: math.exp(results["held_out"][side]) for side in ("forward", "backward")}}


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "wikitext": wikitext,
    "characters": characters,
    "elmo": elmo,
}
BUDGETS = {"wikitext": "5min", "characters": "3min", "elmo": "5min"}


def main() -> None:
    """Train one, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--budget")
    parser.add_argument("--fresh", type=float, default=0.1, help="elmo: share of rows in which the state is reset")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    settings = {"fresh": options.fresh} if options.kind == "elmo" else {}
    results = KINDS[options.kind](options.texts, options.output, options.budget or BUDGETS[options.kind], **settings)
    (options.output / f"{options.kind}.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps({name: value for name, value in results.items() if name != "curve"}, indent=2))


if __name__ == "__main__":
    main()

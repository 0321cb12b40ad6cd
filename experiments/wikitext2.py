"""WikiText-2 by language models from counts to Transformers, over the same words: one table.

    python experiments/wikitext2.py run unigram kn5 nnlm nnlm+kn5 lstm lstm+cache lstm+kn5 transformer -o runs/
    python experiments/wikitext2.py run awd-lstm awd-lstm+cache -o runs/
    python experiments/wikitext2.py run lstm --budget 5min -o runs/
    python experiments/wikitext2.py table

POLYSEME_DATA names the folder of the data. Each row is trained with `polyseme.pretrain` into `runs/ROW`, evaluated, and
written to `experiments/results/wikitext2/ROW.json` (`--results`); rows with a + are made of those that were run before.
All have the 33,278 words of the training file, of which `<unk>` is one, and every line that is not blank ends with a
marker, which is predicted. The test file is read as one stream: recurrent models carry their state through all of it,
n-grams begin anew with each line. What is chosen besides weights (shares of mixtures, the cache's share and sharpness)
is chosen on the validation file. Seconds and kWh are those of the runs' ledgers, all in; of a mixture, those of its
models.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recurrent import CACHE, SHARES, SHARPNESSES, perplexity, read
from tables import data_folder, machine, table

import polyseme
from polyseme.datasets.wikitext import WordStream, read_wikitext
from polyseme.scoring.benchmark_items import stream_pieces
from polyseme.scoring.mixture import fit_weights, mix_log_probs
from polyseme.scoring.neural_cache import Caches, NeuralCache
from polyseme.scoring.text_scores import Floats
from polyseme.verb_options.text_options import ScoringOptions

RESULTS = Path(__file__).parent / "results" / "wikitext2"
DROPOUT = {"dropout_rate": 0.3, "embedding_dropout_rate": 0.3}
"""Of the Transformer, which reads these two million words dozens of times."""
COUNTED: dict[str, dict[str, Any]] = {"unigram": {"order": 1}, "kn5": {"order": 5}}
TRAINED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nnlm": ("nnlm", "5min", {}),
    "lstm": ("lstm-lm", "5min", {"dtype": "fp32"}),
    "awd-lstm": ("awd-lstm", "10min", {"batch_size": 80, "length": 70}),
    "transformer": ("gpt-mini", "3min", {"shape": DROPOUT}),
}
"""Row → recipe, budget and options."""
ROWS = ("unigram", "kn5", "nnlm", "nnlm+kn5", "lstm", "lstm+cache", "lstm+kn5", "awd-lstm", "awd-lstm+cache",
        "transformer")  # fmt: skip
NAMES = {
    "unigram": "unigram",
    "kn5": "KN5: n-grams up to 5, modified Kneser–Ney",
    "nnlm": "NNLM (Bengio et al. 2003)",
    "nnlm+kn5": "NNLM + KN5",
    "lstm": "LSTM, 2 × 650",
    "lstm+cache": "LSTM + cache of 2,000 words",
    "lstm+kn5": "LSTM + KN5",
    "awd-lstm": "AWD-LSTM, 3 × 1150 (Merity et al. 2018)",
    "awd-lstm+cache": "AWD-LSTM + cache of 2,000 words",
    "transformer": "Transformer, 8 × 384",
}
Result = dict[str, Any]


class Rows:
    """Runs and results of the rows."""

    def __init__(self, runs: Path, results: Path, budget: str | None, device: str) -> None:
        self.runs, self.results, self.budget, self.device = runs, results, budget, device
        self.folder = data_folder() / "wikitext-2"
        runs.mkdir(parents=True, exist_ok=True)
        results.mkdir(parents=True, exist_ok=True)

    def file(self, split: str) -> Path:
        """The file of a split, packed or not."""
        return next(path for path in sorted(self.folder.iterdir()) if path.name.startswith(f"wiki.{split}"))

    def stream(self, split: str) -> WordStream:
        return read_wikitext([self.file(split)])[0]

    def corpus(self) -> Path:
        """The training file, by lines, made once; every row has its tokenizer."""
        output = self.runs / "corpus"
        polyseme.build_corpus(
            self.file("train"),
            output=output,
            tokenizer="blanks",
            vocab_size=50_000,
            frame="lm",
            documents="line",
            held_out=0.005,
            reuse=True,
        )
        return output

    # --- rows ---------------------------------------------------------------------------------------------------------

    def run(self, row: str) -> Result:
        """Train and evaluate a row, and write its result."""
        if row in COUNTED:
            result = self._count(row)
        elif row in TRAINED:
            result = self._train(row)
        elif row.endswith("+cache"):
            result = self._cached(row.removesuffix("+cache"))
        else:
            result = self._mixed(row.split("+"))
        result = {"row": row, **result, "machine": machine("torch")}
        (self.results / f"{row}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return result

    def _count(self, row: str) -> Result:
        """Of all lines: nothing has to be held out."""
        ledger = polyseme.pretrain(
            self.file("train"),
            output=self.runs / row,
            recipe="kneser-ney",
            shape=COUNTED[row],
            tokenizer=str(self.corpus() / "tokenizer"),
            documents="line",
            held_out=0.0,
            force=True,
        )
        return {**self._evaluated(row), **_cost(ledger.to_json()), "recipe": "kneser-ney", "budget": None}  # type: ignore[union-attr]

    def _train(self, row: str) -> Result:
        recipe, budget, options = TRAINED[row]
        budget = self.budget or budget
        settings = {"recipe": recipe, "budget": budget, "device": self.device, **options}
        ledger = polyseme.pretrain(self.corpus(), output=self.runs / row, force=True, **settings)
        return {**self._evaluated(row), **_cost(ledger.to_json()), "recipe": recipe, "budget": budget}  # type: ignore[union-attr]

    def _evaluated(self, row: str) -> Result:
        model = self.model(row)
        started = time.perf_counter()
        figures = {split: math.exp(-float(self.log_probs(model, split).mean())) for split in ("valid", "test")}
        return {**figures, "parameters": model.show().parameters, "evaluation_seconds": time.perf_counter() - started}

    def _mixed(self, parts: list[str]) -> Result:
        models = [self.model(part) for part in parts]
        valid = np.stack([self.log_probs(model, "valid") for model in models])
        fitted = fit_weights(valid)
        test = np.stack([self.log_probs(model, "test") for model in models])
        figures = {
            split: math.exp(-float(mix_log_probs(each, fitted.weights).mean()))
            for split, each in (("valid", valid), ("test", test))
        }
        weights = dict(zip(parts, fitted.weights.tolist(), strict=True))
        return {**figures, "weights": weights, "fitting_steps": fitted.n_steps, **self._cost_of(parts)}

    def _cached(self, part: str) -> Result:
        """As in `recurrent.py`: the states of the whole stream once, and the best of some settings on validation."""
        model = self.model(part)
        ids = {split: self._ids(model, split) for split in ("valid", "test")}
        states = {split: read(model, stream) for split, stream in ids.items()}

        def cached(settings: NeuralCache, split: str) -> float:
            theirs, alone = states[split]
            return perplexity(Caches(settings)(0, theirs, ids[split].to(theirs.device), alone))

        tried = [NeuralCache(size=CACHE, share=share, sharpness=each) for share in SHARES for each in SHARPNESSES]
        perplexities = [cached(settings, "valid") for settings in tried]
        best = tried[int(np.argmin(perplexities))]
        chosen = {"size": best.size, "share": best.share, "sharpness": best.sharpness}
        figures = {"valid": min(perplexities), "test": cached(best, "test")}
        return {**figures, "cache": chosen, **self._cost_of([part])}

    # --- parts --------------------------------------------------------------------------------------------------------

    def model(self, row: str) -> polyseme.Model:
        """The model of a row that was run."""
        return polyseme.load(self.runs / row, device=self.device)

    def _ids(self, model: polyseme.Model, split: str) -> torch.Tensor:
        return torch.from_numpy(stream_pieces(self.stream(split), model.scorer(ScoringOptions(), None).tokenizer).ids)

    def log_probs(self, model: polyseme.Model, split: str) -> Floats:
        """Of every word of a split, natural."""
        scorer = model.scorer(ScoringOptions(), None)
        return scorer.pieces([stream_pieces(self.stream(split), scorer.tokenizer)])[0].log_probs

    def _cost_of(self, parts: list[str]) -> Result:
        theirs = [json.loads((self.results / f"{part}.json").read_text(encoding="utf-8")) for part in parts]
        costs = {name: sum(each[name] for each in theirs) for name in ("seconds", "kwh")}
        return {**costs, "device": ", ".join(dict.fromkeys(each["device"] for each in theirs))}


def _cost(ledger: dict[str, Any]) -> Result:
    return {"seconds": ledger["total_seconds"], "kwh": ledger["kwh"], "device": ledger["device"], "ledger": ledger}


def lines(results: Path) -> list[list[str]]:
    """The rows that were run, for the table."""
    rows = []
    for row in ROWS:
        path = results / f"{row}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in found.get("weights", {}).items())
        name = f"{NAMES[row]} ({weights})" if weights else NAMES[row]
        figures = [f"{found['valid']:.1f}", f"{found['test']:.1f}", f"{found['seconds']:,.0f}", f"{found['kwh']:.2g}"]
        rows.append([name, *figures, found["device"]])
    return rows


def main() -> None:
    """Run rows, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("-o", "--output", type=Path, help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--budget", help="of each row that is trained, instead of the usual")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.command == "run":
        unknown = [row for row in options.rows if row not in ROWS]
        if unknown or options.output is None:
            parser.error(f"there is no row {unknown[0]}" if unknown else "name the folder of the runs with -o")
        rows = Rows(options.output, options.results, options.budget, options.device)
        for row in options.rows or ROWS:
            result = rows.run(row)
            print(json.dumps({name: value for name, value in result.items() if name != "ledger"}, indent=2), flush=True)
    head = ["model", "validation perplexity", "test perplexity", "seconds, all in", "kWh", "device"]
    print(table(head, lines(options.results)))


if __name__ == "__main__":
    main()

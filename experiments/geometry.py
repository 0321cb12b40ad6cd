"""Anisotropy and self-similarity by layer, trained and with random weights, over samples of one corpus.

    python experiments/geometry.py run minilm                          # and: english-encoder, english-decoder
    python experiments/geometry.py run models/elmo --name elmo-small   # any model folder
    python experiments/geometry.py run minilm --random                 # the same architecture, random weights
    python experiments/geometry.py all [models/elmo]                   # the packaged models, and ELMo; all of it
    python experiments/geometry.py table                               # the tables, and docs/assets/geometry.svg

POLYSEME_DATA names the folder of the data. A sample is `--words` words in lines from all parts of its `corpus`, drawn
by a seed; there are three, with seeds 0, 1 and 2, which also draw word types and uses, and the random weights. Each run
is written to `experiments/results/geometry/NAME.json` (`--results`).

The rule, from before the runs over these samples (a trial of MiniLM over 20,000 words of news had been seen): a model's
anisotropy grows with height if in each of the three samples Spearman's correlation of layer and anisotropy is at least
0.8, and the top layer's is above that of layer 0 by more than 0.05. A model that does not meet it is reported so.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tables import machine, table

import polyseme
from polyseme.api import Model
from polyseme.embedding.decoder_stack import fresh_bundle
from polyseme.extras import require
from polyseme.metrics.task_metrics import spearman
from polyseme.plots.colors import group_color
from polyseme.plots.similarity_heatmaps import FAINT, FigurePage, figure_bytes

RESULTS = Path(__file__).parent / "results" / "geometry"
PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "geometry.svg"
PACKAGED = ("minilm", "english-encoder", "english-decoder")
MIN_CORRELATION, MIN_GROWTH = 0.8, 0.05
AS_THEY_ARE = "as they are"


def lines_of_corpus() -> list[str]:
    """The lines of all parts, of each the first 20 million characters."""
    folder = os.environ.get("POLYSEME_DATA")
    if folder is None:
        raise SystemExit("POLYSEME_DATA must name the folder of the data.")
    lines = []
    for part in sorted((Path(folder) / "corpus").glob("*.txt.xz")):
        with lzma.open(part, "rt", encoding="utf-8") as file:
            lines += [line for line in file.read(20_000_000).splitlines() if len(line.split()) > 4]
    return lines


def sample(lines: Sequence[str], seed: int, n_words: int) -> list[str]:
    """Random lines that have so many words together."""
    drawn, count = [], 0
    rng = random.Random(seed)
    while count < n_words:
        drawn.append(rng.choice(lines))
        count += len(drawn[-1].split())
    return drawn


def model_of(options: argparse.Namespace, seed: int) -> Model:
    """The model, or one like it with random weights."""
    loaded = polyseme.load(options.model, device=options.device)
    if not options.random:
        return loaded
    torch.manual_seed(seed)
    return Model(fresh_bundle(loaded.bundle).eval().to(loaded.bundle.device))


def run(options: argparse.Namespace, lines: Sequence[str] | None = None) -> None:
    """One model over all samples."""
    lines = lines or lines_of_corpus()
    name = (options.name or Path(options.model).name) + (".random" if options.random else "")
    samples = []
    for seed in options.seeds:
        texts = sample(lines, seed, options.words)
        found = polyseme.geometry(
            model=model_of(options, seed), source=texts, split="sentence", max_words=options.words, seed=seed
        )
        samples.append({"seed": seed, "data": found.data, "records": [*map(rounded, found.records())]})
        print(
            name, seed, [round(each.anisotropy, 3) for each in found.layers if each.vectors == AS_THEY_ARE], flush=True
        )
    result = {"model": name, "words": options.words, "samples": samples, "machine": machine("torch")}
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in record.items()}


def every(options: argparse.Namespace) -> None:
    """The packaged models and the folders that are named, trained and with random weights."""
    lines = lines_of_corpus()
    for model in (*PACKAGED, *options.models):
        for is_random in (False, True):
            run(argparse.Namespace(**vars(options), model=model, random=is_random, name=None), lines)


# --- tables -----------------------------------------------------------------------------------------------------------


def by_layer(result: dict[str, Any], field: str, vectors: str = AS_THEY_ARE) -> list[list[float]]:
    """For each layer, the figures of all samples; of vectors as they are, or of the others."""
    rows: dict[int, list[float]] = {}
    for each in result["samples"]:
        for record in each["records"]:
            if (record["vectors"] == AS_THEY_ARE) == (vectors == AS_THEY_ARE):
                rows.setdefault(record["layer"], []).append(record[field])
    return list(rows.values())


def grows(result: dict[str, Any]) -> tuple[bool, float, float]:
    """Whether the rule holds; the lowest correlation and the smallest growth among the samples."""
    layers = by_layer(result, "anisotropy")
    samples = list(zip(*layers, strict=True))
    lowest = min(spearman(list(range(len(each))), list(each)) for each in samples)
    growth = min(each[-1] - each[0] for each in samples)
    return lowest >= MIN_CORRELATION and growth > MIN_GROWTH, lowest, growth


def results_of(folder: Path) -> list[dict[str, Any]]:
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    if not results:
        raise SystemExit(f"{folder} holds no results.")
    return results


def markdown(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Two tables, and the rule."""
    n_layers = max(len(by_layer(result, "anisotropy")) for result in results)
    for field, title in (
        ("anisotropy", "Anisotropy"),
        ("self_similarity_adjusted", "Self-similarity, adjusted for anisotropy"),
    ):
        rows = []
        for result in results:
            layers = by_layer(result, field)
            cells = [f"{statistics.mean(each):.2f}" for each in layers]
            largest = max(map(statistics.stdev, layers))
            rows.append([result["model"], *cells, *[""] * (n_layers - len(cells)), f"{largest:.3f}"])
        yield f"**{title}**\n\n{table(['model', *map(str, range(n_layers)), 'largest sd'], rows)}\n"
    rows = []
    for result in results:
        holds, lowest, growth = grows(result)
        rows.append([result["model"], f"{lowest:.2f}", f"{growth:+.2f}", "yes" if holds else "no"])
    yield table(["model", "lowest correlation with layer", "smallest growth", "grows with height"], rows)


def picture(results: Sequence[dict[str, Any]]) -> bytes:
    """Anisotropy by relative height; random weights dashed."""
    page = FigurePage()
    page.resize(10.4, 3.9)
    names = sorted({result["model"].removesuffix(".random") for result in results})
    fields = (("anisotropy", "anisotropy"), ("self_similarity_adjusted", "self-similarity, adjusted"))
    for number, (field, label) in enumerate(fields):
        axes = page.axes(0.75 + 4.1 * number, 0.35, 3.3, 2.9)
        for result in results:
            layers = [statistics.mean(each) for each in by_layer(result, field)]
            is_random = result["model"].endswith(".random")
            heights = [layer / max(len(layers) - 1, 1) for layer in range(len(layers))]
            color = group_color(names.index(result["model"].removesuffix(".random")))
            axes.plot(heights, layers, color=color, linestyle="--" if is_random else "-", marker="o", markersize=3,
                      label=result["model"].replace(".random", ", random"))  # fmt: skip
        axes.set_xlabel("height (0: token layer, 1: top)", fontsize=9, color=FAINT)
        axes.set_title(label, fontsize=10, loc="left")
        axes.tick_params(labelsize=8, colors=FAINT)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure_bytes(page.figure, "svg")


def main() -> None:
    """Run one or all, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("model")
    runner.add_argument("--name", help="of the model in results")
    runner.add_argument("--random", action="store_true", help="random weights")
    commands.add_parser("all").add_argument("models", nargs="*")
    commands.add_parser("table").add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.command == "all":
        every(options)
    else:
        require("matplotlib", extra="plots")
        results = results_of(options.results)
        print("\n".join(markdown(results)))
        options.picture.write_bytes(picture(results))


if __name__ == "__main__":
    main()

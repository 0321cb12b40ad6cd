"""A small Transformer trained to translate: Multi30k, English to German, within four minutes on one GPU.

    python experiments/translation.py -o runs/ [--budget 4min] [--beam 4] [--draw attention.svg]

Trains with `polyseme.pretrain` on the training pairs (POLYSEME_DATA names the data folder), evaluates on the validation
pairs, translates the test set of 2016 with `polyseme generate`, and prints BLEU by sacrebleu with its signature and the
cost of training. `--draw` plots what each piece of one translation attends to in its source, layer by layer, averaged
over heads.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import sacrebleu
import torch
from matplotlib import pyplot as plt
from tables import data_folder, lines_of, machine, table

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.text.documents import string_to_document
from polyseme.types import Batch

TEST = "test_2016_flickr"


def train(folder: Path, budget: str, device: str, *, recipe: str = "transformer-tiny", **settings: object) -> Path:
    """Train; return the folder of the run."""
    data = data_folder() / "multi30k"
    run = folder / "ende.run"
    polyseme.pretrain(
        source=data / "train.en.xz",
        target=data / "train.de.xz",
        held_source=data / "val.en.xz",
        held_target=data / "val.de.xz",
        output=run,
        recipe=recipe,
        budget=budget,
        device=device,
        workers=4,
        evaluate_every=250,
        force=True,
        **settings,  # type: ignore[arg-type]
    )
    return run


def translate(run: Path, folder: Path, beam: int, device: str) -> Path:
    """Translate the sources of the test set, line by line, with the command line."""
    sources, output = folder / f"{TEST}.en", folder / f"{TEST}.hyp"
    lines = lines_of(data_folder() / "multi30k" / f"{TEST}.en")
    sources.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "polyseme", "generate", "--in", str(sources), "-m", str(run), "--beam", str(beam),
         "--max-new", "100", "--device", device, "-o", str(output), "--force"],
        check=True,
    )  # fmt: skip
    return output


def report(run: Path, output: Path, beam: int) -> None:
    """Print BLEU, the held-out loss, and the cost."""
    references = lines_of(data_folder() / "multi30k" / f"{TEST}.de")
    hypotheses = output.read_text(encoding="utf-8").splitlines()
    if len(hypotheses) != len(references):
        raise SystemExit(f"{output} has {len(hypotheses)} lines, but there are {len(references)} references.")
    bleu = sacrebleu.metrics.BLEU()
    score = bleu.corpus_score(hypotheses, [references])
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["held_out"]["loss"] for line in log if "held_out" in line]
    ledger = json.loads((run / "ledger.json").read_text())
    entropy = Corpus.open(run / "corpus").unigram_entropy("held")
    print(
        table(
            ("BLEU", "beam", "held-out loss", "unigram entropy", "steps", "seconds", "FLOPs", "kWh"),
            [
                (
                    f"{score.score:.1f}",
                    str(beam),
                    f"{losses[-1]:.3f} (lowest {min(losses):.3f})",
                    f"{entropy:.3f}",
                    f"{ledger['steps']:,}",
                    f"{ledger['seconds']:.0f}",
                    f"{ledger['flops']:.2e}",
                    f"{ledger['kwh']:.4f}",
                )
            ],
        )
    )
    print(f"\n{bleu.get_signature()}\n{machine('sacrebleu')}; trained on {ledger['device']}")


def draw(model: polyseme.Model, source: str, target: str, picture: Path) -> None:
    """The attention of every layer of the decoder to the source."""
    bundle = model.bundle
    tokenizer = bundle.tokenizer
    source_ids = tokenizer.frame(tokenizer.encode(string_to_document(source)).ids).ids
    target_ids = tokenizer.encode(string_to_document(target)).ids
    decoder_ids = np.concatenate([[tokenizer.specials[bundle.family.first]], target_ids])
    with torch.inference_mode():
        states = bundle.encoder(Batch(torch.from_numpy(source_ids)[None]))
        decoded = bundle.decoder(Batch(torch.from_numpy(decoder_ids)[None], source=states), attentions=True)

    def shown(ids: np.ndarray) -> list[str]:
        return [tokenizer.decode([number]).strip() or tokenizer.pieces([number])[0] for number in ids.tolist()]

    if "cross" not in decoded.attentions:
        raise SystemExit("The decoder has no attention to draw.")
    layers = [each[0].mean(dim=0).numpy() for each in decoded.attentions["cross"]]
    figure, axes = plt.subplots(1, len(layers), figsize=(4.2 * len(layers), 4.6), sharey=True, layout="constrained")
    for number, (axis, weights) in enumerate(zip(np.atleast_1d(axes), layers, strict=True), start=1):
        axis.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(f"layer {number}", fontsize=10)
        axis.set_xticks(range(len(source_ids)), shown(source_ids), rotation=90, fontsize=7)
        axis.set_yticks(range(len(decoder_ids)), [*shown(target_ids), "(end)"], fontsize=7)
    if len(layers) > 1:  # else it is wider than the picture
        figure.suptitle("What the decoder attends to in the source when it generates each piece", fontsize=11)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)


def main() -> None:
    """Train, translate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--budget", default="4min")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints")
    parser.add_argument("--translate-only", action="store_true", help="use the existing run")
    parser.add_argument("--draw", type=Path, help="an .svg or .png of the attention of the first translation")
    settings = parser.parse_args()
    settings.output.mkdir(parents=True, exist_ok=True)
    run = settings.output / "ende.run"
    if not settings.translate_only:
        run = train(settings.output, settings.budget, settings.device)
        if not settings.keep:
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
    output = translate(run, settings.output, settings.beam, settings.device)
    report(run, output, settings.beam)
    if settings.draw is not None:
        [source], [target] = lines_of(settings.output / f"{TEST}.en")[:1], lines_of(output)[:1]
        draw(polyseme.load(run, device="cpu"), source, target, settings.draw)


if __name__ == "__main__":
    main()

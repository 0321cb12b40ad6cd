"""Make the package of English models from the folders of two finished runs, in one command.

    python models/english/pack.py runs/box-encoder-seed0 runs/box-decoder-seed0

Weights are stored in bf16, in files of at most 15 MB, with tokenizer and card, in src/polyseme_english/encoder and
decoder. A run's folder holds run.json, ledger.json, log.jsonl, corpus/corpus.json and model/. Its scores are those that
`experiments/pretraining_rows.py` wrote under the run's name into experiments/results/pretraining, and any reports of
`polyseme evaluate` and `polyseme benchmark glue` in the folder's scores/. Nothing is replaced unless both models are of
the right kind, all of their text may be published, and the files are small enough.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from model_card import Use, card_of

import polyseme
from polyseme.errors import InputError, PolysemeError
from polyseme.packaged_models import PACKAGED

MODULE = Path(__file__).parent / "src" / "polyseme_english"
RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "pretraining"
LARGEST_FILE = 15_000_000
LARGEST_PACKAGE = 100_000_000
SHARD_SIZE = 14_900_000
"""Bytes of weights in a file, with room for its header."""

TEXTS = "texts/{wiki,edu,books,web,chat}-*.txt.xz texts/news-00.txt.xz"
COMMANDS: Mapping[str, str] = {
    "encoder": f"polyseme pretrain {TEXTS} --recipe modern-small --budget 6min --seed 0 -o runs/encoder",
    "decoder": f"polyseme pretrain {TEXTS} --recipe gpt-mini --budget 270s --seed 0 -o runs/decoder",
}
"""The commands that trained the models, as their cards give them; recipe, budget and seed must be those of the runs."""

USES: Mapping[str, Use] = {
    "encoder": Use(
        kind="A masked language model of English in ModernBERT's layout",
        example='polyseme fill "The vase [MASK] into pieces."',
        auto_class="AutoModelForMaskedLM",
        task="fill-mask",
    ),
    "decoder": Use(
        kind="A causal language model of English in GPT-2's layout",
        example='polyseme generate "In a shocking finding, scientists"',
        auto_class="AutoModelForCausalLM",
        task="text-generation",
    ),
}
FAMILIES = {"encoder": "modernbert", "decoder": "gpt2"}


def pack(
    runs: Mapping[str, Path],
    output: Path = MODULE,
    *,
    commands: Mapping[str, str] = COMMANDS,
    results: Path = RESULTS,
    largest_package: int = LARGEST_PACKAGE,
) -> int:
    """Write both models, or nothing; return the bytes of all files."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".packing-") as place:
        for name, run in runs.items():
            write_model(name, run, Path(place) / name, commands[name], results / f"{run.name}.json")
        size = check_sizes(Path(place), largest_package)
        for name in runs:
            shutil.rmtree(output / name, ignore_errors=True)
            (Path(place) / name).rename(output / name)
    return size


def write_model(name: str, run: Path, folder: Path, command: str, result: Path) -> None:
    """Store a run's model, with its card."""
    model = polyseme.load(run, device="cpu")
    shown, packaged = model.show(), PACKAGED[f"english-{name}"]
    if shown.family != FAMILIES[name] or not {*packaged.defaults} <= {*shown.can}:
        raise InputError(
            f"{run} is no model for the {name}: it is of the family {shown.family} and can {', '.join(shown.can)}. "
            f"Wanted is {FAMILIES[name]}, for {', '.join(packaged.defaults)}."
        )
    card = card_of(packaged.name, USES[name], run, result, command, model)
    model.save(folder, store="bf16", shard_size=SHARD_SIZE)
    (folder / "README.md").write_text(card, encoding="utf-8")
    if (run / "curve.svg").is_file():
        shutil.copy(run / "curve.svg", folder)


def check_sizes(folder: Path, largest_package: int) -> int:
    """The bytes of all files; refused where one of them, or all, are too many."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    for path, size in sizes.items():
        if size > LARGEST_FILE:
            raise InputError(f"{path.relative_to(folder)} has {size:,} bytes; a file has at most {LARGEST_FILE:,}.")
    total = sum(sizes.values())
    if total > largest_package:
        raise InputError(f"The models have {total:,} bytes together; the package has at most {largest_package:,}.")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path, help="the folder of the run that trained the masked model")
    parser.add_argument("decoder", type=Path, help="the folder of the run that trained the causal model")
    options = parser.parse_args()
    try:
        size = pack({"encoder": options.encoder, "decoder": options.decoder})
    except PolysemeError as error:
        sys.exit(f"pack.py: {error}")
    print(f"{MODULE}: two models, {size / 1e6:,.1f} MB")


if __name__ == "__main__":
    main()

"""Sound files of every kind that polyseme reads, small, made once; hostile ones are copies that were spoilt."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner

import flair_files
import polyseme
from golden_awd_lstm import arrays
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.task_folder import save_task_model
from tiny_models import TEXT, tiny_model
from transfer.small_tasks import small_task

LINES = "The vase broke .\nDawn broke .\nA crane caught a fish .\nSandy broke the law .\n"
VECTORS = (".parquet", ".npz", ".safetensors", ".h5", ".jsonl")


def command(*arguments: object) -> None:
    """Carry out a command that must succeed."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


@dataclass(eq=False)
class Sound:
    """A folder with a sound thing of each kind, made when it is first asked for; `copy` gives one to spoil."""

    root: Path

    def copy(self, name: str, place: Path) -> Path:
        """A copy of a sound file or folder, at a place that is free."""
        made = self.path(name)
        return Path(shutil.copytree(made, place, symlinks=True) if made.is_dir() else shutil.copy(made, place))

    def path(self, name: str) -> Path:
        """Where a sound thing is."""
        made = self.root / name
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            kind, _, rest = name.partition("/")
            MAKERS[kind](self, rest, made)
        return made

    @cached_property
    def text(self) -> Path:
        """A file of texts."""
        path = self.root / "texts.txt"
        path.write_text(LINES, encoding="utf-8")
        return path


def _family(sound: Sound, family: str, place: Path) -> None:
    tiny_model(family).save(place)


def _sharded(sound: Sound, family: str, place: Path) -> None:
    tiny_model(family).save(place, shard_size=20_000)


def _plain_vocabulary(sound: Sound, family: str, place: Path) -> None:
    """A model with its vocabulary in the files of the first years."""
    sound.copy(f"family/{family}", place)
    (place / "tokenizer.json").unlink()
    (place / "polyseme.json").unlink()
    model = json.loads((sound.path(f"family/{family}") / "tokenizer.json").read_text())["model"]
    if family == "bert":
        (place / "vocab.txt").write_text("\n".join(model["vocab"]) + "\n", encoding="utf-8")
    else:
        (place / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
        merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
        (place / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")


def _sentences(sound: Sound, rest: str, place: Path) -> None:
    command("convert", "-m", sound.path("family/bert"), "--to", "sentence-transformers", "-o", place)


def _task(sound: Sound, kind: str, place: Path) -> None:
    settings = FinetuneSettings(epochs=1, learning_rate=1e-2, batch_size=16)
    done = finetune_task(small_task(kind, n_train=32, n_dev=8), tiny_model("bert").bundle, settings)
    save_task_model(done.model, place)


def _vectors(sound: Sound, suffix: str, place: Path) -> None:
    command("embed", sound.text, "-m", sound.path("family/bert"), "-o", place)


def _index(sound: Sound, rest: str, place: Path) -> None:
    model = sound.path("family/bert")
    command("similar", "The [vase] broke .", "--in", sound.text, "--index", place, "-m", model)


def _senses(sound: Sound, rest: str, place: Path) -> None:
    model = sound.path("family/bert")
    command("senses", "broke", "--in", sound.text, "--n-senses", 1, "-m", model, "-o", place)


def _run(sound: Sound, recipe: str, place: Path) -> None:
    texts = sound.root / "corpus.txt"
    texts.write_text(TEXT * 20, encoding="utf-8")
    small = [
        each for setting in ("n_layers=1", "width=16", "n_heads=2", "inner_width=16") for each in ("--set", setting)
    ]
    options = ["--recipe", recipe, "--budget", "3steps", "--vocab-size", 200, "--device", "cpu"]
    command("pretrain", texts, *options, *small, "-o", place)


def _corpus(sound: Sound, rest: str, place: Path) -> None:
    shutil.copytree(sound.path("run/bert-tiny") / "corpus", place)


def _static(sound: Sound, kind: str, place: Path) -> None:
    words = ["the", "vase", "broke", "dawn", "crane"]
    numbers = np.arange(20, dtype="<f4").reshape(5, 4) / 10
    if kind == "glove.txt":
        rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, numbers.tolist(), strict=True)]
        place.write_text("\n".join(rows) + "\n", encoding="utf-8")
    elif kind == "fasttext.bin":
        place.write_bytes((Path(__file__).parents[1] / "golden" / "fasttext" / "skipgram.bin").read_bytes())
    else:
        rows_of_bytes = [f"{word} ".encode() + row.tobytes() + b"\n" for word, row in zip(words, numbers, strict=True)]
        place.write_bytes(b"5 4\n" + b"".join(rows_of_bytes))


def _arpa(sound: Sound, rest: str, place: Path) -> None:
    place.write_text(ARPA, encoding="utf-8")


ARPA = r"""
\data\
ngram 1=5
ngram 2=2

\1-grams:
-99 <s> -0.3
-1 </s>
-1 <unk>
-0.5 the -0.2
-0.7 vase

\2-grams:
-0.4 <s> the
-0.3 the vase

\end\
"""


def _ngrams(sound: Sound, rest: str, place: Path) -> None:
    polyseme.load(sound.path("arpa/model.arpa")).save(place)


def _fastai(sound: Sound, rest: str, place: Path) -> None:
    place.mkdir()
    words = ["xxunk", "xxpad", "xxbos", "xxmaj", *(f"w{number}" for number in range(4, 48)), "xxfake", "xxfake"]
    (place / "itos_wt103.pkl").write_bytes(pickle.dumps(words))
    torch.save(arrays("forward"), place / "lstm_wt103.pth")


def _flair(sound: Sound, rest: str, place: Path) -> None:
    flair_files.write_files(place)


MAKERS: Mapping[str, Callable[[Sound, str, Path], None]] = {
    "family": _family,
    "sharded": _sharded,
    "vocabulary": _plain_vocabulary,
    "sentences": _sentences,
    "task": _task,
    "vectors": _vectors,
    "index": _index,
    "senses": _senses,
    "run": _run,
    "corpus": _corpus,
    "static": _static,
    "arpa": _arpa,
    "ngrams": _ngrams,
    "fastai": _fastai,
    "flair": _flair,
}
EVERY_FAMILY = tuple(FAMILIES)

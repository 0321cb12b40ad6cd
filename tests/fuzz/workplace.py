"""Where random command lines work: tiny models of several kinds, and small inputs, good and bad."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path

import polyseme
from polyseme.errors import PolysemeWarning
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.task_folder import save_task_model
from polyseme.transfer.task_model import TaskConfig
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, classify, pair, tag

FAMILIES = ("bert", "gpt2", "lstm", "t5", "static")
TASKS = {"stars": "classify", "nli": "pair", "tagger": "tag", "answers": "span"}
SENTENCES = """\
The vase broke.
Dawn broke.
The news broke and the burglar broke into the house.
Sandy broke the world record, and Sandy broke the law.
A crane caught a fish.
A crane picked up the steel beam.
I saw a crane.
The tire is flat, the beer is flat, the note is flat.
"Are there typos? I didn't see any."

They throw a party; they throw a ball!
We broke even (or so they said).
"""
TREE = """\
# text = The vase broke
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tvase\tvase\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tbroke\tbreak\tVERB\tVBD\t_\t0\troot\t_\t_

# text = A crane caught a fish
1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_
2\tcrane\tcrane\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tcaught\tcatch\tVERB\tVBD\t_\t0\troot\t_\t_
4\ta\ta\tDET\tDT\t_\t5\tdet\t_\t_
5\tfish\tfish\tNOUN\tNN\t_\t3\tobj\t_\t_

"""


def _inputs() -> Mapping[str, str | bytes]:
    draw = random.Random(1)
    rated = [classify(draw) for _ in range(16)]
    pairs = [pair(draw) for _ in range(16)]
    tagged = [tag(draw) for _ in range(12)]
    table = [
        "id,text,second,label,number",
        *(f'{n},"{each.text}",a crane,{each.gold},{n % 5}' for n, each in enumerate(rated)),
    ]
    return {
        "texts.txt": SENTENCES * 2,
        "other.txt": "They broke a crane.\nThe crane broke.\nA flat tire broke the news.\n" * 5,
        "packed.txt.gz": gzip.compress(SENTENCES.encode()),
        "a b.txt": "The vase broke.\n",
        "texts/one.txt": SENTENCES,
        "texts/two.txt": "Dawn broke over the house.\n\nThe law broke.\n",
        "rows.csv": "\n".join(table) + "\n",
        "rows.jsonl": "".join(json.dumps({"text": each.text, "label": each.gold, "n": 1}) + "\n" for each in rated),
        "pairs.tsv": "".join(f"{each.text}\t{each.second}\t{each.gold}\n" for each in pairs),
        "good_bad.tsv": "good\tbad\n" + "the dawn broke a vase\tbroke the a vase dawn\n" * 4,
        "tags.conll": "".join(
            "".join(f"{word}\t{gold}\n" for word, gold in zip(each.words, each.gold, strict=True)) + "\n"
            for each in tagged
        ),
        "trees.conllu": TREE * 6,
        "dev.conllu": TREE * 2,
        "marked.txt": "Dawn [broke].\nThe vase [broke].\n",
        "nested.jsonl": '{"text": {"a": [1, 2]}}\n{"text": null}\n{"text": ["The", "vase"]}\n',
        "empty.txt": "",
        "blank.txt": "  \n\n \t\n",
        "latin.txt": b"Dawn broke.\nD\xe4mmerung\n",
        "zeros.txt": b"Dawn\0broke\n" * 3,
        "image.txt": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        "ragged.csv": 'text,label\n"a,b\nc,d,e\n',
        "cut.parquet": b"PAR1\x00\x00",
        "there.html": "precious",
        "there.npz": "precious",
        "there/notes": "precious",
    }


def build_models(folder: Path, *, families: tuple[str, ...] = FAMILIES) -> None:
    """Models that no command line changes: encoders, decoders, task models, a run, an index, and a damaged folder."""
    folder.mkdir()
    for family in families:
        tiny_model(family).save(folder / family)
    for name, kind in TASKS.items():
        settings = {name: value for name, value in MAKERS[kind][1].items() if name == "labels"}
        model = build_task_model(
            tiny_model("bert").bundle, TaskConfig(kind=kind, max_pieces=40), "linear", head_settings=settings
        )
        save_task_model(model, folder / name, card={})
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.json").write_text('{"model_type": "bert"}')


def build_results(folder: Path) -> None:
    """What earlier commands would have left: a corpus, a run, a count of n-grams, an index, vectors, senses."""
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        inputs = folder / "texts"
        write_inputs(inputs)
        texts = inputs / "texts.txt"
        shape = {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32}
        polyseme.build_corpus(
            texts, output=folder / "corpus", vocab_size=200, documents="line", held_out=0.2, workers=1
        )
        polyseme.pretrain(
            folder / "corpus",
            recipe="bert-tiny",
            budget="2steps",
            output=folder / "run",
            batch_size=2,
            length=16,
            shape=shape,
            device="cpu",
            workers=0,
        )
        polyseme.pretrain(
            texts, recipe="kneser-ney", output=folder / "ngrams", documents="line", held_out=0.2, shape={"order": 2}
        )
        polyseme.embed(texts, model=folder / "bert", output=folder / "vectors.npz")
        polyseme.senses("broke", source=texts, model=folder / "bert", output=folder / "senses.json", names="none")
        polyseme.similar("Dawn [broke].", source=texts, model=folder / "bert", index=folder / "index")
        shutil.rmtree(inputs)


def write_inputs(folder: Path) -> None:
    """The files and folders that a command line may name, anew."""
    for name, content in _INPUTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


_INPUTS = _inputs()
NAMES = tuple(_INPUTS)

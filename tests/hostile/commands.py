"""The commands that read what may be hostile, by short names: what is read, the texts, a place for outputs.

A command is a line of arguments, or a function of Python's and its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from polyseme.files.vector_files import read_provenance, read_vectors


def read_all(path: Path) -> Iterator[object]:
    """How vectors came about, and all of them."""
    yield read_provenance(path)
    yield from read_vectors(path)


Command = Callable[[Path, Path, Path], list[object]]

COMMANDS: Mapping[str, Command] = {
    "show": lambda it, texts, out: ["show", "-m", it],
    "pieces": lambda it, texts, out: ["pieces", "The vase broke .", "-m", it],
    "embed": lambda it, texts, out: ["embed", texts, "-m", it, "-o", out / "v.npz"],
    "embed texts": lambda it, texts, out: ["embed", texts, "--per", "text", "-m", it, "-o", out / "v.npz"],
    "long word": lambda it, texts, out: ["pieces", "a" * 64 + "!", "-m", it],
    "score": lambda it, texts, out: ["score", texts, "-m", it, "-o", out / "s.tsv"],
    "fill": lambda it, texts, out: ["fill", "The vase [MASK] .", "-m", it],
    "next": lambda it, texts, out: ["next", "The vase fell.", "It broke.", "-m", it],
    "generate": lambda it, texts, out: ["generate", "The vase", "--max-new", 4, "-m", it],
    "convert": lambda it, texts, out: ["convert", "-m", it, "-o", out / "converted"],
    "lens": lambda it, texts, out: ["lens", "The vase [MASK] .", "-m", it, "-o", out / "l.html"],
    "attention": lambda it, texts, out: ["attention", "The vase broke .", "-m", it, "-o", out / "a.html"],
    "geometry": lambda it, texts, out: ["geometry", "--in", texts, "-m", it, "-o", out / "g.json"],
    "patch": lambda it, texts, out: [
        *("patch", "The crane [broke] .", "The vase [broke] .", "-m", it, "-o", out / "p.html")
    ],
    "similar": lambda it, texts, out: ["similar", "The [vase] broke .", "--in", texts, "-m", it],
    "senses": lambda it, texts, out: ["senses", "broke", "--in", texts, "-m", it, "-o", out / "s.json"],
    "predict": lambda it, texts, out: ["predict", texts, "-m", it, "-o", out / "p.jsonl"],
    "read vectors": lambda it, texts, out: [read_all, it],
    "cluster vectors": lambda it, texts, out: [
        *("senses", "broke", "--in", it, "-m", texts.parent / "family" / "bert", "-o", out / "s.json")
    ],
    "query index": lambda it, texts, out: [
        *("similar", "The [vase] broke .", "--index", it, "-m", texts.parent / "family" / "bert")
    ],
    "apply senses": lambda it, texts, out: [
        *("senses", "broke", "--in", texts, "--apply", it, "-m", texts.parent / "family" / "bert")
    ],
    "resume": lambda it, texts, out: ["pretrain", "--resume", it],
    "pretrain": lambda it, texts, out: [
        *("pretrain", it, "--recipe", "bert-tiny", "--budget", "2steps", "--device", "cpu", "-o", out / "run")
    ],
    "finetune span": lambda it, texts, out: [
        *("finetune", "span", "--train", it, "-m", texts.parent / "family" / "bert", "-o", out / "m")
    ],
    "embed data": lambda it, texts, out: ["embed", it, "-m", texts.parent / "family" / "bert", "-o", out / "v.npz"],
    "evaluate cloze": lambda it, texts, out: [
        *("evaluate", "cloze", "--data", it, "-m", texts.parent / "family" / "bert")
    ],
}

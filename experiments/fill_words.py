"""Whole words at masks against single pieces: UD-EWT sentences with one word masked.

Of each sentence one word is drawn, among those of letters with blanks or marks around them, and masked. `fill` predicts
it once as a piece and once as a whole word, in turns, so that other load on the machine affects both alike. A word is
found if it is among the first ten, in the spelling that the tokenizer gives it.

    POLYSEME_DATA=... python experiments/fill_words.py [-m MODEL] [--sentences 2000] [--max-pieces 3] [--threads 1]
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tables import data_folder, lines_of, machine, table

import polyseme
from polyseme.text.documents import make_document

SPLITS = ("test", "train")
TOP = 10
LONGEST = 400
"""Characters of a sentence, so that all fit the model's window."""


def sentences(folder: Path, split: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Texts, and where the words of each are; the parts of a contraction are one word."""
    text, place, until = "", 0, 0
    spans: list[tuple[int, int]] = []
    for line in [*lines_of(folder / f"en_ewt-ud-{split}.conllu"), ""]:
        if line.startswith("# text = "):
            text, place, until, spans = line.removeprefix("# text = "), 0, 0, []
        elif not line:
            yield text, spans
        elif line[0].isdigit():
            number, word = line.split("\t")[:2]
            first, _, last = number.partition("-")
            if "." in number or int(first) <= until:
                continue
            until = int(last) if last else 0
            start = text.find(word, place)
            place = start + len(word)
            spans.append((start, place))


def masked(folder: Path, n: int, seed: int) -> list[tuple[str, str]]:
    """Sentences with one word masked, and the words."""
    rng = random.Random(seed)
    items = []
    for split in SPLITS:
        for text, spans in sentences(folder, split):
            whole = [
                (start, end)
                for start, end in spans
                if text[start:end].isalpha()
                and not re.search(r"[\w'’-]", text[max(start - 1, 0) : start] + text[end : end + 1])
            ]
            if len(spans) > 3 and whole and len(text) <= LONGEST:
                start, end = rng.choice(whole)
                items.append((f"{text[:start]}[MASK]{text[end:]}", text[start:end]))
            if len(items) == n:
                return items
    return items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="english-encoder")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--max-pieces", type=int)
    parser.add_argument("--hide", choices=["left-to-right", "word"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    model = polyseme.load(settings.model, device="cpu")
    tokenizer = model.bundle.tokenizer
    items = masked(data_folder() / "ud-ewt", settings.sentences, settings.seed)
    words = {"whole_words": True, "max_pieces": settings.max_pieces, "hide": settings.hide}
    routes = {"single pieces": {}, "whole words": words}
    seconds = dict.fromkeys(routes, 0.0)
    found: dict[str, dict[str, list[float]]] = {name: {"one piece": [], "several pieces": []} for name in routes}
    for options in routes.values():
        model.fill(items[0][0], top=TOP, **options)  # weights are laid out with the first call
    for text, word in items:
        ids = tokenizer.encode(make_document(word)).ids.tolist()
        spelled = tokenizer.decode(ids)
        for name, options in routes.items():
            started = time.perf_counter()
            [filled] = model.fill(text, top=TOP, **options)
            seconds[name] += time.perf_counter() - started
            listed = filled.words or filled.pieces
            rank = listed.index(spelled) + 1 if spelled in listed else 0
            found[name]["one piece" if len(ids) == 1 else "several pieces"].append(1 / rank if rank else 0.0)
    rows = []
    for name, groups in found.items():
        every = [*groups["one piece"], *groups["several pieces"]]
        shares = [[100 * sum(score > 0 for score in each) / max(len(each), 1)] for each in (every, *groups.values())]
        mrr = sum(every) / len(every)
        ms = 1000 * seconds[name] / len(items)
        rows.append([name, *(f"{share:.2f}" for [share] in shares), f"{mrr:.4f}", f"{ms:.1f}"])
    counts = {name: len(scores) for name, scores in found["whole words"].items()}
    print(f"{len(items):,} sentences of UD-EWT ({' and '.join(SPLITS)}), {counts}; {settings.model}.\n")
    print(table(["", "among the first 10, %", *(f"of {name}, %" for name in counts), "MRR at 10", "ms"], rows))
    print(
        f"\ntime: {seconds['whole words'] / seconds['single pieces']:.2f} × that of single pieces. {machine('torch')}."
    )


if __name__ == "__main__":
    main()

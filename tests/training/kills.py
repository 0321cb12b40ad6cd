"""Runs that are killed at a chosen moment, and resumed, in processes of their own.

Each child is forked from this process, which has imported everything; it kills itself with SIGKILL, which nothing in
it can catch, at a moment drawn from its seed: inside a step, inside the writing of a checkpoint, or inside the building
of shards. Then another child makes the same call. Called with a folder and a number of kills of each kind; prints what
differed as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import polyseme
from polyseme.training.effects import read_log
from polyseme.training.energy_ledger import measured_peak
from polyseme.training.trainer import Trainer

N_STEPS = 12
SETTINGS: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": f"{N_STEPS}steps",
    "vocab_size": 300,
    "batch_size": 8,
    "length": 16,
    "shape": {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32, "attention_dropout_rate": 0.1},
    "device": "cpu",
    "log_every": 1,
    "checkpoint_every": 3,
    "evaluate_every": 4,
}


TOUCHES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
"""What Python calls the ways to touch a file."""
CARRIED: dict[str, Any] = {
    **SETTINGS,
    "recipe": "elmo-tiny",
    "length": 6,
    "micro_batch_size": 4,
    "shape": {
        "n_layers": 2,
        "width": 8,
        "token_width": 8,
        "inner_width": 12,
        "filter_counts": (2, 2, 2, 2),
        "dropout_rate": 0.1,
        "embedding_dropout_rate": 0.1,
    },
}
"""A run in which streams carry a memory from step to step, in both directions."""
SMALL: dict[str, Any] = {**SETTINGS, "tokenizer": "wordpiece", "vocab_size": 320}
"""Unigram tokenizers are not the same in every process."""
TWO_STACKS = {**SETTINGS["shape"], "decoder_layers": 1}
RUNS: dict[str, dict[str, Any]] = {
    "usual": SETTINGS,
    "compiled": {**SETTINGS, "compile": True},
    "carried": CARRIED,
    "two-way": {**CARRIED, "recipe": "flair-tiny", "shape": {"width": 8, "token_width": 8, "dropout_rate": 0.1}},
    "causal": {**SETTINGS, "recipe": "gpt-tiny"},
    "bands": {**SETTINGS, "recipe": "gpt-tiny", "shape": {**SETTINGS["shape"], "masks": "band:4"}},
    "next": {**SETTINGS, "objective": {"next": "nsp"}},
    "order": {**SETTINGS, "objective": {"next": "sop"}, "layout": "sentence-pair"},
    "doc-sentences": {**SETTINGS, "layout": "doc-sentences"},
    "replaced": {**SETTINGS, "recipe": "electra-small", "shape": {**SETTINGS["shape"], "embedding_width": 8}},
    "copied": {**SETTINGS, "recipe": "electra-tiny", "objective": {"learn": "all-tokens"}},
    "permuted": {**SMALL, "recipe": "xlnet-tiny", "shape": {**SETTINGS["shape"], "inner_dropout_rate": 0.1}
                 | {"dropout_rate": 0.1, "embedding_dropout_rate": 0.1, "memory_length": 12},
                 "objective": {"memory": True}},
    "segments": {**SMALL, "recipe": "transformer-xl-tiny", "tokenizer": None,
                 "shape": {**SETTINGS["shape"], "head_width": 8, "cutoffs": (8, 14), "memory_length": 12}
                 | {"dropout_rate": 0.1, "inner_dropout_rate": 0.1, "embedding_dropout_rate": 0.1}},
    "denoising": {**SMALL, "recipe": "bart-tiny", "shape": TWO_STACKS},
    "spans": {**SMALL, "recipe": "t5-tiny", "shape": {**TWO_STACKS, "head_width": 8, "dropout_rate": 0.1}
              | {"inner_dropout_rate": 0.1, "embedding_dropout_rate": 0.1}},
    "skip-gram": {**SETTINGS, "recipe": "skip-gram", "shape": {"width": 8}},
    "cbow": {**SETTINGS, "recipe": "cbow", "shape": {"width": 8}},
    "glove": {**SETTINGS, "recipe": "glove", "shape": {"width": 8}},
    "boundary": {**SETTINGS, "recipe": "spanbert-tiny"},
    "joined": {**SETTINGS, "recipe": "xlm-tlm-tiny", "length": 24},
    "translation": {**SMALL, "recipe": "transformer-tiny", "length": 24, "shape": TWO_STACKS},
    "distilled": {**SETTINGS, "layers": 1},
    "distilled-causal": {**SETTINGS, "recipe": "gpt-tiny", "layers": 1},
}  # fmt: skip
"""The runs that are killed, by sort; those with `layers` are students of a teacher that the recipe has made."""


def write_text(path: Path) -> None:
    """Documents enough for a small corpus: of one sentence each, of several, and in pairs."""
    text = "the dawn broke a vase and news of it came to every house where people sat at bread and beer"
    draw = random.Random(3)
    documents = [" ".join(draw.choices(text.split(), k=60)) + "." for _ in range(400)]
    path.write_text("\n\n".join(documents) + "\n")
    sentences = [document.replace(" bread ", " bread. The ") for document in documents]
    path.with_suffix(".sentences").write_text("\n\n".join(sentences) + "\n")
    lines = [document.split()[:10] for document in documents]
    path.with_suffix(".source").write_text("".join(" ".join(words) + "\n" for words in lines))
    path.with_suffix(".target").write_text("".join(" ".join(words[::-1]) + "\n" for words in lines))


@contextmanager
def interrupted_at(step: int) -> Iterator[pytest.ExceptionInfo[KeyboardInterrupt]]:
    """A run in this process that is stopped from the keyboard before a step."""
    take = Trainer.step

    def stopped(self: Trainer, rows: Any, plan: Any) -> Any:
        if rows.step == step:
            raise KeyboardInterrupt
        return take(self, rows, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopped)
        with pytest.raises(KeyboardInterrupt) as stop:
            yield stop


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_a_step(draw: random.Random) -> None:
    """Before a step, between its gradients and its update, within the update, or after it."""
    number, place = draw.randrange(N_STEPS), draw.randrange(4)
    step, taken = Trainer.step, {"n": -1}

    def watched(self: Trainer, rows: Any, plan: Any) -> Any:
        taken["n"] += 1
        if taken["n"] == number and place == 0:
            die()
        if taken["n"] == number and place in (1, 2):
            update = self.optimizer.step

            def killed() -> None:
                if place == 2:
                    update()
                die()

            self.optimizer.step = killed  # type: ignore[method-assign, assignment]
        means = step(self, rows, plan)
        if taken["n"] == number:
            die()
        return means

    Trainer.step = watched  # type: ignore[method-assign]


def die_at_a_file(part: str, most: int) -> Callable[[random.Random], None]:
    """At one of the first `most` times that a file of this part of the run is opened, moved, made or removed."""

    def install(draw: random.Random) -> None:
        left = [draw.randrange(most)]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in TOUCHES and arguments and part in str(arguments[0]):
                left[0] -= 1
                if left[0] < 0:
                    die()

        sys.addaudithook(hook)

    return install


KINDS: dict[str, Callable[[random.Random], None]] = {
    "step": die_in_a_step,
    "checkpoint": die_at_a_file("checkpoints", 90),
    "shards": die_at_a_file("corpus", 150),
    **dict.fromkeys(RUNS, die_in_a_step),
    **{f"{sort} checkpoint": die_at_a_file("checkpoints", 90) for sort in RUNS},
}


def sort_of(kind: str) -> str:
    """Which run is killed."""
    first = kind.partition(" ")[0]
    return first if first in RUNS else "usual"


def child(text: Path, run: Path, sort: str, install: Callable[[random.Random], None] | None, seed: int) -> None:
    """One process of a run."""
    torch.set_num_threads(1)
    if install is not None:
        install(random.Random(seed))
    texts: dict[str, Any] = {"sources": text}
    if sort in ("translation", "joined") and text.is_file():
        texts = {"source": text.with_suffix(".source"), "target": text.with_suffix(".target")}
    if sort in ("next", "order", "doc-sentences") and text.is_file():
        texts = {"sources": text.with_suffix(".sentences")}
    built = {} if text.is_file() else {"tokenizer": None, "vocab_size": None}
    settings = {"compile": False, **RUNS[sort], **built}
    if "layers" in settings:
        teacher = run.parent / f"teacher-{sort}"
        student = {name: settings.pop(name) for name in ("layers", "checkpoint_every", "evaluate_every")}
        if not (teacher / "model").exists():
            polyseme.pretrain(**texts, output=teacher, **{**settings, "shape": {**settings["shape"], "n_layers": 2}})
        for name in ("recipe", "shape", "vocab_size", "tokenizer"):
            settings.pop(name, None)
        polyseme.distill(**texts, model=teacher, output=run, **settings, **student)
        return
    polyseme.pretrain(**texts, output=run, **settings)


def ran(text: Path, run: Path, sort: str, install: Any = None, seed: int = 0) -> int:
    """How a child ended."""
    process = multiprocessing.get_context("fork").Process(target=child, args=(text, run, sort, install, seed))
    process.start()
    process.join()
    return int(process.exitcode or 0)


def losses(run: Path) -> list[tuple[int, float, Any]]:
    """The losses of a run, to the last bit, those on held-out text included."""
    return [(line["step"], line["loss"], line.get("held_out")) for line in read_log(run)]


def weights(run: Path) -> bytes:
    """All files of the model, since ELMo's weights are not in a file of that name, but its card, which has the cost."""
    return b"".join(path.read_bytes() for path in sorted((run / "model").iterdir()) if path.name != "README.md")


def main() -> None:
    """Kill so many runs of each kind; print those that did not end as if they had never stopped."""
    folder, counts = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    measured_peak("cpu", torch.float32)  # as what is imported: once, and not by each child
    text = folder / "text.txt"
    write_text(text)
    wrong, n_killed = [], 0
    whole: dict[str, Path] = {}
    for kind, count in counts.items():
        sort = sort_of(kind)
        if sort not in whole:
            whole[sort] = folder / f"whole-{sort}"
            if ran(text, whole[sort], sort) != 0:
                raise SystemExit("the uninterrupted run failed")
        source = text if sort in ("usual", "compiled", "carried") else whole[sort] / "corpus"  # built once
        for seed in range(count):
            run = folder / f"{kind.replace(' ', '-')}-{seed}"
            ended = ran(source, run, sort, KINDS[kind], seed)
            n_killed += ended == -signal.SIGKILL
            again = 0 if ended == 0 else ran(source, run, sort)
            same = again == 0 and losses(run) == losses(whole[sort]) and weights(run) == weights(whole[sort])
            if not same or ended not in (0, -signal.SIGKILL):
                wrong.append([kind, seed, ended, again])
    n_steps = len(losses(next(iter(whole.values()))))
    sys.stdout.write(json.dumps({"killed": n_killed, "wrong": wrong, "steps": n_steps}) + "\n")

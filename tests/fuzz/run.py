"""`make fuzz`: random command lines over every verb. Prints what was found, with the seed that repeats it.

python tests/fuzz/run.py --count 2000 --seed 7
python tests/fuzz/run.py --seed 7 --case 123        one of them again, with all that it prints
python tests/fuzz/run.py --verb embed --count 100   one verb
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import forked
from fuzz.cases import Outcome, run_line, shortest
from fuzz.command_lines import CommandLine, random_line
from fuzz.workplace import build_models, build_results
from polyseme.cli import VERBS

LOADED = [
    *forked.LOADED,
    *(f"polyseme.cli.{verb}" for verb in VERBS),
    *(f"polyseme.verbs.{verb}" for verb in VERBS),
    "polyseme.convert.lstm",
    "sklearn.cluster",
]


def main() -> int:
    """Run the lines, two at a time, and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="number of command lines")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="seed of all of them; by default the time")
    parser.add_argument("--case", type=int, help="only this one, with all that it prints")
    parser.add_argument("--verb", choices=list(VERBS), help="only this verb")
    parser.add_argument("--jobs", type=int, default=2, help="command lines at once")
    arguments = parser.parse_args()
    forked.preload(LOADED)
    cases = range(arguments.count) if arguments.case is None else [arguments.case]
    print(f"{len(cases)} command lines of seed {arguments.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="polyseme-fuzz-models-") as name,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        models = Path(name) / "models"
        build_models(models)
        build_results(models)
        run_line(CommandLine("models", ()), models, seconds=600)  # everything is loaded then

        def carry_out(case: int) -> tuple[int, Outcome]:
            return case, run_line(random_line(f"{arguments.seed}:{case}", arguments.verb), models)

        codes: collections.Counter[str] = collections.Counter()
        seen: collections.Counter[str] = collections.Counter()
        started = time.monotonic()
        for case, outcome in pool.map(carry_out, cases):
            codes["stopped" if outcome.stopped else str(outcome.code)] += 1
            if sum(codes.values()) % 200 == 0:
                print(f"{sum(codes.values())} done in {time.monotonic() - started:.0f} s", flush=True)
            if arguments.case is not None:
                print(
                    outcome.line,
                    f"exit code {outcome.code}, {outcome.seconds:.1f} s",
                    outcome.out,
                    outcome.err,
                    outcome.changes,
                    sep="\n",
                )
            if outcome.faults:
                seen[outcome.kind] += 1
                print(f"\n--seed {arguments.seed} --case {case}: {outcome.kind}", flush=True)
                if seen[outcome.kind] == 1:
                    _print(outcome if outcome.stopped else shortest(outcome, models))
            elif outcome.stopped:
                print(
                    f"\n--seed {arguments.seed} --case {case}: stopped after {outcome.seconds:.0f} s: {outcome.line}",
                    flush=True,
                )
    endings = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    took, faulty = time.monotonic() - started, f"{sum(seen.values())} with faults, of {len(seen)} kinds"
    print(f"\n{sum(codes.values())} command lines in {took:.0f} s; exit codes {endings}; {faulty}")
    for kind, count in seen.most_common():
        print(f"  {count} × {kind}")
    return min(1, len(seen))


def _print(outcome: Outcome) -> None:
    print(f"  {outcome.line}")
    for fault in outcome.faults:
        print(f"  {fault[:1500]}")
    if "Traceback" in outcome.err:
        print("\n".join(f"    {line}" for line in outcome.err.splitlines()[-14:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

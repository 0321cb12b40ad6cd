"""`make fuzz`: random command lines over every verb. Prints what was found, with the seed that repeats it.

python tests/fuzz/run.py --count 2000 --seed 7
python tests/fuzz/run.py --seed 7 --case 123        one of them again, with all that it prints
python tests/fuzz/run.py --verb embed --count 100   one verb
python tests/fuzz/run.py --count 2000 --log a.jsonl a line for each as it ends, which stays when this is stopped
python tests/fuzz/run.py --table a.jsonl b.jsonl    what such logs say, as Markdown
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
    parser.add_argument("--log", type=Path, help="a file that gets a line for each command line as it ends")
    parser.add_argument("--table", nargs="+", type=Path, metavar="LOG", help="print what such files say, and end")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    forked.preload(LOADED)
    cases = range(arguments.count) if arguments.case is None else [arguments.case]
    print(f"{len(cases)} command lines of seed {arguments.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="polyseme-fuzz-models-") as name,
        ThreadPoolExecutor(arguments.jobs) as pool,
        contextlib.ExitStack() as stack,
    ):
        log = stack.enter_context(arguments.log.open("a")) if arguments.log else None
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)  # if this is stopped
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
            if log is not None:
                log.write(json.dumps(_record(arguments.seed, case, outcome)) + "\n")
                log.flush()
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


def _record(seed: int, case: int, outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": seed,
        "case": case,
        "verb": outcome.line.verb,
        "line": str(outcome.line),
        "code": outcome.code,
        "seconds": round(outcome.seconds, 1),
        "stopped": outcome.stopped,
        "faults": [f"{outcome.kind}: {fault[:1500]}" for fault in outcome.faults],
    }


def table(logs: Sequence[Path]) -> str:
    """One line per verb, and their sum; then every fault."""
    records = [json.loads(line) for path in logs for line in path.read_text().splitlines() if line.endswith("}")]
    counts: dict[str, collections.Counter[str]] = {
        verb: collections.Counter() for verb in (*sorted({each["verb"] for each in records}), "all")
    }
    for each in records:
        ending = "stopped" if each["stopped"] else {0: "done", 2: "refused"}.get(each["code"], "other")
        for verb in (each["verb"], "all"):
            counts[verb].update(["tried", ending, *(["with faults"] if each["faults"] else [])])
    columns = ("tried", "done", "refused", "other", "stopped", "with faults")
    lines = [
        f"| verb | {' | '.join(columns)} |",
        f"|{' --- |' * (len(columns) + 1)}",
        *(f"| {verb} | {' | '.join(str(count[name]) for name in columns)} |" for verb, count in counts.items()),
    ]
    for each in records:
        if each["faults"] or each["stopped"]:
            lines += [f"--seed {each['seed']} --case {each['case']}: {each['line']}", *each["faults"]]
    return "\n".join(lines)


def _print(outcome: Outcome) -> None:
    print(f"  {outcome.line}")
    for fault in outcome.faults:
        print(f"  {fault[:1500]}")
    if "Traceback" in outcome.err:
        print("\n".join(f"    {line}" for line in outcome.err.splitlines()[-14:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

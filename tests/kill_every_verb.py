"""Commands that are stopped at a random moment and made again must end as if they had never been stopped.

python tests/kill_every_verb.py [--tries 200] [--seed 0] [--verbs embed,score] [--log a.jsonl]
python tests/kill_every_verb.py --table a.jsonl b.jsonl

Every try stops one command of tiny models, by SIGKILL, SIGTERM or Ctrl-C: half of them after a random time, half when
the command touches a file for a random time, since writing takes the least of a command's time and matters most. Then
the same command is made again, until it ends by itself, and what it has written is compared with what an undisturbed
one writes: row by row, file by file, number by number; bit by bit. Prints one line per verb, as Markdown. A log gets
a line for each try as it ends, which stays when this is stopped; `--table` adds up several.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import polyseme
from forked import Forked
from tiny_models import tiny_model
from training.kills import losses, write_text

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDINGS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
CHILD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
from polyseme.corpus import document_reader
from polyseme.files import chunks
from polyseme.generating import generate_files
from polyseme.transfer import predict_files

chunks.CHUNK_CHARACTERS = 1000
document_reader.STRETCH = 4000
generate_files.CHUNK_PROMPTS = predict_files.CHUNK_TEXTS = 12
TOUCHES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
place, stop_at, number, n_touches = os.environ["PLACE"], int(os.environ["STOP_AT"]), int(os.environ["SIGNAL"]), 0

def touched(event, arguments):
    global n_touches
    if event in TOUCHES and arguments and place in str(arguments[0]):
        n_touches += 1
        if n_touches == stop_at:
            os.kill(os.getpid(), number)

sys.addaudithook(touched)
from polyseme.cli import main
open(os.environ["BEGUN"], "w").close()
try:
    main()
finally:
    with open(os.environ["COUNT"], "w") as file:
        file.write(str(n_touches))
"""
"""The command line with small chunks and stretches, which counts how often it touches a file of its output."""

Parts = Counter[tuple[str, str]]
"""What an output is made of: the name of a row or a file, and its content."""


@dataclass(frozen=True)
class Verb:
    """A command that is stopped."""

    command: Callable[[Path], Sequence[str]]
    """By its output."""
    output: str
    parts: Callable[[Path], Parts]
    share: int = 4
    """How often it is tried, compared with others."""


def digest(content: object) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else repr(content).encode()).hexdigest()


def rows_of_table(output: Path) -> Parts:
    """Rows by their ids, and every byte."""
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    parts: Parts = Counter()
    for file in files:
        if file.suffix == ".parquet":
            rows = pq.read_table(file).to_pylist()
        else:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        parts.update((str(row.get("id")), digest(row)) for row in rows)
    parts.update(("all bytes", digest(file.read_bytes())) for file in files)
    return parts


def files_of(folder: Path) -> Parts:
    return Counter(
        (str(path.relative_to(folder)), digest(path.read_bytes())) for path in folder.rglob("*") if path.is_file()
    )


def of_run(run: Path) -> Parts:
    """The log's losses and the model, but for its card, which has the cost."""
    parts: Parts = Counter((f"step {step}", digest(rest)) for step, *rest in losses(run))
    model = files_of(run / "model")
    parts.update({key: count for key, count in model.items() if key[0] != "README.md"})
    return parts


def of_finetuning(folder: Path) -> Parts:
    """The weights and the figures, but for seconds."""
    weights = {name: (folder / name).read_bytes() for name in ("model.safetensors", "head.safetensors")}
    seeds = json.loads((folder / "report.json").read_text())["seeds"]
    parts: Parts = Counter((name, digest(content)) for name, content in weights.items())
    parts.update((f"seed {each['seed']}", digest({**each, "seconds": 0})) for each in seeds)
    return parts


def of_sweep(page: Path) -> Parts:
    """The figures of every run."""
    content = json.loads(page.with_suffix(".json").read_text())
    return Counter((each["name"], digest([each["state"], each["figures"]])) for each in content["runs"])


def write_inputs(folder: Path) -> dict[str, Verb]:
    """Models and texts, and the commands over them."""
    draw = random.Random(7)
    words = ["the", "dawn", "broke", "a", "vase", "and", "news", "of", "it", "came", "house", "people", "sat"]
    texts = [" ".join(draw.choices(words, k=3 + number % 17)) for number in range(120)]
    lines = [json.dumps({"n": f"t{number}", "text": text}) for number, text in enumerate(texts)]
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    labeled = ["text,label", *(f"{text},{'yes' if 'vase' in text else 'no'}" for text in texts)]
    (folder / "train.csv").write_text("\n".join(labeled[:80]) + "\n")
    (folder / "dev.csv").write_text("\n".join([labeled[0], *labeled[80:]]) + "\n")
    write_text(folder / "text.txt")
    for family in ("bert", "gpt2"):
        tiny_model(family, **({"dropout_rate": 0.1} if family == "bert" else {})).save(folder / family)
    with warnings.catch_warnings(action="ignore", category=polyseme.PolysemeWarning):
        polyseme.build_corpus(folder / "text.txt", output=folder / "corpus", vocab_size=300)
        train, dev = (folder / f"{split}.csv" for split in ("train", "dev"))
        fit: dict[str, Any] = {"model": folder / "bert", "epochs": 1, "device": "cpu"}
        polyseme.finetune("classify", train=train, dev=dev, output=folder / "task", **fit)

    def over(verb: str, model: str, *more: str) -> Callable[[Path], list[str]]:
        source = [str(folder / "in.jsonl"), "--field", "text", "--id-field", "n"]
        source = ["--in", *source] if verb == "generate" else source
        return lambda output: [verb, *source, "-m", str(folder / model), "-o", str(output), "--device", "cpu", *more]

    training = (
        *("--recipe", "bert-tiny", "--batch-size", "8", "--length", "16", "--device", "cpu", "--set", "n_layers=1"),
        *("--set", "width=16", "--set", "n_heads=2", "--set", "inner_width=32", "--log-every", "1"),
    )
    steps = ("--budget", "12steps", "--checkpoint-every", "3", "--evaluate-every", "4")
    of_task = ["--train", str(train), "--dev", str(dev), "-m", str(folder / "bert"), "--device", "cpu"]
    fitting = ["--seeds", "2", "--epochs", "3", "--batch-size", "16", "--checkpoint-seconds", "0"]
    corpus, text = str(folder / "corpus"), str(folder / "text.txt")
    return {
        "embed": Verb(over("embed", "bert"), "out.parquet", rows_of_table),
        "embed, shards": Verb(over("embed", "bert", "--shard-rows", "35"), "out", rows_of_table),
        "score": Verb(over("score", "gpt2"), "out.jsonl", rows_of_table),
        "predict": Verb(over("predict", "task"), "out.jsonl", rows_of_table),
        "generate": Verb(
            over("generate", "gpt2", "--max-new", "6", "--top-k", "5", "--stride", "12"), "out.jsonl", rows_of_table
        ),
        "corpus": Verb(lambda output: ["corpus", text, "-o", str(output), "--vocab-size", "300"], "corpus", files_of),
        "pretrain": Verb(lambda output: ["pretrain", corpus, "-o", str(output), *training, *steps], "run", of_run),
        "pretrain, from text": Verb(
            lambda output: ["pretrain", text, "-o", str(output), *training, *steps, "--vocab-size", "300"],
            "run",
            of_run,
        ),
        "finetune": Verb(
            lambda output: ["finetune", "classify", "-o", str(output), *of_task, *fitting], "model", of_finetuning
        ),
        "finetune, frozen": Verb(
            lambda output: ["finetune", "classify", "-o", str(output), *of_task, *fitting, "--frozen"],
            "model",
            of_finetuning,
        ),
        "sweep": Verb(
            lambda output: [
                *("sweep", "pretrain", corpus, "-o", str(output), *training, "--budget", "4steps"),
                *("--over", "mask-rate=0.1,0.2", "--jobs", "2"),
            ],
            "sweep.html",
            of_sweep,
            share=1,
        ),
    }


@dataclass
class Ended:
    """How a process ended."""

    code: int
    seconds: float
    n_touches: int
    message: str


def start(
    command: Sequence[str], place: Path, *, stop_at: int = 0, number: int = 0, after: float | None = None
) -> Ended:
    """Make a command, and stop it: `after` so many seconds, or when it touches a file for the time `stop_at`."""
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "errors").open("w+b") as errors:
        count, begun = Path(scratch) / "count", Path(scratch) / "begun"
        environment = {**os.environ, "PLACE": str(place), "STOP_AT": str(stop_at), "SIGNAL": str(number)}
        environment |= {"COUNT": str(count), "BEGUN": str(begun), "OMP_NUM_THREADS": "1"}
        with Forked(CHILD, *command, stderr=errors.fileno(), env=environment) as process:
            while not begun.exists() and process.poll() is None:
                time.sleep(0.001)
            began = time.perf_counter()
            if after is not None:
                time.sleep(after)
                process.send_signal(number)
            code = process.wait()
        errors.seek(0)
        touches = int(count.read_text()) if count.exists() and count.read_text() else 0
        return Ended(code, time.perf_counter() - began, touches, errors.read().decode())


@dataclass
class Tally:
    """What came of the tries of a verb."""

    tried: int = 0
    stopped: int = 0
    """Tries that were stopped before their end."""
    lost: int = 0
    doubled: int = 0
    different: int = 0
    failed: int = 0
    """Commands that ended with a traceback when they were stopped, or did not end well when they were made again."""
    left_over: int = 0
    """Files or folders beside the output that an undisturbed command does not leave."""

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def compare(got: Parts, expected: Parts, tally: Tally) -> list[str]:
    """Count what is lost, doubled or different; what is wrong, in words."""
    mine, theirs = Counter(name for name, _ in got.elements()), Counter(name for name, _ in expected.elements())
    lost, doubled = list((theirs - mine).elements()), list((mine - theirs).elements())
    different = [name for name, _ in (got - expected).elements() if name not in doubled]
    tally.lost += bool(lost)
    tally.doubled += bool(doubled)
    tally.different += bool(different)
    named = {"lost": lost, "doubled": doubled, "different": different}
    return [f"{word}: {', '.join(names[:3])}" for word, names in named.items() if names]


def try_once(verb: Verb, whole: Ended, expected: Parts, usual: set[str], place: Path, seed: str, tally: Tally) -> str:
    """Stop a command and make it again until it ends by itself; what is wrong then, in words."""
    draw = random.Random(seed)
    place.mkdir()
    output = place / verb.output
    number = draw.choice(SIGNALS)
    if draw.random() < 0.5:
        moment: dict[str, Any] = {"after": draw.uniform(0, whole.seconds)}
    else:
        moment = {"stop_at": draw.randint(1, whole.n_touches)}
    first = start(verb.command(output), place, number=number, **moment)
    tally.tried += 1
    tally.stopped += first.code in (ENDINGS[number], -number)  # the latter before the command has begun
    wrong = []
    if first.code not in (0, ENDINGS[number], -number):
        tally.failed += 1
        wrong.append(f"ended with {first.code}: {first.message.strip()[-300:]}")
    again = start(verb.command(output), place)
    is_done = again.code == 0 or "already there" in again.message or "finished" in again.message
    if not is_done:
        tally.failed += 1
        wrong.append(f"made again, it ended with {again.code}: {again.message.strip()[-300:]}")
    elif output.exists():
        wrong += compare(verb.parts(output), expected, tally)
    else:
        tally.lost += 1
        wrong.append("there is no output")
    extra = {path.name for path in place.iterdir()} - usual
    extra |= {str(each.relative_to(place)) for each in place.rglob("*.part")}
    tally.left_over += bool(extra)
    if extra:
        wrong.append(f"left over: {', '.join(sorted(extra)[:3])}")
    if not wrong:
        shutil.rmtree(place)
    return f"{place.name} (signal {number}, {moment}): {'; '.join(wrong)}" if wrong else ""


def kill(
    folder: Path, n_tries: int, seed: int, names: Sequence[str] | None = None, log: Path | None = None
) -> tuple[dict[str, Tally], list[str]]:
    """Try all verbs; what came of each, and what was wrong."""
    verbs = {name: verb for name, verb in write_inputs(folder).items() if names is None or name.split(",")[0] in names}
    turns = [name for name, verb in verbs.items() for _ in range(verb.share)]
    turns = [*verbs, *(turns * n_tries)][:n_tries]
    tallies, faults = {name: Tally() for name in verbs}, []
    undisturbed: dict[str, tuple[Ended, Parts, set[str]]] = {}
    start(["--version"], folder)  # the first process waits until everything is loaded
    for number, name in enumerate(turns):
        verb, safe = verbs[name], name.replace(", ", "-").replace(" ", "-")
        if name not in undisturbed:
            place = folder / f"whole-{safe}"
            place.mkdir()
            whole = start(verb.command(place / verb.output), place)
            if whole.code != 0:
                raise SystemExit(f"The undisturbed {name} failed: {whole.message}")
            usual = {path.name for path in place.iterdir()}
            undisturbed[name] = whole, verb.parts(place / verb.output), usual
        tally = Tally()
        fault = try_once(verb, *undisturbed[name], folder / f"{safe}-{number}", f"{seed} {number}", tally)
        tallies[name].add(tally)
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps({"verb": name, "seed": seed, **vars(tally), "fault": fault}) + "\n")
        if fault:
            faults.append(fault)
            sys.stderr.write(f"{fault}\n")
            sys.stderr.flush()
    return tallies, faults


def table(tallies: dict[str, Tally]) -> str:
    """One line per verb, and their sum."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    rows = [
        [name, *map(str, vars(tally).values())] for name, tally in (*tallies.items(), ("all", total)) if tally.tried
    ]
    head = ["verb", *(name.replace("_", " ") for name in vars(total))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def table_of_logs(logs: Sequence[Path]) -> str:
    """The same from what was logged, and what was wrong."""
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines() if line.endswith("}")]
    tallies: dict[str, Tally] = defaultdict(Tally)
    for each in records:
        tallies[each["verb"]].add(Tally(**{name: each[name] for name in vars(Tally())}))
    faults = [f"seed {each['seed']}: {each['fault']}" for each in records if each["fault"]]
    return "\n".join([table(tallies), *faults])


def main() -> None:
    """Try, and print the table; exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbs", help="some of them, with commas between")
    parser.add_argument("--log", type=Path, help="a file that gets a line for each try as it ends")
    parser.add_argument("--table", nargs="+", type=Path, metavar="LOG", help="print what such files say, and end")
    settings = parser.parse_args()
    if settings.table:
        sys.stdout.write(f"{table_of_logs(settings.table)}\n")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="polyseme-kills-") as folder:
        names = settings.verbs.split(",") if settings.verbs else None
        tallies, faults = kill(Path(folder), settings.tries, settings.seed, names, settings.log)
    sys.stdout.write(f"{table(tallies)}\n")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()

"""The table of claims: results of tables with rules, results of runs, and the page that shows all of them.

    python experiments/claims.py register                 # from experiments/results, by the rules of the scripts
    python experiments/claims.py keep runs/claims/*.json  # what `polyseme claims … -o runs/claims` gave
    python experiments/claims.py table [--docs docs/claims.md]

A claim is run by `polyseme claims NAME`, or with all others by `polyseme claims all --jobs 8 --stop-after 9min -o
runs/claims`, which the same command resumes (on a GPU best under CUDA's multi-process service). `keep` copies results
into the package, where `polyseme claims` shows them; one that is there of the same size and rule is replaced only with
`--force`. `register` applies the rules of `heads.py`, `pruning.py`, `probing.py`, `geometry.py`, `distillation.py`,
`input_formats.py` and `objective_ablations.py` to what they have stored, by their own functions. For each of them the
rule was committed before the result: `claims/script_rules.json` has both commits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import distillation
import geometry
import input_formats
import objective_ablations
import probing
from tables import fill_page, table

import heads
from polyseme.claims.check_claims import ClaimReport
from polyseme.claims.claim_result import RESULTS, ClaimResult, packaged_results
from polyseme.claims.claim_table import CLAIMS, NOT_SHOWN
from polyseme.claims.rule import Verdict, fingerprint
from polyseme.claims.script_rules import SCRIPT_RULES
from polyseme.sweeps.sweep_report import Figure, RunCost, RunResult, Sweep

DOCS = Path(__file__).parents[1] / "docs" / "claims.md"
MARKS = ("<!-- claims: begin -->", "<!-- claims: end -->")
TABLES = Path(__file__).parent / "results"
Finding = tuple[str, Verdict, list[RunResult], str, str]
"""The claim, the verdict, its rows, a note, and the device."""


def read(folder: str) -> dict[str, Any]:
    """The stored results of a script, by the names of their files."""
    files = sorted((TABLES / folder).glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def row(name: str, figures: dict[str, Figure], *, seconds: float = 0.0, seed: int = 0) -> RunResult:
    """A row of a table, as results of claims have it."""
    return RunResult(
        name=f"{name}-{seed}", settings={"row": name}, seed=seed, folder="", state="finished", figures=figures,
        cost=RunCost(seconds=seconds), version="0.1.0",
    )  # fmt: skip


# --- tables with rules ------------------------------------------------------------------------------------------------


def of_heads() -> Iterator[Finding]:
    """All three packaged models must follow obj and det."""
    results = read("heads")
    rows, holds = [], []
    for name in heads.PACKAGED:
        copies = [each for label, each in results.items() if label.startswith(f"{name}-random")]
        for relation in heads.CLAIMED:
            record = heads.best(results[name], relation)
            random = [heads.best(each, relation) for each in copies]
            holds.append(heads.follows(record) and bool(random) and not any(map(heads.follows, random)))
            difference = Figure(value=record["difference"], unit="share", error=record["difference_error"])
            accuracy = Figure(value=record["accuracy"], unit="share", error=record["error"])
            figures = {"accuracy of the best head": accuracy, "above the best offset": difference}
            rows.append(row(f"{name}, {relation}", figures, seconds=results[name]["seconds"] / len(heads.CLAIMED)))
            rows += [
                row(
                    f"{name}, random weights, {relation}",
                    {"above the best offset": Figure(value=each["difference"], unit="share")},
                    seed=seed,
                )
                for seed, each in enumerate(random)
            ]
    yield "heads-follow-relations", "shown" if all(holds) else "not shown", rows, "", "an H200"


def of_pruning() -> Iterator[Finding]:
    """In every model, with and without training again, 40% of the heads within a point."""
    shares = {"gradient": "within_one_point", "gradient, again": "within_one_point_retrained"}
    extra = {"gradient, measured again at each step": "within_one_point_exact"}
    results = read("pruning")
    rows = [
        row(
            result["model"],
            {
                f"heads within a point, by {name}": Figure(value=result[key], unit="share")
                for name, key in {**shares, **extra}.items()
            },
            seconds=result["seconds"],
        )
        for result in results.values()
    ]
    shown = all(result[key] >= 0.4 for result in results.values() for key in shares.values())
    note = (
        "The rule names no method; gradients are measured once, as in the paper. Measured again at each step, or by "
        "gates, MiniLM loses 40% within a point; the packaged encoder loses a tenth."
    )
    yield "heads-can-go", "shown" if shown else "not shown", rows, note, "an H200"


def of_probing() -> Iterator[Finding]:
    """For the Transformers in the box, and for the recurrent models."""
    results = read("probing")
    models = {"tags-below-senses": heads.PACKAGED, "tags-below-senses-bilm": ("elmo-small", "cove")}
    for claim, names in models.items():
        rows, verdicts = [], []
        for name in names:
            low = results[f"{name}.{probing.LOW}"]
            for task in (probing.LOW, *probing.HIGH):
                result = results[f"{name}.{task}"]
                best, center = probing.best_of(result), probing.center(result)
                figures = {
                    "best layer": Figure(value=float(best["layer"])),
                    "accuracy there": Figure(value=best["accuracy"], unit="share", error=best["standard_error"]),
                    **({} if center is None else {"center of gravity": Figure(value=center[0], error=center[1])}),
                }
                cost = result["cost"] or {}
                rows.append(row(f"{name}, {probing.NAMES[task]}", figures, seconds=cost.get("seconds", 0.0)))
            said = {probing.NAMES[task]: probing.verdict(low, results[f"{name}.{task}"]) for task in probing.HIGH}
            verdicts.append((name, said))
        shown = all(each == "yes" for _, said in verdicts for each in said.values())
        note = "; ".join(f"{name}: {', '.join(f'{t}: {v}' for t, v in said.items())}" for name, said in verdicts)
        yield claim, "shown" if shown else "not shown", rows, f"Below, by model: {note}.", "an H200"


def of_geometry() -> Iterator[Finding]:
    """In every trained model."""
    results = read("geometry")
    rows, holds = [], []
    for name, result in results.items():
        grows, correlation, growth = geometry.grows(result)
        figures = {
            "lowest correlation of layer and anisotropy": Figure(value=correlation),
            "smallest growth from layer 0 to the top": Figure(value=growth),
        }
        rows.append(row(name, figures))
        if not name.endswith(".random"):
            holds.append(grows)
    note = f"{sum(holds)} of {len(holds)} trained models meet the rule; random weights do so where they are drawn so."
    yield "anisotropy-grows", "shown" if all(holds) else "not shown", rows, note, "an H200"


def of_distillation() -> Iterator[Finding]:
    """The rule as it is."""
    results = read("distillation")
    rows = []
    for result in results.values():
        mean = Figure(value=distillation.mean_of(result), unit="share", error=distillation.error_of(result))
        seconds = result.get("cost", {}).get("seconds", 0.0)
        rows.append(row(distillation.NAMES[result["row"]], {"mean of five tasks": mean}, seconds=seconds))
    means = {result["row"]: distillation.mean_of(result) for result in results.values()}
    keeps = means["student"] / means["teacher"] >= distillation.RULE and means["student"] > means["scratch"]
    note = "One seed of pretraining, three of fine-tuning; seconds are those of pretraining alone."
    yield "distilled-student", "shown" if keeps else "not shown", rows, note, "an H200"


ANSWERS: dict[str, Verdict] = {
    "yes": "shown",
    "holds": "shown",
    "the opposite": "refuted here",
    "no: it is worse": "refuted here",
    "the opposite holds": "refuted here",
}
"""What the scripts of sweeps say, where it is no "not shown"."""
FORMATS = (
    "next-sentence-helps",
    "single-sentences-hurt",
    "full-sentences-no-worse",
    "documents-no-worse",
    "sentence-order-better",
)
"""In the order of the script's claims."""
ABLATIONS = {
    ("All-Tokens MLM", "BERT"): "all-tokens",
    ("Replace MLM", "BERT"): "replaced-inputs",
    ("spans", "BERT"): "spans-beat-pieces",
    ("spans and boundaries", "spans"): "boundaries-add-to-spans",
}


def of_formats() -> Iterator[Finding]:
    """Each claim whose rows have been run."""
    file = TABLES / "input_formats" / "sweep.json"
    if not file.is_file():
        return
    sweep = input_formats.with_mean(Sweep.from_json(json.loads(file.read_text(encoding="utf-8"))))
    for name, claim, (_, difference, answer) in zip(
        FORMATS, input_formats.CLAIMS, input_formats.verdicts(sweep), strict=True
    ):
        if answer != "not measured":
            yield compare_rows(name, sweep, (claim.first, claim.second), difference, answer)


def of_ablations() -> Iterator[Finding]:
    """Each claim whose rows have been run."""
    file = TABLES / "objective_ablations.json"
    if not file.is_file():
        return
    sweep = Sweep.from_json(json.loads(file.read_text(encoding="utf-8"))["sweep"])
    finished = {point.settings["row"] for point in sweep.points if point.summary(objective_ablations.MEAN) is not None}
    for claim in objective_ablations.CLAIMS:
        name = ABLATIONS.get((claim.first, claim.second))
        if name is not None and {claim.first, claim.second} <= finished:
            *_, difference, answer = objective_ablations.verdict(sweep, claim)
            yield compare_rows(name, sweep, (claim.first, claim.second), difference, answer)


def compare_rows(name: str, sweep: Sweep, rows: tuple[str, str], difference: str, answer: str) -> Finding:
    """The finding of a claim that compares two rows of a sweep."""
    return name, ANSWERS.get(answer, "not shown"), of_rows(sweep, *rows), difference, "an H200"


def of_rows(sweep: Sweep, *names: str) -> list[RunResult]:
    """The runs of some rows, without the folders of the machine."""
    return [
        RunResult.from_json({**vars(run), "figures": {n: f.to_json() for n, f in run.figures.items()},
                             "cost": run.cost.to_json(), "folder": run.name})
        for run in sweep.runs if run.settings["row"] in names
    ]  # fmt: skip


SCRIPTS: dict[str, Callable[[], Iterator[Finding]]] = {
    "heads": of_heads,
    "pruning": of_pruning,
    "probing": of_probing,
    "geometry": of_geometry,
    "distillation": of_distillation,
    "input_formats": of_formats,
    "objective_ablations": of_ablations,
}


def registered() -> Iterator[ClaimResult]:
    """What the rules of the scripts say of what they have stored."""
    for script, findings in SCRIPTS.items():
        about = SCRIPT_RULES[f"experiments/{script}.py"]
        for name, verdict, rows, note, device in findings():
            claim = CLAIMS[name]
            results = f", results came in {about['result_commit']}" if about["result_commit"] else ""
            stood = f"The rule stood in commit {about['rule_commit']}{results}."
            yield ClaimResult(
                claim=name,
                size="full",
                rule=claim.rule_text,
                fingerprint=fingerprint(claim.rule_text),
                verdict=verdict,
                outcomes=[],
                sweep=Sweep(verb="claim", title=claim.text, runs=tuple(rows)),
                device=device,
                budget="as stored",
                note=" ".join(filter(None, [note, about["changed"], stood])),
            )


def write(result: ClaimResult, folder: Path, *, force: bool) -> Path:
    """Put a result into the package."""
    file = folder / f"{result.claim}.{result.size}.json"
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n"
    if file.is_file() and file.read_text(encoding="utf-8") != text and not force:
        raise SystemExit(f"{file} has another result. Look at both, and give --force to replace it.")
    file.write_text(text, encoding="utf-8")
    return file


# --- the page ---------------------------------------------------------------------------------------------------------


def markdown() -> str:
    """All claims with their verdicts, those that cannot be tried, and what all runs cost."""
    reports = [ClaimReport(claim=claim, results=packaged_results(name)) for name, claim in CLAIMS.items()]
    rows = []
    for report in reports:
        claim = report.claim
        measured = "; ".join(_measured(result) for result in report.results) or claim.observed
        rows.append([f"`{claim.name}`", claim.text, claim.source, report.minutes, report.verdict, measured])
    head = ["claim", "what is claimed", "source", "minutes, as planned", "verdict", "measured"]
    results = [result for report in reports for result in report.results]
    minutes = {
        device: minutes_of([result for result in results if ("CPU" in result.device) == (device == "a CPU")])
        for device in ("a GPU", "a CPU")
    }
    counts = {
        verdict: sum(each.verdict == verdict for each in results) for verdict in ("shown", "not shown", "refuted here")
    }
    summary = (
        f"{len(CLAIMS)} claims; {len(results)} results of {sum(bool(report.results) for report in reports)} claims: "
        f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}. What was computed for them took "
        f"{minutes['a GPU']:.0f} minutes of an H200 and {minutes['a CPU']:.0f} minutes on single CPU cores, by "
        "the clock and beside other work, as far as ledgers were kept."
    )
    impossible = [[each.text, each.source, each.reason] for each in NOT_SHOWN]
    parts = [summary, table(head, rows), "Not tried, since it cannot be shown honestly here:"]
    return "\n\n".join([*parts, table(["claim", "source", "reason"], impossible)])


def minutes_of(results: Sequence[ClaimResult]) -> float:
    """Of computing; a run that several claims share is counted once, with the most that followed it."""
    seconds: dict[tuple[str, ...], float] = {}
    for result in results:
        for number, run in enumerate(result.sweep.runs):
            place = (result.size, run.folder) if run.folder else (result.claim, result.size, str(number))
            seconds[place] = max(seconds.get(place, 0.0), run.cost.seconds)
    return sum(seconds.values()) / 60


def _measured(result: ClaimResult) -> str:
    """The conditions with their errors, or the note of a table."""
    conditions = [
        f"{each['value']:+.3g} ± {each['error']:.2g} ({each['condition']})"
        for each in result.outcomes
        if "value" in each
    ]
    size = "small: " if result.size == "small" else ""
    return f"{size}{'; '.join(conditions) or result.note}"


def main() -> None:
    """Register or keep results, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("register", "keep", "table"))
    parser.add_argument("files", nargs="*", type=Path, metavar="RESULT")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help=f"page to fill, such as docs/{DOCS.name}")
    options = parser.parse_args()
    results: Sequence[ClaimResult] = []
    if options.command == "register":
        results = list(registered())
    elif options.command == "keep":
        results = [ClaimResult.read(file) for file in options.files]
    for result in results:
        print(f"{write(result, options.results, force=options.force)}: {result.verdict}")
    if options.command == "table":
        text = markdown()
        print(text)
        if options.docs is not None:
            fill_page(options.docs, MARKS, text)


if __name__ == "__main__":
    main()

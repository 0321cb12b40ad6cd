"""`claims`: the claims of the literature, what is known of them, and a run of one or all."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyseme import __version__
from polyseme.claims.claim import Claim
from polyseme.claims.claim_page import claim_page, condition_lines, note_of
from polyseme.claims.claim_result import MADE_BY, ClaimResult, Size, packaged_results
from polyseme.claims.claim_table import CLAIMS
from polyseme.claims.data_sources import data_folder
from polyseme.claims.lab import Lab
from polyseme.errors import OptionError, nearest
from polyseme.files.atomic import check_output, whole_file
from polyseme.files.unfinished_folder import has_work, locked, prepare, remove
from polyseme.json_reading import load_json
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.result_tables import ResultList, Table, counted
from polyseme.training.budget import parse_time
from polyseme.verb_options.claims_options import ClaimsOptions
from polyseme.verbs.sweep_run import PausedError

ALL = "all"
HEADER = ("claim", "verdict", "minutes", "source", "what is claimed")


@dataclass(frozen=True, kw_only=True)
class ClaimReport:
    """A claim, and what is known of it."""

    claim: Claim
    results: Sequence[ClaimResult]
    """Those that the package brings; of a run, the new one first."""
    message: str = ""
    """Why a run has not ended."""

    @property
    def verdict(self) -> str:
        """In short, with the size and what makes a result differ from a new one."""
        return "; ".join(_verdict(self.claim, result) for result in self.results) or "not run yet"

    @property
    def minutes(self) -> str:
        """The smallest honest budget, and that of the small size."""
        small = "" if self.claim.small_minutes is None else f"; small: {self.claim.small_minutes:g} on a CPU"
        device = "a GPU" if self.claim.device == "gpu" else "a CPU"
        return f"{self.claim.minutes:g} on {device}{small}"

    def row(self) -> tuple[str, ...]:
        """For tables."""
        return (self.claim.name, self.verdict, self.minutes, self.claim.source, self.claim.text)

    def lines(self) -> list[str]:
        """All that is known, in words."""
        claim = self.claim
        lines = [
            f"{claim.name}: {claim.text}",
            f"source: {claim.source}",
            f"run: {claim.runs}",
            f"minutes: {self.minutes}",
        ]
        lines.append(f"rule: {claim.rule_text}")
        if claim.small_lacks:
            lines.append(f"what --small cannot show: {claim.small_lacks}")
        if claim.script:
            lines.append(f"it is run by: {claim.script}")
        if claim.observed:
            lines.append(f"observed before there was a rule, which decides nothing: {claim.observed}")
        for result in self.results:
            lines.append(f"result: {_verdict(claim, result)}, {result.minutes:.1f} minutes on {result.device}")
            lines += [f"  {line}" for line in condition_lines(result)]
            lines += [f"  {note_of(result)}"] if result.note else []
        return [*lines, *([self.message] if self.message else [])]

    def to_json(self) -> dict[str, Any]:
        """With every figure."""
        claim = self.claim
        names = (
            "name",
            "text",
            "source",
            "runs",
            "device",
            "minutes",
            "small_minutes",
            "small_lacks",
            "seeds",
            "script",
        )
        return {
            **{name: getattr(claim, name) for name in names},
            "data": list(claim.data),
            "rule": claim.rule_text,
            "observed": claim.observed,
            "verdict": self.verdict,
            "results": [result.to_json() for result in self.results],
            "message": self.message,
        }


def _verdict(claim: Claim, result: ClaimResult) -> str:
    """A verdict, with the small size, an earlier version or an earlier rule beside it."""
    asides = ["small"] if result.size == "small" else []
    if result.version != __version__:
        asides.append(f"polyseme {result.version}")
    if result.rule != claim.rule_text:
        asides.append("by an earlier rule")
    return result.verdict if not asides else f"{result.verdict} ({', '.join(asides)})"


def claims_table(reports: Sequence[ClaimReport]) -> Table:
    """All claims, a line each."""
    return Table.of(f"{len(reports)} claims", HEADER, reports, ClaimReport.row)


@flat(ClaimsOptions)
def check_claims(options: ClaimsOptions) -> ResultList[ClaimReport]:
    """The claims of the literature and what is known of them; or run one, several, or all.

    A run is resumed by the same call. Its rule was written before any result was known, and is stored with the result.

        >>> polyseme.check_claims()                                                          # doctest: +SKIP
        >>> polyseme.check_claims("cache-helps", small=True, output="claim.html")            # doctest: +SKIP
        >>> polyseme.check_claims("cache-helps,nnlm-with-kn5", output="claims")              # doctest: +SKIP
    """
    chosen = _chosen(options)
    if options.name is None or options.show:
        _refuse_ignored(options)
        return _listed([ClaimReport(claim=each, results=packaged_results(each.name)) for each in chosen])
    deadline = math.inf
    if options.stop_after is not None:
        deadline = time.monotonic() + parse_time(options.stop_after, "stop_after")
    if options.budget is not None and len(chosen) > 1:
        raise OptionError("A budget is that of one claim. Name one, or leave the budget out.")
    if len(chosen) == 1:
        [claim] = chosen
        output = Path(options.output or f"{claim.name}.html")
        return _listed([_carry_out(claim, options, output, output.with_suffix(".runs"), deadline)])
    folder = Path(options.output or "claims")
    if options.name.strip() == ALL:
        chosen = [each for each in chosen if _fits(each, options)]
    for each in chosen:
        _prepare(each, options, folder / f"{each.name}.html")
    pages = {each.name: folder / f"{each.name}.html" for each in chosen}
    return _listed([_carry_out(each, options, pages[each.name], folder / "runs", deadline) for each in chosen])


def _listed(reports: Sequence[ClaimReport]) -> ResultList[ClaimReport]:
    return ResultList(reports, claims_table)


def _chosen(options: ClaimsOptions) -> list[Claim]:
    """The claims that are named; what cannot be run as it was named is refused."""
    if options.name is None or options.name.strip() == ALL:
        return [*CLAIMS.values()]
    names = [*dict.fromkeys(each.strip() for each in options.name.split(","))]
    for name in names:
        if not name or name == ALL:
            raise OptionError(
                f"The names of claims are separated by single commas, and {ALL!r} stands alone. Got {options.name!r} "
                "instead."
            )
        if name not in CLAIMS:
            raise OptionError(f"There is no claim {name!r}. {nearest(name, [*CLAIMS, ALL])}")
    return [CLAIMS[name] for name in names]


def _refuse_ignored(options: ClaimsOptions) -> None:
    """Refuse options of a run where nothing is run."""
    ignored = sorted(options.changed().keys() - {"name", "show", "on_report", "progress"})
    if options.name is None and (ignored or options.show):
        names = ", ".join([*ignored, *(["show"] if options.show else [])])
        raise OptionError(f"{names} would change nothing of a list. Name a claim, or: {ALL}.")
    if ignored:
        raise OptionError(f"{', '.join(ignored)} would change nothing of what --show (show=True) shows. Leave it out.")


def _fits(claim: Claim, options: ClaimsOptions) -> bool:
    """Whether a claim is among all that a call can run: of this size, and on this device."""
    if claim.run is None:
        return False
    if options.small:
        return claim.small_minutes is not None
    return claim.device == "cpu" or torch.device(find_device(options.device)).type == "cuda"


def _prepare(claim: Claim, options: ClaimsOptions, output: Path) -> tuple[float, Path]:
    """The factor of the smallest honest budget, and the folder of the data; what would fail later is refused."""
    if claim.run is None:
        raise OptionError(
            f"The claim {claim.name!r} is run by {claim.script}, which has its rule. Run that; --show (show=True) "
            "shows what it gave."
        )
    if options.small and claim.small_minutes is None:
        where = "on a CPU as it is" if claim.device == "cpu" else "on a GPU alone"
        raise OptionError(f"The claim {claim.name!r} has no small size: it runs {where}. Leave --small (small=…) out.")
    least = claim.minutes if claim.small_minutes is None or not options.small else claim.small_minutes
    if options.jobs is not None and options.jobs < 0:
        raise OptionError(f"The number of jobs must be 0 or more. Got {options.jobs} instead.")
    factor = 1.0
    if options.budget is not None:
        factor = parse_time(options.budget, "budget") / 60 / least
    if factor < 1 - 1e-9:
        raise OptionError(
            f"The claim {claim.name!r} cannot be tried honestly in {options.budget}: it needs {least:g} minutes of "
            f"{'two CPU cores' if options.small or claim.device == 'cpu' else 'an H200'} for all its runs. Give as "
            f"much or more{', or try --small (small=True)' if not options.small and claim.small_minutes else ''}."
        )
    if factor > 1 and not claim.scales:
        raise OptionError(
            f"The runs of the claim {claim.name!r} have a fixed length, and a budget would change nothing. Leave "
            "--budget (budget=…) out."
        )
    device = torch.device(find_device(options.device)).type
    if claim.device == "gpu" and not options.small and device == "cpu":
        small = "" if claim.small_minutes is None else (
            f" On a CPU, --small (small=True) runs it in about {claim.small_minutes:g} minutes."
        )  # fmt: skip
        raise OptionError(
            f"The claim {claim.name!r} takes {claim.minutes:g} minutes of a GPU, and this is a CPU.{small}"
        )
    if output.suffix != ".html":
        raise OptionError(f"The output of a claim is a page, NAME.html. Got {str(output)!r} instead.")
    folder = data_folder(options.data, claim.data, claim.name)
    for file in (output, output.with_suffix(".json")):
        if output.parent.exists():
            check_output(file, force=options.force or _is_ours(output))
    return factor, folder


def _is_ours(output: Path) -> bool:
    """Whether these files are a claim's."""
    try:
        content = load_json(output.with_suffix(".json"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and MADE_BY in content


def _carry_out(claim: Claim, options: ClaimsOptions, output: Path, work: Path, deadline: float) -> ClaimReport:
    """Run a claim as far as there is time; a finished one is written."""
    factor, data = _prepare(claim, options, output)
    known = packaged_results(claim.name)
    size: Size = "small" if options.small else "full"
    lab = Lab(
        claim=claim.name,
        folder=work / size,
        data=data,
        n_seeds=claim.seeds,
        small=options.small,
        factor=factor,
        device=options.device,
        jobs=options.jobs,
        deadline=deadline,
        on_report=None if options.on_report is None else functools.partial(options.on_report, claim.name),
        progress=options.progress,
    )
    assert claim.run is not None  # prepared
    with _work_folder(lab, force=options.force):
        try:
            runs = claim.run(lab)
        except PausedError as error:
            return ClaimReport(claim=claim, results=known, message=f"{claim.name}: {error}")
    result = ClaimResult.of(claim, runs, size=size, device=_named(lab), factor=factor)
    for path, text in (
        (output, claim_page(claim, result)),
        (output.with_suffix(".json"), json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n"),
    ):
        with whole_file(path, force=True) as new:
            new.write_text(text, encoding="utf-8")
    return ClaimReport(claim=claim, results=[result, *known])


@contextlib.contextmanager
def _work_folder(lab: Lab, *, force: bool) -> Iterator[None]:
    """The folder of the runs: a new one, or that of claims which are to be resumed with the same data and budget."""
    data = "" if lab.data == Path() else str(lab.data.resolve())
    settings = {"data": data, "budget": f"{lab.factor:g} × the smallest"}
    with locked(lab.folder, noun="run of a claim"):
        prepare(lab.folder, settings, noun="run of a claim", force=force)
        try:
            yield
        except BaseException:
            if not has_work(lab.folder):
                remove(lab.folder)
            raise


def _named(lab: Lab) -> str:
    """The device, as results name it."""
    device = torch.device(find_device(lab.device))
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"a CPU with {counted(torch.get_num_threads(), 'thread')}"
    )

"""`polyseme claims`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polyseme
from polyseme.cli.printing import print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import SweepLine, print_table
from polyseme.verb_options.claims_options import ClaimsOptions

UNFINISHED = 1


@command_of(ClaimsOptions, json=True)
def command(as_json: bool, **settings: Any) -> int:
    """List claims of the literature with their verdicts, or test one, [NAME].

    Each claim has a rule, written before its run, that decides whether the claim holds, and the smallest run that can
    decide it: minutes on a GPU, or with --small on a CPU. The page has the verdict, the table and the figures.
    Several names are separated by commas; all tests every claim that this device can run. Claims that run together
    share trained models. The same command resumes a run. The exit code is 1 if the time ran out.

    \b
    Examples:
      polyseme claims
      polyseme claims attention-beats-bottleneck --show
      polyseme claims cache-helps --small -o claim.html
      polyseme claims attention-beats-bottleneck --budget 12min -o claim.html
      polyseme claims cache-helps,transformer-or-lstm -o runs/claims
      polyseme claims all --jobs 8 --stop-after 9min -o runs/claims
    """
    with SweepLine() as line:
        reports = polyseme.check_claims(**settings, on_report=lambda _, report: line.report(report), progress=line.bar)
    if as_json:
        print_json([each.to_json() for each in reports], indent=2)
    elif settings["name"] is None:
        rows = [(each.claim.name, each.verdict, each.claim.text) for each in reports]
        print_table(rows, header=("claim", "verdict", "what is claimed"), wraps=True)
        verdicts = Counter(each.verdict.removesuffix(" (small)") for each in reports)
        print_text(f"\n{len(reports)} claims: {', '.join(f'{n} {verdict}' for verdict, n in verdicts.most_common())}.")
        print_text("The source of a claim, what is run and what would refute it: polyseme claims NAME --show")
    else:
        print_text("\n\n".join("\n".join(each.lines()) for each in reports))
    return UNFINISHED if any(each.message for each in reports) else 0

"""Claims that a script in experiments/ decides: its rule in its own words, with the commits of rule and results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyseme.claims.claim import Claim

FILE = Path(__file__).with_name("script_rules.json")
SCRIPT_RULES: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
"""Script → its rule; `rule_commit` and the first `result_commit` in the history; what was `changed` between them."""


def script_claim(script: str, **fields: Any) -> Claim:
    """A claim that a script runs, and decides by its rule; `fields` are the other fields of `Claim`."""
    return Claim(rule=SCRIPT_RULES[script]["rule"], script=script, **fields)

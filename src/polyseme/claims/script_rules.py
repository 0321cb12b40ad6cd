"""Rules of scripts in experiments/, in their own words, with the commits of rule and results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("script_rules.json")
SCRIPT_RULES: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
"""Script → its rule; `rule_commit` and the first `result_commit` in the history; what was `changed` between them."""


def script_rule(script: str) -> str:
    """The rule of a script."""
    return SCRIPT_RULES[script]["rule"]

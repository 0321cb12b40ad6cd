"""Options that messages name, and whether a verb has them."""

from __future__ import annotations

import functools
import re

from polyseme.extras import later

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+(?=[\s.,;:)'\"`]|$)")
OTHER_TOOLS = {"--nproc-per-node", "--head", "--help", "--version"}


@functools.cache
def options_of(verb: str) -> set[str]:
    """The flags of a verb; of a sweep, those of what it sweeps and of what follows, too."""
    command = later(f"polyseme.cli.{verb}").command
    commands = (
        [command]
        if verb != "sweep"
        else [
            *(later("polyseme.cli.sweep").swept_command(each) for each in ("pretrain", "finetune")),
            *(later(f"polyseme.cli.{each}").command for each in ("evaluate", "benchmark")),
        ]
    )
    return {flag for each in commands for param in each.params for flag in (*param.opts, *param.secondary_opts)}


def foreign(message: str, verb: str) -> list[str]:
    """Options in a message that a verb does not have, those of commands that the message spells out aside."""
    own = re.sub(r"(polyseme|[`\s](?=(?:embed|score|finetune|pretrain|convert) -))\s*(\w+)[^`.]*", "", message)
    return [option for option in OPTION.findall(own) if option not in options_of(verb) | OTHER_TOOLS]

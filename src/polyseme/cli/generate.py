"""`polyseme generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import Bar

EARLY_STOPPING: Mapping[str, bool | str] = {"off": False, "on": True, "never": "never"}


def _early_stopping(context: click.Context, option: click.Parameter, given: str) -> bool | str:
    return EARLY_STOPPING.get(given, given)


@click.command()
@click.argument("prompts", metavar="PROMPT...", nargs=-1)
@click.option(
    "--in", "source", metavar="INPUT", help="Prompts: a file, folder or pattern, or - for standard input; -o is needed."
)
@options.model
@options.output("Where texts go: .jsonl for a record each, with its score, else a plain line each.", required=False)
@click.option(
    "--max-new",
    type=int,
    metavar="N",
    help="Pieces written at most.  [default: 20; by a model that reads sources, 200]",
)
@click.option(
    "--min-new", type=int, default=0, show_default=True, metavar="N", help="Pieces before which no text ends by itself."
)
@click.option(
    "--temperature",
    type=float,
    metavar="T",
    help="0 takes the likeliest piece, above that pieces are drawn.  [default: 1 with --top-k, --top-p or --n, else 0]",
)
@click.option("--top-k", type=int, metavar="N", help="Draw among so many of the likeliest pieces.")
@click.option(
    "--top-p", type=float, metavar="SHARE", help="Draw among the likeliest pieces with this much of the probability."
)
@click.option(
    "--beam", type=int, default=1, show_default=True, metavar="N", help="Keep so many texts a prompt side by side."
)
@click.option(
    "--length-penalty",
    type=float,
    default=1.0,
    show_default=True,
    metavar="POWER",
    help="In a beam, scores are log-probabilities by length to this power.",
)
@click.option(
    "--early-stopping",
    default="off",
    show_default=True,
    metavar="WHEN",
    callback=_early_stopping,
    help="When a beam ends: on (it is full of finished texts), off (a better one is unlikely), never (impossible).",
)
@click.option("--n", type=int, default=1, show_default=True, metavar="N", help="Texts a prompt.")
@click.option(
    "--repetition-penalty",
    type=float,
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiply the log-probability of pieces that stand in the text already.",
)
@click.option(
    "--no-repeat-ngram",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Never write N pieces that stand in the text in this order already.",
)
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="End a text before this string; may be given several times."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="What is drawn at random starts here."
)
@click.option(
    "--stride", type=int, metavar="N", help="Let what is read move on by N pieces where a text fills the positions."
)
@options.field
@click.option("--id-field", metavar="NAME", help="The field of INPUT with the id of a prompt.  [default: its number]")
@click.option(
    "--fields",
    callback=options.names,
    metavar="NAMES",
    help="Other fields of INPUT to keep beside the texts, with commas between them, or all.",
)
@click.option(
    "--format",
    metavar="FORMAT",
    help="What INPUT is, where its ending does not say it: text, jsonl, csv, tsv, parquet.",
)
@click.option(
    "--split",
    default="line",
    show_default=True,
    metavar="UNIT",
    help="What is a prompt in plain text: line, paragraph, document.",
)
@options.device
@options.dtype
@click.option("--batch-size", type=int, metavar="N", help="Texts written side by side.  [default: 16, on a GPU 64]")
@click.option(
    "--force", is_flag=True, help="Replace the output if it exists; start anew where unfinished work does not fit."
)
@options.as_json
def command(prompts: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Write on from each PROMPT..., or from those of a file; a model with a decoder reads them as sources.

    The likeliest piece is taken each time, unless a temperature, --top-k, --top-p, --n or --beam says otherwise. Draws
    depend on --seed and on the number of the prompt alone. Stopped over a file? The same command goes on.

    \b
    Examples:
      polyseme generate "In a shocking finding, scientists" -m path/to/gpt2
      polyseme generate "In a shocking finding, scientists" -m path --top-p 0.9 --temperature 0.8 --n 3 --seed 1
      polyseme generate "Q: Who wrote Emma? A:" -m path --beam 4 --stop "Q:" --max-new 40
      polyseme generate --in prompts.jsonl --field prompt -m path -o out.jsonl
      polyseme generate --in test.en -m models/ende --beam 4 -o test.hyp
    """
    shown = _Shown(prompts[0]) if _streams(prompts, as_json, settings) else None
    bar = None if shown else Bar("loading the model", then="writing")
    with bar or nullcontext():
        found = polyseme.generate(
            prompts, **settings, on_start=None if shown is None else shown.begin, on_text=shown, progress=bar
        )
    if shown:
        click.echo()
    elif as_json:
        click.echo(json.dumps(_records(found), ensure_ascii=False, indent=2))
    else:
        whole = [
            prompt + each.text if found.continues else each.text
            for prompt, texts in zip(found.prompts, found.continuations, strict=True)
            for each in texts
            if settings["output"] is None
        ]
        click.echo("\n\n".join(whole), nl=bool(whole))
    kept = "" if settings["output"] is None else f"{settings['output']}: "
    click.echo(f"{kept}{found.cost.line()}", err=True)


def _streams(prompts: tuple[str, ...], as_json: bool, settings: dict[str, Any]) -> bool:
    """Whether text is shown as it comes: one text, on a terminal."""
    alone = len(prompts) == 1 and settings["n"] == 1 and settings["output"] is None and settings["source"] is None
    return alone and not as_json and sys.stdout.isatty()


class _Shown:
    """Shows a prompt, where it is gone on from, then text as it is written."""

    def __init__(self, prompt: str) -> None:
        self.prompt: str | None = prompt

    def begin(self, continues: bool) -> None:
        if not continues:
            self.prompt = None

    def __call__(self, place: int, number: int, text: str) -> None:
        if self.prompt is not None:
            click.echo(click.style(self.prompt, dim=True), nl=False)
            self.prompt = None
        click.echo(text, nl=False)
        sys.stdout.flush()


def _records(found: Any) -> list[dict[str, Any]]:
    from polyseme.generating.generate_files import records

    each = enumerate(zip(found.prompts, found.continuations, strict=True), start=1)
    return [record for number, (prompt, texts) in each for record in records(str(number), prompt, {}, texts)]

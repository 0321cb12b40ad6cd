"""`polyseme generate`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import polyseme
from polyseme.cli.printing import Dim, print_data, print_json, print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost
from polyseme.verb_options.text_options import GenerateOptions


@command_of(GenerateOptions, json=True)
def command(prompts: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Continue each PROMPT..., or the prompts of a file. A sequence-to-sequence model reads them as sources.

    Pieces are sampled, unless --greedy, --beam or temperature 0 is set, or the model is sequence-to-sequence. Samples
    depend only on --seed and the number of the prompt, so the same command writes the same text. The same command
    resumes interrupted work on a file.

    \b
    Examples:
      polyseme generate "In a shocking finding, scientists"
      polyseme generate "In a shocking finding, scientists" --greedy
      polyseme generate "In a shocking finding, scientists" --top-p 0.9 --temperature 0.8 --n 3 --seed 1
      polyseme generate "Q: Who wrote Emma? A:" -m path/to/gpt2 --beam 4 --stop "Q:" --max-new 40
      polyseme generate --in prompts.jsonl --field prompt -m path -o out.jsonl
      polyseme generate --in test.en -m models/ende --beam 4 -o test.hyp
    """
    shown = _Shown(prompts[0]) if _streams(prompts, as_json, settings) else None
    bar = None if shown else Bar("loading the model", then="writing")
    with bar or nullcontext():
        result = polyseme.generate(
            prompts, **settings, on_start=None if shown is None else shown.begin, on_text=shown, progress=bar
        )
    if shown:
        print_text()
    elif as_json:
        print_json(_records(result), ensure_ascii=False, indent=2)
    else:
        whole = [
            prompt + each.text if result.continues else each.text
            for prompt, texts in zip(result.prompts, result.continuations, strict=True)
            for each in texts
            if settings["output"] is None
        ]
        print_data("\n\n".join(whole), nl=bool(whole))
    print_cost(result.cost.line(), settings["output"])


def _streams(prompts: tuple[str, ...], as_json: bool, settings: dict[str, Any]) -> bool:
    """Whether text is shown as it comes: one text, on a terminal."""
    alone = len(prompts) == 1 and settings["n"] == 1 and settings["output"] is None and settings["source"] is None
    return alone and not as_json and sys.stdout.isatty()


class _Shown:
    """Shows a prompt that is continued, then text as it is written."""

    def __init__(self, prompt: str) -> None:
        self.prompt: str | None = prompt

    def begin(self, continues: bool) -> None:
        if not continues:
            self.prompt = None

    def __call__(self, place: int, number: int, text: str) -> None:
        if self.prompt is not None:
            print_text(Dim(self.prompt), nl=False)
            self.prompt = None
        print_text(text, nl=False)
        sys.stdout.flush()


def _records(result: Any) -> list[dict[str, Any]]:
    from polyseme.generating.generate_files import records

    each = enumerate(zip(result.prompts, result.continuations, strict=True), start=1)
    return [record for number, (prompt, texts) in each for record in records(str(number), prompt, {}, texts)]

"""`generate`: what a model writes after prompts, or after those of files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyseme import __version__
from polyseme.api import Model, load
from polyseme.cost import Cost
from polyseme.errors import OptionError
from polyseme.files.atomic import AnyPath, check_output, explained, whole_file
from polyseme.files.in_memory import Inputs, describe_inputs, inputs_of, names_of
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.unfinished_folder import clear_up
from polyseme.generating import generate_files
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.text_generator import Continuation, TextGenerator
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.result_tables import ShownAsTable, Table, counted
from polyseme.text.documents import to_documents
from polyseme.verb_options.text_options import GenerateOptions

WIDTH = 300
"""Characters of a text that are shown."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GenerateResult(ShownAsTable):
    """Prompts with what follows each, and what it cost; those of files are in the output alone."""

    prompts: list[str]
    continuations: list[list[Continuation]]
    cost: Cost
    continues: bool = True
    """Whether texts continue their prompts; otherwise each is a text of its own, written from its prompt."""

    def table(self) -> Table:
        prompts = zip(self.prompts, self.continuations, strict=True)
        rows = [(prompt, each.text) for prompt, texts in prompts for each in texts]
        table = Table.of(counted(len(rows), "text"), ("prompt", "text"), rows, lambda row: row)
        return replace(table, note=self.cost.line(), width=WIDTH)


@flat(GenerateOptions)
def generate(options: GenerateOptions) -> GenerateResult:
    """Continue prompts, given here or in files; a model that has a decoder reads them as sources.

    Interrupted work on files is resumed by the same call.
    """
    started = time.perf_counter()
    Decoding.of(options)  # contradictions are refused before the model is loaded
    prompts = [options.prompts] if isinstance(options.prompts, str) else list(options.prompts)
    sources = [] if options.source is None else inputs_of(options.source)
    _check(prompts, sources, options)
    loaded = load(model_or_default("generate", options.model), device=options.device, dtype=options.dtype)
    generator = loaded.generator(loaded.decoding(options), batch_size=options.batch_size)
    continues = generator.prompts.continues
    if options.on_start is not None:
        options.on_start(continues)
    if sources and options.output is not None:
        generate_files.generate_files(
            generator,
            sources,
            options.output,
            reading=options.values(ReadingOptions),
            settings=lambda: _settings(loaded, generator, sources, options),
            force=options.force,
            progress=options.progress,
        )
        prompts, continuations = [], []
    else:
        prompts = [each.text for each in to_documents(prompts)]
        continuations = generator(prompts, on_text=options.on_text)
        if options.output is not None:
            _write(options.output, prompts, continuations, options.n, options.force)
    cost = generator.tally.cost(time.perf_counter() - started, generator.model.device)
    return GenerateResult(prompts=prompts, continuations=continuations, cost=cost, continues=continues)


def _check(prompts: Sequence[str], sources: Inputs, options: GenerateOptions) -> None:
    """Refuse, before the model is loaded, what is not enough, too much, or could not be written."""
    if prompts and sources:
        raise OptionError("Prompts were given and a source of prompts too. Give one or the other.")
    if not prompts and not sources:
        raise OptionError("There is no prompt. Give one or more, or a file of them as the source (--in).")
    if sources and options.output is None:
        raise OptionError("What follows the prompts of a file goes to a file. Give an output (-o), such as out.jsonl.")
    useless = list(options.changed(ReadingOptions))
    if useless and not sources:
        raise OptionError(f"The option {useless[0]!r} is about a source of prompts (--in), and there is none.")
    if options.output is None:
        return
    generate_files.lines_for(options.output, options.n)
    clear_up(options.output)
    check_output(options.output, force=options.force, inputs=names_of(sources))


def _write(
    output: AnyPath, prompts: Sequence[str], continuations: Sequence[Sequence[Continuation]], n: int, force: bool
) -> None:
    lines = generate_files.lines_for(output, n)
    with whole_file(output, force=force) as path, explained(output):
        text = [
            f"{line}\n"
            for number, (prompt, texts) in enumerate(zip(prompts, continuations, strict=True), start=1)
            for line in lines(str(number), prompt, {}, texts)
        ]
        path.write_text("".join(text), encoding="utf-8", newline="\n")


def _settings(loaded: Model, generator: TextGenerator, sources: Inputs, options: GenerateOptions) -> dict[str, Any]:
    """Everything that decides the result."""
    return {
        "model": loaded.path,
        **{f"the model's {part}": hash for part, hash in loaded.fingerprints().items()},
        **generator.decoding.to_json(),
        "input": describe_inputs(sources),
        **options.values(ReadingOptions),
        "dtype": options.dtype,
        "batch_size": generator.batch_size,
        "device": generator.model.device.type,
        "chunk_prompts": generate_files.CHUNK_PROMPTS,
        "polyseme": __version__,
    }

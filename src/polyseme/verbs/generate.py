"""The verb `generate`: prompts, or files of them, to what a model writes after them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from polyseme import __version__
from polyseme.api import AnyPath, Dtype, Model, load
from polyseme.bundle import OF_WRITING
from polyseme.cost import Cost, peak_memory
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.errors import OptionError
from polyseme.files.atomic import check_output, explained, whole_file
from polyseme.files.reading_options import Split
from polyseme.files.source_paths import Sources
from polyseme.files.unfinished_folder import clear_up
from polyseme.generating import generate_files
from polyseme.generating.decoding_options import MAX_NEW, Decoding, EarlyStopping
from polyseme.generating.text_generator import Continuation, OnText, TextGenerator
from polyseme.text.documents import to_documents
from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Prompts with what follows each, and what it cost; those of files are in the output alone."""

    prompts: list[str]
    continuations: list[list[Continuation]]
    cost: Cost
    continues: bool = True
    """Whether texts go on from their prompts; else each is a text of its own, made from its prompt."""


def generate(
    prompts: str | Sequence[str] = (),
    *,
    source: Sources | None = None,
    model: AnyPath | None = None,
    output: AnyPath | None = None,
    max_new: int | None = None,
    min_new: int = 0,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    beam: int = 1,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    n: int = 1,
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    stop: str | Sequence[str] = (),
    seed: int = 0,
    stride: int | None = None,
    field: str | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    split: Split = "line",
    device: str = "auto",
    dtype: Dtype = "fp32",
    batch_size: int | None = None,
    force: bool = False,
    on_start: Callable[[bool], None] | None = None,
    on_text: OnText | None = None,
    progress: Progress | None = None,
) -> Generated:
    """Write on from prompts, given here or in files; a model that has a decoder reads them as sources.

    Work on files that was stopped is gone on with by the same call.

    Args:
        prompts: one text to write on from, or several.
        source: a file, folder or pattern of prompts instead, or `-` for standard input; `output` is needed then.
        model: a model folder, or `hub:owner/name`.
        output: .jsonl for a record a text, with its score; any other ending (.txt, .hyp) for a plain line a text, in
            the order of the prompts.
        max_new: pieces that are written at most; None: 20, and from a source 200.
        min_new: pieces before which a text does not end by itself.
        temperature: 0 takes the likeliest piece each time, above that pieces are drawn; None: 1 where drawing is asked
            for otherwise (`top_k`, `top_p`, `n` without a beam), else 0.
        top_k: draw among so many of the likeliest pieces.
        top_p: draw among the fewest of the likeliest pieces that have this much of the probability.
        beam: how many texts a prompt are kept side by side, the likeliest of all their continuations.
        length_penalty: a text's score in a beam is its log-probability by its length to this power.
        early_stopping: whether a beam ends with as many finished texts as it is wide; False: once a better one is
            unlikely, "never": once it is impossible.
        n: how many texts a prompt: so many draws, or the best of a beam.
        repetition_penalty: what the log-probability of a piece is multiplied by if it stands in the text already.
        no_repeat_ngram: never write so many pieces that stand in the text in this order already; 0: no bound.
        stop: strings at which a text ends; it is cut before them.
        seed: what is drawn at random starts here.
        stride: by how many pieces what is read moves on when it has filled the model's positions; None: a prompt too
            long for them is refused.
        field: the field of `source` with the prompt.
        id_field: the field with its id; None: its number, counted from 1.
        fields: names of other fields to keep beside the texts, or "all".
        format: what `source` is, where its ending does not say it: text, jsonl, csv, tsv, parquet.
        split: in plain text, whether a prompt is a line, a paragraph or the whole document.
        device: as for `load`.
        dtype: what is computed in, as for `load`.
        batch_size: how many texts are written side by side.
        force: replace an output that is there, and start anew where unfinished work has other settings.
        on_start: told once, before anything is written, whether texts go on from their prompts.
        on_text: told of new text as it comes: the prompt's place, the number of the text, what is added to it. Of
            prompts that are given here.
        progress: told how many bytes of `source` are done, and of how many.
    """
    started = time.perf_counter()
    decoding = Decoding(
        max_new=MAX_NEW if max_new is None else max_new,
        min_new=min_new,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        beam=beam,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        n=n,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        stop=stop,
        seed=seed,
        stride=stride,
    )
    reading: dict[str, Any] = {
        "field": field,
        "id_field": id_field,
        "fields": (fields,) if isinstance(fields, str) else tuple(fields),
        "format": format,
        "split": split,
    }
    given = [prompts] if isinstance(prompts, str) else list(prompts)
    listed = [] if source is None else [source] if isinstance(source, (str, PathLike)) else list(source)
    _check(given, [os.fspath(one) for one in listed], reading, output, n, force)
    loaded = load(model, device=device, dtype=dtype)
    if max_new is None:
        decoding = decoding.replace(max_new=loaded.usual_length)
    generator = loaded.generator(decoding, batch_size=batch_size)
    continues = generator.prompts.continues
    if on_start is not None:
        on_start(continues)
    if listed and output is not None:
        earlier = generate_files.generate_files(
            generator,
            [os.fspath(one) for one in listed],
            output,
            reading=reading,
            settings=lambda: _settings(loaded, generator, listed, reading, dtype),
            force=force,
            progress=progress,
        )
        cost = _cost(generator, time.perf_counter() - started + earlier)
        return Generated(prompts=[], continuations=[], cost=cost, continues=continues)
    texts = [each.text for each in to_documents(given)]
    found = generator(texts, on_text=on_text)
    if output is not None:
        _write(output, texts, found, n, force)
    cost = _cost(generator, time.perf_counter() - started)
    return Generated(prompts=texts, continuations=found, cost=cost, continues=continues)


def _check(
    prompts: Sequence[Any], sources: Sequence[str], reading: dict[str, Any], output: AnyPath | None, n: int, force: bool
) -> None:
    """Refuse, before the model is loaded, what is not enough, too much, or could not be written."""
    if prompts and sources:
        raise OptionError("Prompts were given and a source of prompts too. Give one or the other.")
    if not prompts and not sources:
        raise OptionError("There is no prompt. Give one or more, or a file of them as the source (--in).")
    if sources and output is None:
        raise OptionError("What follows the prompts of a file goes to a file. Give an output (-o), such as out.jsonl.")
    useless = [name for name, value in reading.items() if value not in (None, (), "line")]
    if useless and not sources:
        raise OptionError(f"The option {useless[0]!r} is about a source of prompts (--in), and there is none.")
    if output is None:
        return
    generate_files.lines_for(output, n)
    clear_up(output)
    check_output(output, force=force, inputs=sources)


def _write(
    output: AnyPath, prompts: Sequence[str], found: Sequence[Sequence[Continuation]], n: int, force: bool
) -> None:
    lines = generate_files.lines_for(output, n)
    with whole_file(output, force=force) as made, explained(output):
        text = [
            f"{line}\n"
            for number, (prompt, texts) in enumerate(zip(prompts, found, strict=True), start=1)
            for line in lines(str(number), prompt, {}, texts)
        ]
        made.write_text("".join(text), encoding="utf-8", newline="\n")


def _settings(
    loaded: Model, generator: TextGenerator, sources: Sequence[Any], reading: dict[str, Any], dtype: str
) -> dict[str, Any]:
    """Everything that decides the result."""
    return {
        "model": loaded.path,
        **{f"the model's {part}": hash for part, hash in fingerprint(loaded.bundle).items()},
        "the model's outputs": _outputs(loaded),
        **{f"the model's {name}": value for name, value in loaded.bundle.foreign.items() if name in OF_WRITING},
        **generator.decoding.to_json(),
        "input": [os.fspath(one) for one in sources],
        **reading,
        "dtype": dtype,
        "batch_size": generator.batch_size,
        "device": generator.model.device.type,
        "chunk_prompts": generate_files.CHUNK_PROMPTS,
        "polyseme": __version__,
    }


def _outputs(loaded: Model) -> str:
    """A hash of the outputs' numbers, and of a decoder's, those left out that are the encoder's own."""
    own = {id(parameter) for parameter in loaded.bundle.encoder.parameters()}
    digest = hashlib.sha256()
    decoder = loaded.bundle.decoder
    further = [] if decoder is None else [(f"decoder.{name}", each) for name, each in decoder.named_parameters()]
    for name, parameter in sorted([*loaded.bundle.outputs.named_parameters(), *further]):
        digest.update(f"{name} {tuple(parameter.shape)} ".encode())
        if id(parameter) not in own:
            digest.update(parameter.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()


def _cost(generator: TextGenerator, seconds: float) -> Cost:
    tally = generator.tally
    return Cost(
        pieces=tally.pieces,
        words=tally.words,
        documents=tally.texts,
        seconds=seconds,
        flops=tally.flops,
        peak_memory=peak_memory(),
        device=str(generator.model.device),
    )

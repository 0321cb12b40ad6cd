"""The folder of a run and its corpus: what may be there, what is removed, and what a run that cannot begin leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.corpus.corpus import ABOUT, Corpus
from polyseme.errors import InputError, OutputError, add_note
from polyseme.files.atomic import AnyPath, check_output, parents_of
from polyseme.files.workshops import REPLACED, clear_leftovers, clear_leftovers_in, only_process, workshop_beside
from polyseme.recipes.pretraining_request import Texts
from polyseme.training.run_folder import RUN, Run, is_beginning
from polyseme.verbs.corpus import build_corpus

OWN_CORPUS = "./corpus"
"""Where a run keeps the corpus it built itself."""
RUN_MARKS = [RUN, "corpus", "corpus.unfinished", ".corpus*.part"]
"""What the folder of a run has, one of these at least."""


def check_place(output: Path, inputs: Sequence[AnyPath | None], *, force: bool) -> None:
    """Refuse a folder that is neither free nor a run that can be resumed; with `force` a run may be replaced."""
    if force or not ((output / RUN).is_file() or is_beginning(output)):
        check_output(output, force=force, kind="folder", inputs=inputs, marks=RUN_MARKS)


def clear_leftovers_of(output: Path) -> None:
    """Remove what killed processes left beside a run and in its folder."""
    clear_leftovers(Path(os.path.realpath(output)))
    clear_leftovers_in(output)


@contextlib.contextmanager
def room_for(output: Path, held: contextlib.ExitStack, *, force: bool) -> Iterator[None]:
    """The folder for a run, removed if it stays empty; what it replaces is restored if the run cannot begin. No other
    process may work on the run until `held` is closed.

    A corpus that is finished by then is kept, which a note on the error says.
    """
    target = Path(os.path.realpath(output))
    with parents_of(output), workshop_beside(target) as workshop:
        aside = workshop / REPLACED
        if force and output.exists():
            with only_process(output):
                target.rename(aside)
        output.mkdir(exist_ok=True)
        held.enter_context(only_process(output))
        try:
            yield
        except BaseException as error:
            if aside.exists():
                shutil.rmtree(output)
                aside.rename(target)
            else:
                with contextlib.suppress(OSError):
                    output.rmdir()  # only if it is empty
                if (output / OWN_CORPUS / ABOUT).is_file():
                    add_note(error, f"The corpus is kept in {output / OWN_CORPUS}: a run on the same text uses it.")
            raise


def corpus_name(texts: Texts) -> str:
    """What the settings of a run call its corpus."""
    return OWN_CORPUS if texts.corpus is None else str(texts.corpus.resolve())


def corpus_of_run(texts: Texts, output: Path, building: Mapping[str, Any]) -> Corpus:
    """The corpus of a run that may have begun before."""
    try:
        return corpus_of_texts(texts, output / OWN_CORPUS, building, force=False)
    except OutputError:
        if (output / RUN).is_file():
            raise OutputError(
                f"{output} holds a run on other text, or with another tokenizer. Resume it as it is with "
                f"`polyseme pretrain --resume {output}`, choose another name, or replace it with --force."
            ) from None
        if (output / OWN_CORPUS / ABOUT).is_file():
            raise OutputError(
                f"{output} holds a corpus of other text, or with another tokenizer, of a run that did not begin. "
                "Choose another name, or replace it with --force."
            ) from None
        raise


def corpus_of_texts(texts: Texts, place: Path, building: Mapping[str, Any], *, force: bool) -> Corpus:
    """The corpus that is named, or one built of the text, or the one that was built before."""
    if texts.corpus is not None:
        return Corpus.open(texts.corpus)
    named = {name: getattr(texts, name) for name in texts.named}
    return build_corpus(**named, output=place, **building, force=force, reuse=True)


def corpus_of_begun_run(run: Run) -> Corpus:
    """The corpus that the settings of a run name; refused if it is another one by now."""
    name = str(run.settings.get("corpus"))
    place = run.folder / OWN_CORPUS if name == OWN_CORPUS else Path(name)
    corpus = Corpus.open(place)
    if corpus.fingerprint != run.settings.get("corpus_fingerprint"):
        raise InputError(
            f"The corpus {place} is not the one that {run.folder} began with: another tokenizer or other text. "
            "Put that one back, or start a new run."
        )
    return corpus

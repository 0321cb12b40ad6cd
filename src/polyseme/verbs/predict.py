"""`predict`: a task model judges texts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyseme import __version__
from polyseme.api import AnyPath
from polyseme.bundle import model_folder
from polyseme.convert.hub import find_model
from polyseme.cost import Cost
from polyseme.errors import OptionError, PolysemeWarning, nearest
from polyseme.files.atomic import check_output
from polyseme.files.reading_options import Quotes, Split, Words
from polyseme.files.source_paths import Sources, listed
from polyseme.files.unfinished_folder import clear_up
from polyseme.parts.device import find_device
from polyseme.tasks.kind import Prediction
from polyseme.transfer.predict_columns import Columns, as_trained
from polyseme.transfer.predict_files import Predictor, predict_files
from polyseme.transfer.prediction_files import check_predictions_output
from polyseme.transfer.task_folder import load_task_model, task_card, weights_digest
from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was predicted, and what it cost; of what went to a file, the file has it alone."""

    predictions: list[Prediction]
    kind: str
    cost: Cost


def predict(
    sources: Sources,
    *,
    model: AnyPath,
    output: AnyPath | None = None,
    second: str | None = None,
    choices: str | Sequence[str] = (),
    marks: str | None = None,
    field: str | None = None,
    id_field: str | None = None,
    fields: str | Sequence[str] = (),
    format: str | None = None,
    words: Words = "syntactic",
    split: Split = "line",
    quotes: Quotes = "double",
    delimiter: str | None = None,
    check_text: bool = True,
    device: str = "auto",
    dtype: str = "fp32",
    force: bool = False,
    progress: Progress | None = None,
) -> Predicted:
    """Let a task model judge every text of some files, in their order.

    Work that was stopped is gone on with by the same call.

    Args:
        sources: a path, folder, pattern or `-` for standard input, or several of them, as for `embed`.
        model: a folder that `finetune` has written.
        output: .jsonl, .tsv, .parquet, or .conll for tags; None: predictions are returned.
        second: the field with the second text, or the question. None: as in training, where the input has it;
            likewise `choices`, `marks` and `field`. A model that answers questions also reads SQuAD's JSON.
        choices: the fields with the choices, or the one with a list of them.
        marks: the field with a number a word, as 1 at the predicate whose roles are asked for.
        field: the field with the text, or with the list of its words.
        id_field: the field with the id of a text; None: its number, counted from 1.
        fields: names of other fields to keep beside the predictions, or "all".
        format: what the input is, where its ending does not say it: text, jsonl, csv, tsv, parquet, conll, conllu.
        words: in CoNLL-U, whether words are the syntactic words or the tokens of the surface.
        split: in plain text, what a text is: a line, a paragraph or the whole document.
        quotes: in CSV and TSV, whether double quotes enclose fields, or none do.
        delimiter: in CSV and TSV, what separates the fields.
        check_text: in CoNLL-U, whether a sentence whose words do not add up to its text is refused.
        device: as for `load`.
        dtype: fp32 or bf16.
        force: replace an output that is there, and start anew where unfinished work has other settings.
        progress: told how many bytes of the input are done, and of how many.
    """
    started = time.perf_counter()
    if dtype not in ("fp32", "bf16"):
        raise OptionError(f"There is no dtype {dtype!r} here. {nearest(dtype, ('fp32', 'bf16'))}")
    folder = model_folder(find_model(str(model)))
    chosen = find_device(device)
    names = listed(sources)
    if output is not None:
        clear_up(output)
        check_output(output, force=force, inputs=names)
    loaded = load_task_model(folder, device=chosen)
    if output is not None:
        check_predictions_output(output, loaded.head.config)
    predictor = Predictor(loaded, bf16=dtype == "bf16")
    reading: dict[str, Any] = {
        "field": field,
        "id_field": id_field,
        "fields": (fields,) if isinstance(fields, str) else tuple(fields),
        "format": format,
        "words": words,
        "split": split,
        "quotes": quotes,
        "delimiter": delimiter,
        "check_text": check_text,
    }
    columns = as_trained(
        Columns(
            field=field, second=second, choices=(choices,) if isinstance(choices, str) else tuple(choices), marks=marks
        ),
        loaded.head.config,
        (task_card(folder) or {}).get("columns", {}),
        names,
        format=format,
        delimiter=delimiter,
    )
    found, earlier = predict_files(
        predictor,
        names,
        output,
        reading=reading,
        columns=columns,
        settings=lambda: {
            "model": weights_digest(loaded),
            "input": names,
            **reading,
            "field": columns.field,
            "second": columns.second,
            "choices": list(columns.choices),
            "marks": columns.marks,
            "dtype": dtype,
            "device": chosen.partition(":")[0],
            "polyseme": __version__,
        },
        force=force,
        progress=progress,
    )
    for note in predictor.notes():
        warnings.warn(f"{note}.", PolysemeWarning, stacklevel=2)
    cost = predictor.cost(time.perf_counter() - started + earlier)
    return Predicted(predictions=found, kind=loaded.config.kind, cost=cost)

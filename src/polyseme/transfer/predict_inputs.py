"""What a task model says of files, or of texts in memory: the work of `predict`, in Python and on the command line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from polyseme import __version__
from polyseme.cost import Cost
from polyseme.errors import PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.chunks import Workers
from polyseme.files.in_memory import Inputs, describe_inputs
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Prediction
from polyseme.transfer.predict_columns import Columns, as_trained, by_role
from polyseme.transfer.predict_files import Predictor, predict_files, rows_of_inputs
from polyseme.transfer.task_folder import weights_digest
from polyseme.types import Progress


class InputPredictions(NamedTuple):
    """Predictions, unless they went to a file, and what they cost."""

    predictions: list[Prediction]
    cost: Cost


def predict_inputs(
    predictor: Predictor,
    inputs: Inputs,
    *,
    columns: Columns,
    reading: Mapping[str, Any],
    output: AnyPath | None = None,
    force: bool = False,
    progress: Progress | None = None,
    started: float | None = None,
    workers: Callable[[Columns], Workers | None] | None = None,
) -> InputPredictions:
    """Predict for every text of inputs. `workers` connects to the processes of a cluster that share the work."""
    started = time.perf_counter() if started is None else started
    inputs, columns = _columns_of(predictor, inputs, columns, reading)
    predictions = predict_files(
        predictor,
        inputs,
        output,
        reading=reading,
        columns=columns,
        settings=partial(predict_settings, predictor, inputs, columns, reading),
        force=force,
        progress=progress,
        workers=None if workers is None else workers(columns),
    )
    for note in predictor.notes():
        warnings.warn(f"{note}.", PolysemeWarning, stacklevel=4)
    return InputPredictions(predictions, predictor.cost(time.perf_counter() - started))


def predict_settings(
    predictor: Predictor, inputs: Inputs, columns: Columns, reading: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that decides the result."""
    model = predictor.model
    return {
        "model": " ".join(map(weights_digest, (model, *predictor.others))),
        "input": describe_inputs(inputs),
        **reading,
        "field": columns.field,
        "second": columns.second,
        "choices": list(columns.choices),
        "marks": columns.marks,
        "first_span": columns.first_span,
        "second_span": columns.second_span,
        "dtype": "bf16" if predictor.bf16 else "fp32" if model.precision == "own" else model.precision,
        "device": model.device.type,
        "polyseme": __version__,
    }


def read_items(predictor: Predictor, inputs: Inputs, *, columns: Columns, reading: Mapping[str, Any]) -> list[Item]:
    """The items of inputs, as `predict_inputs` judges them."""
    inputs, columns = _columns_of(predictor, inputs, columns, reading)
    config, fields = predictor.model.head.config, tuple(reading.get("fields", ()))
    with rows_of_inputs(config, inputs, reading, columns) as rows:
        return [columns.item(row, fields, KINDS[config.kind]) for row in rows]


def _columns_of(
    predictor: Predictor, inputs: Inputs, columns: Columns, reading: Mapping[str, Any]
) -> tuple[Inputs, Columns]:
    """Inputs by the roles of the task, and the columns with those of training."""
    config = predictor.model.head.config
    inputs = by_role(inputs, config)
    layout = {name: reading.get(name) for name in ("format", "delimiter")}
    return inputs, as_trained(columns, config, predictor.card.get("columns", {}), inputs, **layout)

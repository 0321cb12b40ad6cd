"""`predict`: a task model judges texts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from polyseme.api import Model
from polyseme.cost import Cost
from polyseme.errors import OptionError, nearest
from polyseme.files.atomic import AnyPath, check_output
from polyseme.files.chunks import Job
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.unfinished_folder import clear_up
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.result_tables import ShownAsTable, Table
from polyseme.tasks.predictions import Prediction, predictions_table
from polyseme.transfer.predict_columns import Columns
from polyseme.transfer.predict_files import Predictor, check_predictions_output, predicting_job
from polyseme.transfer.predict_inputs import predict_inputs, predict_settings
from polyseme.transfer.task_ensemble import load_task_models, model_names
from polyseme.transfer.task_model import TaskModel
from polyseme.verb_options.evaluation_options import PredictOptions
from polyseme.verbs.on_cluster import check_workers, workers_of

TASK_DTYPES = ("auto", "fp32", "bf16", "int8")
"""What task models compute in."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictResult(ShownAsTable):
    """What was predicted, and what it cost; of what went to a file, the file has it alone."""

    predictions: list[Prediction]
    kind: str
    cost: Cost

    def table(self) -> Table:
        table = predictions_table(self.predictions)
        title = f"{table.title}, task {self.kind}" if self.predictions else f"task {self.kind}, predictions in a file"
        return replace(table, title=title, note=self.cost.line())


@flat(PredictOptions)
def predict(options: PredictOptions) -> PredictResult:
    """Predict every text of files, or texts themselves, with a task model, in their order.

    Fields that are not named are those of training, where the input has them. A model that answers questions also reads
    SQuAD's JSON. Where a task has two texts, or choices, a list has pairs: `[("A man sleeps.", "Someone is awake.")]`.
    Interrupted work on files is resumed by the same call.

        >>> polyseme.predict(["A great film"], model="models/stars").predictions[0].label       # doctest: +SKIP
    """
    started = time.perf_counter()
    output, dtype = options.output, options.dtype
    check_workers(options)
    inputs = inputs_of(options.sources)
    if output is not None:
        clear_up(output)
        check_output(output, force=options.force, inputs=names_of(inputs))
    [loaded, *others], card = task_models_of(options.model, options.device, dtype)
    if output is not None:
        check_predictions_output(output, loaded.head.config)
    judged = predict_inputs(
        loaded,
        card,
        inputs,
        others=others,
        columns=Columns.named(options),
        reading=options.values(ReadingOptions),
        output=output,
        bf16=dtype == "bf16",
        force=options.force,
        progress=options.progress,
        started=started,
        workers=lambda columns: workers_of(options, partial(worker_job, columns), loaded.device),
    )
    return PredictResult(predictions=judged.predictions, kind=loaded.config.kind, cost=judged.cost)


def worker_job(columns: Columns, options: PredictOptions) -> Job[Any, Any]:
    """The job of a process that is given rows, with the columns that the input has."""
    [model, *others], _ = task_models_of(options.model, options.device, options.dtype)
    predictor, reading = Predictor(model, others, bf16=options.dtype == "bf16"), options.values(ReadingOptions)
    settings = partial(predict_settings, predictor, [], columns, reading)
    fields = reading["fields"]
    return predicting_job(predictor, options.output, fields=fields, columns=columns, settings=settings)


def task_models_of(model: AnyPath | Model, device: str, dtype: str) -> tuple[list[TaskModel], dict[str, Any]]:
    """The task models of folders, or that of a loaded model, and what the first folder says of the task.

    In bf16 weights are in fp32: it is for who runs them (`Predictor`).
    """
    if dtype not in TASK_DTYPES:
        raise OptionError(f"There is no dtype {dtype!r} for task models. {nearest(dtype, TASK_DTYPES)}")
    if isinstance(model, Model):
        if device != "auto" or dtype == "int8":
            raise OptionError(
                "The model is loaded already, with its device and dtype. Leave both out here, and give them to load()."
            )
        loaded, card = model.task_model
        return [loaded], card
    return load_task_models(model_names(str(model)), device=find_device(device), dtype=dtype)

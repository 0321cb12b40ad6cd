"""`predict`: a task model judges texts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from polyseme.api import Model
from polyseme.cost import Cost
from polyseme.errors import ModelError, OptionError, nearest
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
    output = options.output
    check_workers(options)
    inputs = inputs_of(options.sources)
    if output is not None:
        clear_up(output)
        check_output(output, force=options.force, inputs=names_of(inputs))
    predictor = load_predictor(options.model, options.device, options.dtype)
    if output is not None:
        check_predictions_output(output, predictor.model.head.config)
    judged = predict_inputs(
        predictor,
        inputs,
        columns=Columns.named(options),
        reading=options.values(ReadingOptions),
        output=output,
        force=options.force,
        progress=options.progress,
        started=started,
        workers=lambda columns: workers_of(options, partial(worker_job, columns), predictor.model.device),
    )
    return PredictResult(predictions=judged.predictions, kind=predictor.model.config.kind, cost=judged.cost)


def worker_job(columns: Columns, options: PredictOptions) -> Job[Any, Any]:
    """The job of a process that is given rows, with the columns that the input has."""
    predictor = load_predictor(options.model, options.device, options.dtype)
    reading = options.values(ReadingOptions)
    settings = partial(predict_settings, predictor, [], columns, reading)
    fields = reading["fields"]
    return predicting_job(predictor, options.output, fields=fields, columns=columns, settings=settings)


def load_predictor(model: AnyPath | Model, device: str, dtype: str) -> Predictor:
    """The task models of folders that answer together, or that of a loaded model.

    With bf16 the weights are in fp32, and products are computed in bf16.
    """
    if dtype not in TASK_DTYPES:
        raise OptionError(f"There is no dtype {dtype!r} for task models. {nearest(dtype, TASK_DTYPES)}")
    if isinstance(model, Model):
        if device != "auto" or dtype == "int8":
            raise OptionError(
                "The model is loaded already, with its device and dtype. Leave both out here, and give them to load()."
            )
        loaded, card = model.task_model
        return Predictor(loaded, bf16=dtype == "bf16", card=card)
    [first, *others], card = load_task_models(model_names(str(model)), device=find_device(device), dtype=dtype)
    return Predictor(first, others, bf16=dtype == "bf16", card=card)


def load_single_predictor(model: AnyPath | Model, device: str) -> Predictor:
    """One task model, in fp32; an ensemble is refused."""
    predictor = load_predictor(model, device, "fp32")
    if predictor.others:
        n_models = 1 + len(predictor.others)
        raise ModelError(f"{model} is an ensemble of {n_models} task models. Name the folder of one of them.")
    return predictor

"""`predict`: a task model judges texts."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

from polyseme import __version__
from polyseme.bundle import model_folder
from polyseme.convert.hub import find_model
from polyseme.cost import Cost
from polyseme.errors import OptionError, PolysemeWarning, nearest
from polyseme.files.atomic import check_output
from polyseme.files.reading_options import ReadingOptions
from polyseme.files.source_paths import listed
from polyseme.files.unfinished_folder import clear_up
from polyseme.options import flat
from polyseme.parts.device import find_device
from polyseme.tasks.kind import Prediction
from polyseme.training_options import PredictOptions
from polyseme.transfer.predict_columns import Columns, as_trained
from polyseme.transfer.predict_files import Predictor, check_predictions_output, predict_files
from polyseme.transfer.task_folder import load_task_model, task_card, weights_digest


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was predicted, and what it cost; of what went to a file, the file has it alone."""

    predictions: list[Prediction]
    kind: str
    cost: Cost


@flat(PredictOptions)
def predict(options: PredictOptions) -> Predicted:
    """Predict every text of files with a task model, in their order. Interrupted work is resumed by the same call.

    Fields that are not named are those of training, where the input has them. A model that answers questions also reads
    SQuAD's JSON.
    """
    started = time.perf_counter()
    output, dtype = options.output, options.dtype
    if dtype not in ("fp32", "bf16"):
        raise OptionError(f"There is no dtype {dtype!r} here. {nearest(dtype, ('fp32', 'bf16'))}")
    folder = model_folder(find_model(str(options.model)))
    chosen = find_device(options.device)
    names = listed(options.sources)
    if output is not None:
        clear_up(output)
        check_output(output, force=options.force, inputs=names)
    loaded = load_task_model(folder, device=chosen)
    if output is not None:
        check_predictions_output(output, loaded.head.config)
    predictor = Predictor(loaded, bf16=dtype == "bf16")
    reading = options.values(ReadingOptions)
    choices = (options.choices,) if isinstance(options.choices, str) else tuple(options.choices)
    columns = as_trained(
        Columns(field=options.field, second=options.second, choices=choices, marks=options.marks),
        loaded.head.config,
        (task_card(folder) or {}).get("columns", {}),
        names,
        format=options.format,
        delimiter=options.delimiter,
    )
    predictions = predict_files(
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
        force=options.force,
        progress=options.progress,
    )
    for note in predictor.notes():
        warnings.warn(f"{note}.", PolysemeWarning, stacklevel=3)
    cost = predictor.cost(time.perf_counter() - started)
    return Predicted(predictions=predictions, kind=loaded.config.kind, cost=cost)

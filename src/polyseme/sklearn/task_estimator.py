"""What classifier and tagger share: a task model learned from items (`transfer.finetune_task`), used and pickled.

A frozen encoder is pickled as the name it was loaded by, with the head that was learned; a tuned one as the files of
its model folder, which need nothing else.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from polyseme.api import Model
from polyseme.embedding.model_fingerprint import differences, fingerprint
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.heads.head_config import HeadConfig
from polyseme.options import check_seed, doc, option, same
from polyseme.parts.device import find_device
from polyseme.sklearn.inputs import MODEL, GivenError, TextEstimator, model_of, shared_model
from polyseme.tasks.encoder_rows import RowTally
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.kinds import build_head
from polyseme.tasks.own_data import checked_data
from polyseme.tasks.predictions import Judgment
from polyseme.tasks.splits import dev_note, with_dev
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from polyseme.transfer.task_model import TaskConfig, TaskModel
from polyseme.transfer.train_seed import put
from polyseme.verb_options.task_options import FinetuneRunOptions, TaskModelOptions, TransferDtype

CHUNK_TEXTS = 1024
"""Texts that are judged together; of those before, only the predictions stay in memory."""


@dataclass(frozen=True, kw_only=True)
class TaskEstimatorOptions(TaskModelOptions):
    """What classifier and tagger take: names, meanings and defaults are those of `polyseme.finetune`."""

    model: AnyPath | Model | None = field(default=None, kw_only=False, metadata=doc(MODEL, default="the default model"))
    tune: bool = option(
        False,
        "Whether the encoder is trained as well. Otherwise it is frozen: vectors are computed once, and a head learns.",
    )
    seed: int = option(0, "Random seed.")
    dev: float = option(
        0.1, "Share of the texts that is set aside and chooses the best epoch; 0: the training texts choose it."
    )
    device: str = same(FinetuneRunOptions, "device")
    dtype: TransferDtype = same(FinetuneRunOptions, "dtype")
    cache: AnyPath | None = same(FinetuneRunOptions, "cache")

    def __post_init__(self) -> None:
        """Values are checked by `fit`, as scikit-learn has it."""


class TaskEstimator(TextEstimator):
    """What classifier and tagger share, besides their options."""

    classes_: NDArray[Any]
    report_: FinetuneReport

    def _learn(self, data: TaskData, classes: NDArray[Any]) -> None:
        check_seed(self.seed)
        names = (each.name for each in fields(TaskEstimatorOptions))
        settings = {name: getattr(self, name) for name in (*names, "readout") if hasattr(self, name)}
        self._fitted: FittedTask = fit_task(data, **settings)
        self.classes_, self.report_ = classes, self._fitted.report


class FittedTask:
    """A task model that was learned; once unpickled, its encoder is loaded when it is first used."""

    def __init__(
        self, model: TaskModel, report: FinetuneReport, source: AnyPath | None, device: str, cache: Path | None
    ) -> None:
        self.report = report
        self._cache = cache
        self._source = source
        self._device = device
        self._model: TaskModel | None = model
        self._content: dict[str, Any] = {}

    @property
    def model(self) -> TaskModel:
        if self._model is None:
            restore = _restored_head if self._content["frozen"] else _restored_files
            self._model = restore(self._content, self._source, self._device)
        return self._model

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """The model's judgment of each item; texts that were truncated, or are empty, are counted and reported."""
        model = self.model
        before = _tally(model)
        judgments: list[Judgment] = []
        for start in range(0, len(items), CHUNK_TEXTS):
            chunk = prepare(model, items[start : start + CHUNK_TEXTS], learning=False, cache=self._cache)
            judgments += judge(model, chunk)
        cut = {name: count - before[name] for name, count in _tally(model).items()}
        cut["empty"] = sum(not item.text.strip() for item in items)
        for note in RowTally(**cut).notes(model.config.max_pieces):
            warnings.warn(f"{note}.", PolysemeWarning, stacklevel=3)
        return judgments

    def __getstate__(self) -> dict[str, Any]:
        if self._model is not None:
            self._content = _head_of(self._model) if self._model.config.frozen else _files_of(self._model)
        return {**self.__dict__, "_model": None}


def fit_task(
    data: TaskData,
    model: AnyPath | Model | None,
    *,
    tune: bool,
    dev: float,
    device: str,
    seed: int,
    cache: AnyPath | None,
    **settings: Any,
) -> FittedTask:
    """Learn a task whose items are all in `data`'s train; a part of them is set aside and chooses the best step."""
    layer = settings.pop("layer")
    checked = FinetuneSettings(
        frozen=not tune, layer=None if layer is None else str(layer), seeds=(_whole_number("seed", seed),), **settings
    )
    whole = _with_dev(data, dev)
    loaded = model_of(model, device, "auto") if isinstance(model, Model) else shared_model(model, device, "fp32")
    bundle = loaded.bundle.copied().float() if isinstance(model, Model) else loaded.bundle
    on = str(bundle.device) if isinstance(model, Model) else find_device(device)
    place = None if cache is None else Path(cache)
    run = FinetuneRun(model_name=loaded.path or "a model", device=on, cache=place)
    done = finetune_task(whole, bundle, checked, run)
    for note in done.cut:
        warnings.warn(f"{note}.", PolysemeWarning, stacklevel=4)
    return FittedTask(done.model, done.report, None if isinstance(model, Model) else model, device, place)


def _with_dev(data: TaskData, share: float) -> TaskData:
    if not 0 <= share < 1:
        raise OptionError(f"The share of the texts that becomes dev must be from 0 to below 1. Got {share!r} instead.")
    items = data.splits["train"]
    train, dev = with_dev(items, share=share) if share and len(items) > 1 else (items, ())
    note = dev_note(train, dev) if dev else "No texts were set aside: those that were learned from chose the best step."
    changed = {**vars(data), "splits": {"train": train, "dev": dev or train}, "notes": (*data.notes, note)}
    whole = TaskData(**changed)
    try:
        checked_data(whole)
    except InputError as error:
        raise GivenError(str(error)) from None
    return whole


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"The {name} must be a whole number. Got {value!r} instead.")
    return int(value)


def _tally(model: TaskModel) -> dict[str, int]:
    return asdict(RowTally() if model.row_maker is None else model.row_maker.tally)


# --- pickled ----------------------------------------------------------------------------------------------------------


def _head_of(model: TaskModel) -> dict[str, Any]:
    """What was learned over a frozen encoder, and which one that was."""
    if model.bundle is None:
        raise ModelError("There is no encoder to identify the head's inputs by.")
    return {
        "frozen": True,
        "reading": model.config.to_json(),
        "head": model.head.config.to_json(),
        "weights": {name: each.detach().cpu() for name, each in model.state().items()},
        "encoder": fingerprint(model.bundle),
    }


def _restored_head(content: dict[str, Any], source: AnyPath | None, device: str) -> TaskModel:
    loaded = shared_model(source, device, "fp32")
    changed = differences(content["encoder"], fingerprint(loaded.bundle))
    if changed:
        raise ModelError(
            f"The model at {loaded.path!r} is not the one that this estimator's head was learned over: it differs in "
            f"its {' and '.join(changed)}. Put that one back, or fit the estimator again."
        )
    head = build_head(HeadConfig.from_json(content["head"]))
    model = TaskModel(loaded.bundle, TaskConfig.from_json(content["reading"]), head).to(loaded.bundle.device)
    put(model, content["weights"])
    return model.eval()


def _files_of(model: TaskModel) -> dict[str, Any]:
    """A tuned model, as the files of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        save_task_model(model, place)
        files = {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}
    return {"frozen": False, "files": files}


def _restored_files(content: dict[str, Any], source: AnyPath | None, device: str) -> TaskModel:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in content["files"].items():
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        return load_task_model(folder, device=find_device(device))

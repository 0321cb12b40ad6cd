"""A new task model: how it is to read, by what its encoder and its head can take, and the head that goes with that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import check_stack, config_of
from polyseme.embedding.layer_selection import parse_layers
from polyseme.embedding.pooling import parse_pooling
from polyseme.errors import ModelError, OptionError
from polyseme.heads.bodies import PLAIN
from polyseme.heads.head import N_VECTORS
from polyseme.heads.head_config import HeadConfig, named_settings
from polyseme.heads.word_inputs import WordInputs, WordInputsConfig
from polyseme.tasks.encoder_rows import RowMaker
from polyseme.tasks.kinds import KINDS, build_head
from polyseme.transfer.stacked_inputs import FrozenInput, InputModel
from polyseme.transfer.task_model import FROM_START, TaskConfig, TaskModel, pooler_of
from polyseme.transfer.text_labels import check_writes, pieces_of


def build_task_model(
    bundle: Bundle | None,
    reading: TaskConfig,
    head: str,
    *,
    inputs: WordInputsConfig | None = None,
    stacked: Sequence[InputModel] = (),
    head_settings: Mapping[str, Any] | None = None,
) -> TaskModel:
    """A new task model around a bundle, which is taken over; new parts are drawn from torch's present seed.

    `reading` is how the task is to be read; what follows from the encoder and the head is filled in. `head_settings`
    are fields of `HeadConfig` besides those that `head` stands for: labels, regression, dropout_rate … Without a bundle
    the head reads other inputs alone: learned ones and frozen models (`stacked`).
    """
    settings = {**named_settings(head), **(head_settings or {})}
    if settings["body"] == "text":
        return _writing_model(bundle, reading, settings)
    config = _filled_in(reading, bundle, head, other_inputs=inputs is not None or bool(stacked))
    layer, stack = config.layer, config.stack
    width = 0 if bundle is None else parse_layers(layer, config_of(bundle, stack)).width(config_of(bundle, stack))
    marked = bool(settings.get("n_marks")) or KINDS[config.kind].has_spans
    config = config.replace(with_marks=marked)
    if "late_at" in settings:
        settings["late_width"] = width
    head_config = HeadConfig(
        kind=config.kind,
        width=width + (0 if inputs is None else inputs.width) + sum(FrozenInput(each).width for each in stacked),
        whole_width=width * N_VECTORS.get(config.readout, 1) if config.whole else None,
        separate_rows=config.separate_rows,
        readout=reading.readout if reading.readout not in FROM_START else "mean",  # type: ignore[arg-type]
        **settings,
    )
    return TaskModel(bundle, config, build_head(head_config), None if inputs is None else WordInputs(inputs), stacked)


def _writing_model(bundle: Bundle | None, reading: TaskConfig, settings: Mapping[str, Any]) -> TaskModel:
    """A model that writes its answers."""
    kind, max_pieces = reading.kind, reading.max_pieces
    check_writes(bundle, kind, multi=bool(settings.get("multi")))
    if bundle is None or bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a task.")
    if not reading.prompt:
        raise OptionError("A head that writes needs the texts that precede the inputs (prompt).")
    maker = RowMaker(bundle.tokenizer, bundle.config, max_pieces)
    texts = settings.get("numbers", ()) if settings.get("regression") else settings["labels"]
    head = HeadConfig(kind=kind, width=bundle.config.widths[-1], **{**settings, "pieces": pieces_of(maker, texts)})
    return TaskModel(bundle, TaskConfig(kind=kind, max_pieces=max_pieces, prompt=reading.prompt), build_head(head))


def _filled_in(reading: TaskConfig, bundle: Bundle | None, head: str, *, other_inputs: bool) -> TaskConfig:
    """How a model of this kind is to read, by what its encoder and its head can take."""
    task, readout, stack, frozen = KINDS[reading.kind], reading.readout, reading.stack, reading.frozen
    reading = reading.replace(prompt=())
    if bundle is None and stack == "decoder":
        raise OptionError("There is no model, and so no decoder. Leave the stack out.")
    if bundle is None:
        return reading.replace(separate_rows=task.has_two_texts, frozen=True, read_last=None)
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a task.")
    check_stack(bundle, stack)
    read = config_of(bundle, stack)
    if parse_layers(reading.layer, read).mode == "all":
        raise OptionError(
            "A head reads one vector per word, and 'all' layers are many. Take mix, concat:a:b or a number."
        )
    parse_pooling(reading.pool, read)
    maker = RowMaker(bundle.tokenizer, read, reading.max_pieces, stride=reading.stride)
    over_whole = named_settings(head)["body"] in PLAIN and not other_inputs
    from_start = readout in FROM_START
    if from_start and stack == "decoder":
        raise OptionError(
            f"The readout {readout!r} takes the state of a start special, and there the decoder has read nothing yet. "
            "Take last, mean, max or concat, or the encoder's stack."
        )
    if from_start:
        _check_start(readout, starts=maker.starts, pooler=pooler_of(bundle))
    whole = task.reads_whole(maker, plain=over_whole, frozen=frozen, from_start=from_start)
    return reading.replace(
        readout=task.whole_readout(readout, stack) if whole else readout,
        separate_rows=task.has_two_texts and not (maker.frames_pairs and (whole or not frozen)),
        whole=whole,
        read_last=reading.read_last if whole else None,
        standardized=frozen and reading.layer == "mix" and not read.has_normed_states,
    )


def _check_start(readout: str, *, starts: bool, pooler: nn.Module | None) -> None:
    """Refuse a readout of the start special that the model has nothing for."""
    if not starts:
        raise OptionError(
            f"The readout {readout!r} takes the state of a start special ([CLS]), and this model's rows have none. "
            "Take last, mean, max or concat."
        )
    if readout == "pooled" and pooler is None:
        raise OptionError("The readout 'pooled' goes through a pooler, and this model has none. Take first or mean.")

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
    *,
    kind: str,
    head: str,
    layer: str = "-1",
    pool: str = "mean",
    readout: str = "mean",
    frozen: bool = False,
    max_pieces: int = 512,
    stride: int = 128,
    chunk_length: int | None = None,
    read_last: int | None = None,
    stack: str = "encoder",
    prompt: tuple[str, ...] = (),
    inputs: WordInputsConfig | None = None,
    stacked: Sequence[InputModel] = (),
    head_settings: Mapping[str, Any] | None = None,
) -> TaskModel:
    """A new task model around a bundle, which is taken over; new parts are drawn from torch's present seed.

    `head_settings` are fields of `HeadConfig` besides those that `head` stands for: labels, regression, dropout_rate …
    Without a bundle the head reads other inputs alone: learned ones and frozen models (`stacked`). `prompt` is
    for the head that writes (`Kind.prompt`).
    """
    settings = {**named_settings(head), **(head_settings or {})}
    if settings["body"] == "text":
        return _writing_model(bundle, kind, max_pieces, prompt, settings)
    beside = inputs is not None or bool(stacked)
    config = _task_config(
        bundle, kind, head, layer, pool, readout, frozen, max_pieces, stride, stack, other_inputs=beside
    )
    width = 0 if bundle is None else parse_layers(layer, config_of(bundle, stack)).width(config_of(bundle, stack))
    marked = bool(settings.get("n_marks")) or KINDS[kind].has_spans
    config = config.replace(with_marks=marked, chunk_length=chunk_length)
    config = config.replace(read_last=read_last if config.whole else None)
    if "late_at" in settings:
        settings["late_width"] = width
    words = readout if readout not in FROM_START else "mean"
    head_config = HeadConfig(
        kind=kind,
        width=width + (0 if inputs is None else inputs.width) + sum(FrozenInput(each).width for each in stacked),
        whole_width=width * N_VECTORS.get(config.readout, 1) if config.whole else None,
        separate_rows=config.separate_rows,
        readout=words,  # type: ignore[arg-type]
        **settings,
    )
    return TaskModel(bundle, config, build_head(head_config), None if inputs is None else WordInputs(inputs), stacked)


def _writing_model(
    bundle: Bundle | None, kind: str, max_pieces: int, prompt: tuple[str, ...], settings: Mapping[str, Any]
) -> TaskModel:
    """A model that writes its answers."""
    check_writes(bundle, kind, multi=bool(settings.get("multi")))
    if bundle is None or bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a task.")
    if not prompt:
        raise OptionError("A head that writes needs the texts that precede the inputs (prompt).")
    config = TaskConfig(
        kind=kind, frozen=False, layer="-1", pool="mean", readout="mean", max_pieces=max_pieces, prompt=prompt
    )
    maker = RowMaker(bundle.tokenizer, bundle.config, max_pieces)
    texts = settings.get("numbers", ()) if settings.get("regression") else settings["labels"]
    head = HeadConfig(kind=kind, width=bundle.config.widths[-1], **{**settings, "pieces": pieces_of(maker, texts)})
    return TaskModel(bundle, config, build_head(head))


def _task_config(
    bundle: Bundle | None,
    kind: str,
    head: str,
    layer: str,
    pool: str,
    readout: str,
    frozen: bool,
    max_pieces: int,
    stride: int,
    stack: str,
    *,
    other_inputs: bool,
) -> TaskConfig:
    """How a model of this kind is to read, by what its encoder and its head can take."""
    task = KINDS[kind]
    plain: dict[str, Any] = {"frozen": frozen, "layer": layer, "pool": pool, "max_pieces": max_pieces, "stride": stride}
    if bundle is None and stack == "decoder":
        raise OptionError("There is no model, and so no decoder. Leave the stack out.")
    if bundle is None:
        return TaskConfig(kind=kind, readout=readout, separate_rows=task.has_two_texts, **{**plain, "frozen": True})
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a task.")
    check_stack(bundle, stack)
    read = config_of(bundle, stack)
    if parse_layers(layer, read).mode == "all":
        raise OptionError(
            "A head reads one vector per word, and 'all' layers are many. Take mix, concat:a:b or a number."
        )
    parse_pooling(pool, read)
    plain["standardized"] = frozen and layer == "mix" and not read.has_normed_states
    maker = RowMaker(bundle.tokenizer, read, max_pieces, stride=stride)
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
    readout = task.whole_readout(readout, stack) if whole else readout
    separate_rows = task.has_two_texts and not (maker.frames_pairs and (whole or not frozen))
    return TaskConfig(kind=kind, readout=readout, separate_rows=separate_rows, whole=whole, stack=stack, **plain)


def _check_start(readout: str, *, starts: bool, pooler: nn.Module | None) -> None:
    """Refuse a readout of the start special that the model has nothing for."""
    if not starts:
        raise OptionError(
            f"The readout {readout!r} takes the state of a start special ([CLS]), and this model's rows have none. "
            "Take last, mean, max or concat."
        )
    if readout == "pooled" and pooler is None:
        raise OptionError("The readout 'pooled' goes through a pooler, and this model has none. Take first or mean.")

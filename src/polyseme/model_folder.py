"""A model folder: read into a bundle, and written."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.config import EncoderConfig
from polyseme.convert.config_file import read_json, write_json
from polyseme.convert.conversion_table import CheckpointTensors, read, write
from polyseme.convert.families import family_of, is_model_file
from polyseme.convert.family import Family
from polyseme.convert.int8_weights import QUANTIZED, SETTING, holds_int8, restore, round_to_int8, take_scales
from polyseme.convert.named_files import named_files
from polyseme.convert.sentence_transformers import MODEL_CARD, read_extra_files, transformer_folder, write_extra_files
from polyseme.convert.weight_files import IN_INT8, refuse_no_weights, write_weights
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.extras import later
from polyseme.files.atomic import AnyPath, whole_folder
from polyseme.json_reading import damage_reported
from polyseme.ngrams.recognition import kind_without_encoder, no_encoder
from polyseme.parts.device import one_core
from polyseme.parts.initialization import skip_initialization
from polyseme.types import Tokenizer

CARD = "polyseme.json"
MEMBERS = "ensemble"
"""In that file of a folder with several task models, the names of their folders."""
PACKED = "polyseme.encoders.packed_transformer"
MOST_SPARE_ROWS = 256
"""How many rows a table of pieces may have beyond the tokenizer's, as padding to a round number."""
GENERATION = "generation_config.json"
OF_WRITING = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")
"""Settings of other libraries for the pieces that a decoder's texts begin and end with."""
OF_ENDS = ("eos_token_id", "suppress_tokens")
"""Settings of generation_config.json for the pieces that end a text, and that are never written."""


def load_bundle(path: AnyPath, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Bundle:
    """The model in a folder, or in a file of word vectors. A run's folder stands for its `model/`."""
    without_encoder = kind_without_encoder(Path(path))
    if without_encoder is not None:
        raise no_encoder(without_encoder, path)
    folder = model_folder(Path(path))
    family = family_of(folder)
    if family.read_file is not None and not family.folder.settings(folder).is_file():
        return _load_file(family, folder, dtype, device)
    settings = family.folder.settings(folder)
    where = str(settings)
    theirs = read_json(settings)
    config = _read_config(family, theirs, where)
    with one_core():
        weights = dict(family.folder.read_weights(folder))
        scales = take_scales(weights) if holds_int8(theirs) else {}
        tied = family.tied(theirs, weights)
        with _possible_sizes(where):
            table = family.table(config, tied)
        converted = read(table, weights, str(folder))
        if holds_int8(theirs):
            restore(converted.tensors, scales, str(folder))
    _warn_of_foreign(converted, folder)
    bundle = _unfilled_bundle(family, config, converted.outputs, tied, where)
    put_weights(bundle, converted.tensors, folder, dtype, device)
    # torch_dtype is the old name of dtype, which save_bundle writes.
    ours = {*family.unchecked_settings_of(config), "torch_dtype"}
    if holds_int8(theirs):
        bundle.from_int8 = True
        ours.add(SETTING)
    bundle.foreign = {name: value for name, value in theirs.items() if name not in ours}
    if (folder / GENERATION).is_file():
        bundle.generation = read_json(folder / GENERATION)
        named = {name: bundle.generation.get(name) for name in OF_WRITING}  # they precede those of config.json
        bundle.foreign |= {name: value for name, value in named.items() if value is not None}
    bundle.extra_files = read_extra_files(folder)
    bundle.tokenizer = family.folder.tokenizer(folder, family.frame, config)
    _check_tokenizer(bundle.tokenizer, bundle, folder)
    return bundle.eval()


def _load_file(family: Family, path: Path, dtype: torch.dtype, device: str) -> Bundle:
    """A model that is a single file, or files without any settings beside them."""
    assert family.read_file is not None
    with damage_reported(path, "Fetch it again.", ModelError):
        whole = family.read_file(path)
    tied = family.tied({}, whole.weights)
    converted = read(family.table(whole.config, tied), whole.weights, str(path))
    _warn_of_foreign(converted, path)
    bundle = _unfilled_bundle(family, whole.config, converted.outputs, tied, str(path))
    bundle.tokenizer = whole.tokenizer
    put_weights(bundle, converted.tensors, path, dtype, device)
    return bundle.eval()


def _unfilled_bundle(family: Family, config: EncoderConfig, outputs: Iterable[str], tied: bool, where: str) -> Bundle:
    """A bundle without memory for its weights; sizes that no tensor can have are refused."""
    with _possible_sizes(where), skip_initialization():
        return new_bundle(family, config, outputs, tied=tied)


@contextlib.contextmanager
def _possible_sizes(where: str) -> Iterator[None]:
    """Refuse the settings in `where` if a model cannot be built in their sizes, within this block."""
    try:
        yield
    except (RuntimeError, OverflowError, MemoryError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"{where} asks for sizes that no model has ({reason}). Correct them, or fetch it again."
        ) from None


def _warn_of_foreign(converted: CheckpointTensors, path: Path) -> None:
    if converted.left_out:
        warnings.warn(
            f"{path} also holds a task layer of another library ({', '.join(converted.left_out)}); it is left out.",
            PolysemeWarning,
            stacklevel=3,
        )


def check_saving(bundle: Bundle) -> None:
    """Refuse a model that the layout of its family cannot hold, without reading a weight."""
    bundle.family.settings_of(bundle.config)
    write(bundle.family.table(bundle.config, bundle.tied), named_tensors(bundle), list(bundle.outputs), prefix=True)


def save_bundle(
    bundle: Bundle,
    path: AnyPath,
    *,
    force: bool = False,
    shard_size: int | None = None,
    dtype: torch.dtype | None = None,
    int8: bool = False,
    card: str | None = None,
) -> None:
    """Write a model folder that `transformers` loads too, where it has the class; whole or not at all.

    Weights are stored as `dtype`, or as they are; with `int8`, those of products that can run in int8 as that, which
    polyseme alone reads. A `card` takes the place of the one that the model came with.
    """
    family, outputs = bundle.family, list(bundle.outputs)
    layers = [f"encoder.{name}" for name in later(PACKED).rounded_layers(bundle.encoder)] if int8 else []
    if int8 and not (layers and family.folder.described):
        raise OptionError(
            f"Models of the family {family.name} have no products in int8, so there is nothing to store in it. Leave "
            "int8 out; --store bf16 halves the file."
        )
    if dtype not in (None, torch.float32) and not family.folder.described:
        raise OptionError(f"The files of {family.name} hold weights in fp32 only. Leave the other precision out.")
    bare = family.architecture(outputs) == family.architectures[-1][0]
    ours, scales = round_to_int8(named_tensors(bundle), layers)
    tensors = write(family.table(bundle.config, bundle.tied), ours, outputs, prefix=not bare)
    if dtype is not None:
        tensors = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    stored = next((each.dtype for each in tensors.values() if each.is_floating_point()), torch.float32)
    config = _settings_to_write(bundle, stored) | ({SETTING: dict(QUANTIZED)} if int8 else {})
    record: dict[str, Any] = {"format": 1, "family": family.name, "outputs": outputs}
    if bundle.tokenizer is not None:
        record["tokenizer"] = bundle.tokenizer.fingerprint
    with whole_folder(Path(path), force=force) as folder:
        write_json(family.folder.settings(folder), dict(sorted(config.items())))
        if int8:
            write_weights(folder, tensors | scales, shard_size=shard_size, name=IN_INT8)
        else:
            family.folder.write_weights(folder, tensors, shard_size)
        if bundle.tokenizer is not None:
            bundle.tokenizer.save(str(folder))
        write_extra_files(bundle.extra_files, folder)
        if bundle.generation:
            write_json(folder / GENERATION, dict(bundle.generation))
        if card is not None:
            (folder / MODEL_CARD).write_text(card, encoding="utf-8")
        write_json(folder / CARD, record)


def _settings_to_write(bundle: Bundle, stored: torch.dtype) -> dict[str, Any]:
    """What the file of settings has: those of the family, and what else came with the model.

    Where the layout asks for it, the class, the precision and the ids of special pieces, too.
    """
    family, specials = bundle.family, {} if bundle.tokenizer is None else bundle.tokenizer.specials
    written = family.settings_of(bundle.config)
    if not family.folder.described:
        return {**bundle.foreign, **written}
    config = {
        **_begins_and_ends(bundle),
        **bundle.foreign,
        **written,
        "model_type": family.name,
        "architectures": [family.architecture(list(bundle.outputs))],
        "tie_word_embeddings": bundle.tied,
        "dtype": str(stored).removeprefix("torch."),
    }
    for role, name in family.special_ids:
        if role in specials and (name not in config or written.get(name, specials[role]) is None):
            config[name] = specials[role]
    return config


def _begins_and_ends(bundle: Bundle) -> dict[str, Any]:
    """The piece that a decoder's texts begin with; for a model of our own, that no piece is forced at the end.

    Otherwise other libraries would use their defaults, which are ids of the published vocabularies.
    """
    role, specials = bundle.family.first, {} if bundle.tokenizer is None else bundle.tokenizer.specials
    if bundle.decoder is None or role is None or role not in specials:
        return {}
    begins = {"decoder_start_token_id": specials[role]}
    return begins if bundle.foreign else {**begins, "forced_eos_token_id": None}


def _read_config(family: Family, theirs: Mapping[str, Any], where: str) -> EncoderConfig:
    try:
        with damage_reported(where, "Correct it, or fetch it again.", ModelError):
            return family.config_of(theirs, where)
    except ModelError as error:
        raise error if where in str(error) else ModelError(f"{where}: {error}") from None


def model_folder(path: Path) -> Path:
    """The folder of the model that a path names; a run's folder stands for its `model/`.

    A file of word vectors is a model by itself.
    """
    if is_model_file(path):
        return path
    if files := named_files(path):
        raise ModelError(
            f"The files {' and '.join(map(str, files))} are no model together: of the models in files, those of Flair "
            "are in two, a forward and a backward one. Name one file, or a folder."
        )
    if not path.exists():
        raise ModelError(f"There is no model at {path}: no such folder.")
    if not path.is_dir():
        raise ModelError(
            f"A model is a folder, and {path} is a file, and none of word vectors (GloVe, word2vec, fastText). Name "
            "the folder that holds config.json."
        )
    if members := members_of(path):
        raise ModelError(
            f"{path} holds {len(members)} task models that answer together, in predict and evaluate. For anything else "
            f"name one of them: {', '.join(map(str, members))}."
        )
    inside = path / "model"
    if not (path / "config.json").exists() and ((inside / "config.json").exists() or (inside / CARD).exists()):
        return inside
    return transformer_folder(path) or path


def members_of(folder: Path) -> list[Path]:
    """The folders of the task models that were fitted together in a folder (`transfer.task_ensemble`); mostly none."""
    card = folder / CARD
    members = read_json(card).get(MEMBERS, []) if card.is_file() else []
    if not isinstance(members, list) or not all(isinstance(name, str) and Path(name).name == name for name in members):
        raise ModelError(
            f"In {card}, {MEMBERS!r} must be a list of names of folders beside it. Got {members!r} instead."
        )
    return [folder / name for name in members]


def put_weights(bundle: Bundle, tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype, device: str) -> None:
    """Fill a bundle built without memory; every tensor exactly once, every shape as the config says."""
    expected = dict([*bundle.named_parameters(), *bundle.named_buffers()])
    wrong = [
        f"{name} is {tuple(tensors[name].shape)} and should be {tuple(expected[name].shape)}"
        for name in expected
        if name in tensors and tensors[name].shape != expected[name].shape
    ]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ModelError(
            f"The config in {folder} does not match its weights: {'; '.join(wrong[:3])}{more}. "
            "Check that the settings and the weights belong together."
        )
    differing = sorted(set(expected) ^ set(tensors))
    if differing:
        raise ModelError(f"The conversion table and the model disagree about {', '.join(differing[:6])}.")
    has_states = bundle.config.direction != "none"  # tables of static vectors are mapped: only rows in use are read
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        trained = isinstance(expected[name], nn.Parameter)
        if trained and not tensor.is_floating_point():
            refuse_no_weights(name, tensor, folder)
        placed = tensor.to(device=device, dtype=dtype)
        if has_states and (trained or tensor.is_floating_point()):
            with one_core():
                refuse_no_weights(name, placed, folder)
        setattr(bundle.get_submodule(owner), leaf, nn.Parameter(placed) if trained else placed)
    bundle.tie()


def _check_tokenizer(tokenizer: Tokenizer, bundle: Bundle, folder: Path) -> None:
    """Refuse the tokenizer of another model."""
    n_rows = bundle.config.n_pieces
    advice = "The tokenizer files are of another model; put the right ones into the folder."
    if tokenizer.n_pieces > n_rows or tokenizer.n_pieces < n_rows - MOST_SPARE_ROWS:
        raise ModelError(
            f"The tokenizer in {folder} has {tokenizer.n_pieces:,} pieces and the model {n_rows:,}. {advice}"
        )
    if (folder / CARD).is_file():
        expected = read_json(folder / CARD).get("tokenizer")
        if expected is not None and expected != tokenizer.fingerprint:
            raise ModelError(f"The tokenizer in {folder} is not the one the model was saved with. {advice}")

"""What the generation_config.json of a model folder says: pieces that end texts or are never written, and defaults.

Settings of `transformers` with an option of ours are defaults of that option. Those without one are reported if they
would change texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from polyseme.errors import ModelError, PolysemeWarning
from polyseme.json_reading import is_count, is_number

FILE = "generation_config.json"
TOP_K = 50
"""What `transformers` takes where a model samples and its file names no `top_k`."""


def ids_named(settings: Mapping[str, Any], name: str, n_pieces: int) -> tuple[int, ...]:
    """The ids of a setting, which is one or a list; none where it is not set."""
    named = settings.get(name)
    ids = named if isinstance(named, list) else [] if named is None else [named]
    for id in ids:
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < n_pieces:
            raise ModelError(
                f"{FILE}: '{name}' must hold ids of pieces, whole numbers below {n_pieces:,}. Got {id!r} instead. "
                "Correct the file, or remove the setting."
            )
    return tuple(ids)


def decoding_defaults(settings: Mapping[str, Any], *, has_source: bool) -> dict[str, Any]:
    """The defaults of `generate`'s options that a model brings, by option. Settings that have none are reported."""
    theirs = {name: value for name, value in settings.items() if value is not None}
    for name, (valid, description) in _VALID.items():
        if name in theirs and not valid(theirs[name]):
            raise ModelError(
                f"{FILE}: '{name}' must be {description}. Got {theirs[name]!r} instead. Correct the file, or remove "
                "the setting."
            )
    ours = {option: theirs[name] for name, option in _OPTIONS.items() if name in theirs}
    if has_source:  # the decoder's start piece counts
        lengths = (("max_length", "max_new"), ("min_length", "min_new"))
        ours = {option: max(theirs[name] - 1, 0) for name, option in lengths if name in theirs} | ours
    if ours.get("max_new") == 0:
        del ours["max_new"]
    if ours.get("beam", 1) > 1:
        pass
    elif theirs.get("do_sample") is True:
        sampling = {"temperature": 1.0, "top_k": TOP_K, "top_p": 1.0, **theirs}
        ours |= {"temperature": sampling["temperature"], "top_p": sampling["top_p"], "top_k": sampling["top_k"] or None}
    elif theirs.get("do_sample") is False:
        ours["greedy"] = True
    _report(theirs, ours, has_source=has_source)
    return ours


def _report(theirs: Mapping[str, Any], ours: Mapping[str, Any], *, has_source: bool) -> None:
    unsupported = [name for name, neutral in _WITHOUT_OPTION.items() if theirs.get(name, neutral) not in (neutral, [])]
    if not has_source and "max_new" not in ours and theirs.get("max_length", 20) != 20:
        unsupported.append("max_length")
    if not has_source and "min_new" not in ours and theirs.get("min_length", 0) > 0:
        unsupported.append("min_length")
    if not has_source:
        unsupported += [name for name in _OF_SOURCES if name in theirs]
    if theirs.get("do_sample") is True and ours.get("beam", 1) > 1:
        unsupported.append("do_sample")
    if unsupported:
        warnings.warn(
            f"The model's {FILE} sets {', '.join(map(repr, unsupported))}, which generate does not follow: its "
            "texts may differ from those of other libraries.",
            PolysemeWarning,
            stacklevel=4,
        )


_OPTIONS = {
    "max_new_tokens": "max_new",
    "min_new_tokens": "min_new",
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
}
"""Settings of the file, and our options."""

_WITHOUT_OPTION: Mapping[str, Any] = {
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "guidance_scale": None,
    "min_p": None,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "renormalize_logits": False,
    "sequence_bias": None,
    "stop_strings": None,
    "top_h": None,
    "typical_p": 1.0,
    "watermarking_config": None,
}
"""Settings that change texts and have no option here, with the value that changes nothing."""


_OF_SOURCES = ("forced_bos_token_id", "forced_eos_token_id")
"""Settings that only models with a source follow."""


def _is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


Check = tuple[Callable[[Any], bool], str]
_COUNT: Check = (is_count, "a whole number of at least 0")
_VALID: Mapping[str, Check] = {
    **dict.fromkeys(("max_new_tokens", "min_new_tokens", "max_length", "min_length"), _COUNT),
    **dict.fromkeys(("no_repeat_ngram_size", "top_k"), _COUNT),
    "num_beams": (lambda value: is_count(value) and value > 0, "a whole number of at least 1"),
    "length_penalty": (is_number, "a number"),
    "early_stopping": (lambda value: isinstance(value, bool) or value == "never", "true, false or 'never'"),
    "repetition_penalty": (_is_positive, "a number over 0"),
    "temperature": (_is_positive, "a number over 0"),
    "top_p": (lambda value: _is_positive(value) and value <= 1, "a number over 0 and at most 1"),
    "do_sample": (lambda value: isinstance(value, bool), "true or false"),
}
"""What settings must be."""

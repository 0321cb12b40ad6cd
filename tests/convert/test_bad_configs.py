"""A config.json that cannot be read, or says what cannot be: a ModelError that names the file and the entry."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from convert.spoiling import change_config, refusal


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"{", "cannot be read as JSON"),
        (b"\xff\xfe\x00", "cannot be read as JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b"[1, 2]", "it holds a list, and an object is expected"),
        (b'"bert"', "it holds a text, and an object is expected"),
        (b"{}", "is of type None, which polyseme does not know"),
        (b'{"model_type": "gpt9"}', "is of type 'gpt9', which polyseme does not know. It knows: bert, "),
        (b'{"model_type": ["bert"]}', "is of type ['bert'], which polyseme does not know"),
        (b'{"model_type": "bert"}', "does not say 'vocab_size'"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_config_that_says_nothing_of_use(folder: Path, content: bytes, said: str) -> None:
    (folder / "config.json").write_bytes(content)
    message = refusal(folder)
    assert said in message
    assert str(folder) in message


@pytest.mark.parametrize(
    "name", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
)
def test_a_config_that_lacks_a_size(folder: Path, name: str) -> None:
    change_config(folder, name)
    assert f"does not say {name!r}" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", "32"),
        ("hidden_size", 0),
        ("hidden_size", -32),
        ("hidden_size", 32.0),
        ("hidden_size", True),
        ("hidden_size", [32]),
        ("num_attention_heads", 0),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", "three"),
        ("intermediate_size", 0),
        ("vocab_size", 0),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", {}),
        ("type_vocab_size", -1),
        ("layer_norm_eps", "small"),
        ("layer_norm_eps", -1e-12),
        ("hidden_dropout_prob", 1.5),
        ("hidden_dropout_prob", float("nan")),
        ("attention_probs_dropout_prob", "none"),
    ],
)
def test_a_setting_that_cannot_be(folder: Path, name: str, value: Any) -> None:
    change_config(folder, **{name: value})
    message = refusal(folder)
    assert f"In {folder / 'config.json'}, {name!r} must be" in message
    assert f"Got {value!r} instead" in message


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("roberta", "pad_token_id", "one"),
        ("roberta", "pad_token_id", -1),
        ("roberta", "max_position_embeddings", 2),
        ("xlm-roberta", "max_position_embeddings", None),
        ("albert", "num_hidden_layers", 0),
        ("albert", "num_hidden_groups", "2"),
        ("albert", "inner_group_num", 0),
        ("albert", "embedding_size", 0),
        ("electra", "embedding_size", "16"),
        ("distilbert", "dim", 0),
        ("distilbert", "n_heads", 1.5),
    ],
)
def test_a_setting_of_its_family_that_cannot_be(
    good: dict[str, Path], tmp_path: Path, family: str, name: str, value: Any
) -> None:
    folder = Path(shutil.copytree(good[family], tmp_path / "spoilt"))
    change_config(folder, **{name: value})
    assert f"{name!r} must be a whole number" in refusal(folder)


def test_heads_that_do_not_divide_the_width(folder: Path) -> None:
    change_config(folder, num_attention_heads=5)
    assert "A width of 32 cannot be divided among 5 heads" in refusal(folder)


@pytest.mark.parametrize(("activation", "said"), [("gelo", "Did you mean 'gelu'?"), (7, "There are: gelu, ")])
def test_an_unknown_activation(folder: Path, activation: Any, said: str) -> None:
    change_config(folder, hidden_act=activation)
    message = refusal(folder)
    assert f"names an unknown activation {activation!r}" in message
    assert said in message


@pytest.mark.parametrize(
    ("option", "value"),
    [("position_embedding_type", "relative_key"), ("is_decoder", True), ("add_cross_attention", True)],
)
def test_what_would_be_computed_otherwise_is_not_computed(folder: Path, option: str, value: Any) -> None:
    change_config(folder, **{option: value})
    assert str(folder / "config.json") in refusal(folder)

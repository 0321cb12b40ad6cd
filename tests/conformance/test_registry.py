"""Files, the table of families, the table of kinds and the battery agree."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import tiny_models
from conformance import test_battery, test_compile, test_equality, test_round_trips
from conformance.cases import CONFIGS, REFERENCED, TRANSFORMERS, family_name
from polyseme import convert, encoders
from polyseme.config import EncoderConfig
from polyseme.convert.families import FAMILIES, family_of
from polyseme.convert.family import Family
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.encoder_kinds import KINDS, build_encoder, config_from_json, config_to_json
from polyseme.errors import ModelError
from references import reference_class

every_referenced = pytest.mark.parametrize("family", REFERENCED.values(), ids=family_name)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=family_name)


def modules_of(room: ModuleType) -> list[ModuleType]:
    return [importlib.import_module(f"{room.__name__}.{each.name}") for each in pkgutil.iter_modules(room.__path__)]


def classes_of(room: ModuleType, base: type) -> set[type]:
    """The classes that a room defines itself under a base, those aside that are only a base."""
    return {
        value
        for module in modules_of(room)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    }


# --- files and tables ------------------------------------------------------------------------------------------------


def test_every_file_with_a_family_is_in_the_table_and_the_other_way_round() -> None:
    in_files = [vars(module)["FAMILY"] for module in modules_of(convert) if "FAMILY" in vars(module)]
    assert sorted(family.name for family in in_files) == sorted(FAMILIES)
    for family in in_files:
        assert FAMILIES[family.name] is family


def test_every_encoder_is_in_the_table_of_kinds() -> None:
    assert {config for config, _ in KINDS.values()} == classes_of(encoders, EncoderConfig)
    assert {build for _, build in KINDS.values()} == classes_of(encoders, Encoder)
    for kind, (config, _) in KINDS.items():
        assert config.kind == kind


@every_family
def test_a_family_s_kind_is_its_config_s(family: Family) -> None:
    config_class, encoder_class = KINDS[family.kind]
    assert type(family.tiny()) is config_class
    assert type(build_encoder(family.tiny())) is encoder_class


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'transfromer'.*Did you mean 'transformer'"):
        config_from_json({"kind": "transfromer"})


@pytest.mark.parametrize("battery", [test_battery, test_compile, test_equality, test_round_trips])
def test_the_battery_runs_over_every_family(battery: ModuleType) -> None:
    """What a test is run over holds every family, every one with a reference, or none."""
    covered = 0
    for name, test in vars(battery).items():
        if not name.startswith("test_"):
            continue
        for mark in getattr(test, "pytestmark", []):
            families = _families_in(mark)
            assert families in (set(), set(REFERENCED), set(FAMILIES)), name
            covered += bool(families)
    assert covered


def _families_in(mark: pytest.Mark) -> set[str]:
    """The families among what a test is parametrised with, given as such or by name, alone or in tuples."""
    cases = mark.args[1] if mark.name == "parametrize" else ()
    values = [value for case in cases for value in (case if isinstance(case, tuple) else (case,))]
    names = {value.name if isinstance(value, Family) else value for value in values if isinstance(value, (Family, str))}
    return names & set(FAMILIES)


def test_every_family_has_a_small_whole_model() -> None:
    assert tiny_models.BACKENDS.keys() == FAMILIES.keys()


# --- configs ---------------------------------------------------------------------------------------------------------


@every_family
def test_configs_are_read_as_they_are_written(family: Family) -> None:
    written = json.loads(json.dumps(family.write_config(family.tiny())))
    assert family.read_config(written, "config.json") == family.tiny()


@every_referenced
def test_the_reference_reads_the_same_config(family: Family) -> None:
    """What is written says to the reference what it says to us; its own files are read as ours are."""
    settings = reference_class(family, family.architectures[-1][0]).config_class(**family.write_config(family.tiny()))
    assert family.read_config(settings.to_dict(), "config.json") == family.tiny()


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_go_to_json_with_their_kind_and_come_back(name: str) -> None:
    settings = json.loads(json.dumps(config_to_json(CONFIGS[name])))
    assert config_from_json(settings) == CONFIGS[name]


def test_an_unknown_field_of_a_config_is_refused() -> None:
    settings = {**config_to_json(TRANSFORMERS["bert"]), "n_layer": 3}
    with pytest.raises(ModelError, match=r"'n_layer'.*Did you mean 'n_layers'"):
        config_from_json(settings)


# --- folders ---------------------------------------------------------------------------------------------------------


@every_family
def test_a_saved_folder_is_of_one_family(family: Family, tmp_path: Path) -> None:
    tiny_models.tiny_model(family.name).save(tmp_path / "model")
    assert [each.name for each in FAMILIES.values() if each.detect(tmp_path / "model")] == [family.name]


@every_referenced
def test_a_folder_is_of_one_family(family: Family, tmp_path: Path) -> None:
    settings = reference_class(family, family.architectures[-1][0]).config_class(**family.write_config(family.tiny()))
    settings.save_pretrained(tmp_path)
    assert [each.name for each in FAMILIES.values() if each.detect(tmp_path)] == [family.name]
    assert family_of(tmp_path) is family


def test_a_folder_of_no_known_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        family_of(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}', encoding="utf-8")
    with pytest.raises(ModelError, match=r"'mamba'.*It knows: bert"):
        family_of(tmp_path)

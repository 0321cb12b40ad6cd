"""Verbs accept what claims would run, in both sizes: nothing is found out on a GPU that can be known before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polyseme.claims import lab as lab_module
from polyseme.claims import shared_layers
from polyseme.claims.claim import Claim
from polyseme.claims.claim_table import CLAIMS
from polyseme.claims.lab import Lab
from polyseme.claims.standard_model import pretrain_rows, row_length
from polyseme.errors import InputError
from polyseme.sweeps.grid import ROW, grid_points
from polyseme.sweeps.sweep_report import RunResult
from polyseme.verbs import sweep as sweep_module
from polyseme.verbs.sweep_run import PLACE
from tiny_models import tiny_model

SIZES = [
    pytest.param(claim, small, id=f"{claim.name}-{'small' if small else 'full'}")
    for claim in CLAIMS.values()
    if claim.run is not None
    for small in ([False, True] if claim.small_minutes is not None else [False])
]


class Accepted(Exception):  # noqa: N818
    """Raised where the first sweep would begin, or where a model would be fitted."""


def check_sweep(verb: str, argument: Any, **options: Any) -> None:
    """All checks of a sweep, and no run."""
    swept, own, base = sweep_module._read(verb, argument, options)
    points = grid_points(own.over, own.rows)
    for each in own.then:
        sweep_module._check_following(each)
    places = sweep_module._places(swept, base, points)
    for point in points:
        sweep_module._of_point(swept, point, base, places)
    raise Accepted


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "small"), SIZES)
def test_the_runs_of_a_claim_are_accepted(
    claim: Claim, small: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(*_: Any, **__: Any) -> None:
        raise Accepted

    monkeypatch.setattr(lab_module, "sweep", check_sweep)
    monkeypatch.setattr(lab_module, "finetune", fitted)
    monkeypatch.setattr("polyseme.claims.layers_that_move.finetune", fitted)
    lab = Lab(claim=claim.name, folder=tmp_path, data=data, n_seeds=claim.seeds, small=small, device="cpu")
    assert claim.run is not None
    with pytest.raises(Accepted):
        claim.run(lab)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("attention-beats-bottleneck", "test_2016_flickr.en"),
        ("cache-helps", "wiki.train"),
        ("dependencies-between-targets", "news-01."),
        ("scaled-attention", "wiki-00."),
    ],
)
def test_a_file_that_is_not_there_is_named_before_anything_is_trained(name: str, file: str, tmp_path: Path) -> None:
    lab = Lab(claim=name, folder=tmp_path, data=tmp_path, n_seeds=1, small=True, device="cpu")
    run = CLAIMS[name].run
    assert run is not None
    with pytest.raises(InputError, match=f"begins with '{file}' in"):
        run(lab)


def test_rows_of_the_standard_model_are_those_that_are_named() -> None:
    with pytest.raises(KeyError):
        pretrain_rows(Lab(claim="none", folder=Path(), data=Path(), n_seeds=1), ["maskd"])


def test_layers_are_timed_on_rows_that_the_models_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(claim="sharing", folder=tmp_path, data=Path(), n_seeds=1, small=True, device="cpu")
    runs = [
        RunResult(name=row, settings={ROW: row}, seed=0, folder=row, state="finished", figures={})
        for row in shared_layers.ROWS
    ]
    for row, layers in zip(shared_layers.ROWS, ((0, 0), (0, 1)), strict=True):
        model = tiny_model("albert", n_layers=2, layer_map=layers, sets_in_group=1, max_positions=row_length(lab))
        model.save(tmp_path / row / PLACE)
    monkeypatch.setattr(shared_layers, "pretrain_rows", lambda *_: runs)
    monkeypatch.setattr(shared_layers, "TURNS", 1)
    shared, own = shared_layers.run(lab)
    assert own.figures[shared_layers.WEIGHTS].value == 2 * shared.figures[shared_layers.WEIGHTS].value
    assert shared.figures[shared_layers.SECONDS].value > 0

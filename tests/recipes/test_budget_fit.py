"""How training is fitted to a budget, a device and a text: every rule of `budget_fit`, and which recipe is chosen."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.convert.families import FAMILIES
from polyseme.encoders.encoder_kinds import config_from_json
from polyseme.errors import OptionError, OutputError, PolysemeWarning
from polyseme.recipes import budget_fit, pretraining_request, recipe_choice
from polyseme.recipes.budget_fit import (
    BATCH,
    BATCH_AT,
    BATCH_POWER,
    FEW_EPOCHS,
    LARGEST,
    SHARE_OF_TEXT,
    SMALLEST,
    STEP_SECONDS,
    UTILIZATION,
    WARMUP_SHARE,
    WARMUP_STEPS,
    Circumstances,
    Fit,
    Scaling,
    fit,
    fitted_dropout,
    fitted_training,
)
from polyseme.recipes.pretraining_request import PretrainingRequest
from polyseme.recipes.recipe_choice import best_encoder, chosen_recipe
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training.budget import parse_budget
from polyseme.training.device_group import devices_for
from polyseme.training.pretraining import Pretraining
from polyseme.training.pretraining_job import Job
from polyseme.training.run_job import PausedRun
from polyseme.training.time_budget import Timing
from polyseme.verb_options.pretraining_options import PretrainOptions
from training.kills import write_text

WIDTH = 400
CONFIG = RECIPES["bert-tiny"].config(1000, {"width": WIDTH, "n_heads": 4})
FLOPS = 6e6
"""Of each piece."""
H200, CORE = 8e14, 1e11
"""Operations per second."""


def fitted(
    budget: str = "1e9pieces",
    *,
    device: str = "cuda",
    world: int = 1,
    speed: float = H200,
    text: int | None = None,
    scaling: Scaling | None = None,
    **chosen: Any,
) -> Fit:
    circumstances = Circumstances(
        budget=parse_budget(budget),
        device=device,
        world=world,
        flops_per_second=lambda: speed,
        flops_per_piece=lambda length: FLOPS,
        text_pieces=text,
    )
    return fit(scaling or Scaling(), CONFIG, circumstances, chosen)


def pieces_of_step(each: Fit) -> int:
    return each.batch_size * each.length


# --- pieces, length and batch -----------------------------------------------------------------------------------------


def test_a_budget_becomes_pieces_whatever_its_unit() -> None:
    assert fitted("1e9pieces").pieces == 1e9
    assert fitted("6e15flops").pieces == pytest.approx(6e15 / FLOPS)
    assert fitted("100s", speed=H200).pieces == pytest.approx(100 * UTILIZATION["cuda"] * H200 / FLOPS)
    assert fitted("100s", device="cpu", speed=CORE).pieces == pytest.approx(100 * UTILIZATION["cpu"] * CORE / FLOPS)
    assert fitted("100s", world=4).pieces == pytest.approx(4 * fitted("100s").pieces)


@pytest.mark.parametrize("n_steps", [1000, 20_000])
def test_a_number_of_steps_has_the_batch_that_suits_the_pieces_it_then_reads(n_steps: int) -> None:
    each = fitted(f"{n_steps}steps")
    assert each.pieces == n_steps * pieces_of_step(each)
    expected = min(max(BATCH * (each.pieces / BATCH_AT) ** BATCH_POWER, SMALLEST["cuda"]), LARGEST)
    assert pieces_of_step(each) == pytest.approx(expected, rel=0.5), "but for rounding to a power of two"


def test_rows_have_128_pieces_and_64_on_a_cpu_and_no_more_than_the_model_reads() -> None:
    assert fitted().length == 128
    assert fitted(device="cpu").length == 64
    assert fitted(scaling=Scaling(length=256)).length == 256
    assert fitted(scaling=Scaling(length=4096)).length == CONFIG.max_positions == 512


def test_the_batch_grows_with_the_run_by_its_power() -> None:
    at = pieces_of_step(fitted(f"{BATCH_AT:.0f}pieces"))
    longer = pieces_of_step(fitted(f"{8 * BATCH_AT:.0f}pieces"))
    assert at == BATCH
    assert longer / at == 2 ** round(3 * BATCH_POWER)
    assert pieces_of_step(fitted(f"{8 * BATCH_AT:.0f}pieces", scaling=Scaling(batch=0.5))) == longer / 2
    sizes = [fitted(f"{amount:.0e}pieces").batch_size for amount in (1e8, 1e9, 1e10, 1e11)]
    assert sizes == sorted(sizes)
    assert all(math.log2(each).is_integer() for each in sizes)


def test_the_batch_has_bounds() -> None:
    assert pieces_of_step(fitted("1e6pieces")) == SMALLEST["cuda"], "a GPU must be busy"
    assert pieces_of_step(fitted("1e15pieces")) == LARGEST
    assert pieces_of_step(fitted("1e4pieces", device="cpu")) == SMALLEST["cpu"]


def test_a_step_takes_at_most_two_seconds_on_a_cpu() -> None:
    speed = UTILIZATION["cpu"] * CORE / FLOPS  # pieces per second
    slow = fitted("1d", device="cpu", speed=CORE)
    fast = fitted("1d", device="cpu", speed=100 * CORE)
    assert pieces_of_step(slow) / speed == pytest.approx(STEP_SECONDS, rel=0.5)
    assert pieces_of_step(fast) > 4 * pieces_of_step(slow)
    assert pieces_of_step(fitted("1d", device="cuda", speed=CORE)) >= SMALLEST["cuda"], "a GPU has no such bound"


def test_a_step_reads_at_most_an_eighth_of_the_text() -> None:
    assert pieces_of_step(fitted("1e9pieces", text=80_000)) <= SHARE_OF_TEXT * 80_000 * 1.5
    assert pieces_of_step(fitted("1e9pieces", text=80_000_000)) == pieces_of_step(fitted("1e9pieces"))
    assert fitted(text=100, device="cpu").batch_size == 1


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_processes_share_a_batch_evenly(world: int) -> None:
    assert fitted("1e9pieces", world=world).batch_size % world == 0
    assert fitted("1e9pieces", world=world, text=100).batch_size == world


# --- optimizer, schedule and dropout ----------------------------------------------------------------------------------


def test_the_learning_rate_goes_by_the_width_and_is_higher_for_matrices() -> None:
    each = fitted()
    assert each.optimizer == "muon"
    assert each.learning_rate == pytest.approx(Scaling().rate / math.sqrt(WIDTH))
    assert each.matrix_learning_rate == pytest.approx(Scaling().matrix_factor * each.learning_rate)
    plain = fitted(scaling=Scaling(optimizer="adamw", rate=0.02))
    assert (plain.learning_rate, plain.matrix_learning_rate) == (pytest.approx(0.02 / math.sqrt(WIDTH)), None)


def test_warmup_is_200_steps_and_at_most_a_twentieth() -> None:
    assert fitted("100_000steps").warmup == WARMUP_STEPS
    assert fitted("1000steps").warmup == WARMUP_SHARE


@pytest.mark.parametrize("n_steps", [1000, 10_000])
def test_the_rate_is_constant_after_warmup_and_falls_to_zero_over_the_second_half(n_steps: int) -> None:
    schedule = fitted_training(Scaling(), fitted(f"{n_steps}steps")).schedule
    warm = min(WARMUP_STEPS, round(WARMUP_SHARE * n_steps))
    assert schedule.factor(0, n_steps) < 0.1
    assert schedule.factor(warm // 2, n_steps) == pytest.approx(0.5, abs=0.05)
    assert {schedule.factor(step, n_steps) for step in (warm, n_steps // 4, n_steps // 2 - 1)} == {1.0}
    assert schedule.factor(3 * n_steps // 4, n_steps) == pytest.approx(0.5, abs=0.01)
    assert schedule.factor(n_steps - 1, n_steps) < 0.01


def test_dropout_is_for_texts_that_are_read_more_than_four_times() -> None:
    few, many = fitted("1e9pieces", text=250_000_000), fitted("1e9pieces", text=100_000_000)
    assert (few.epochs, few.dropout) == (4.0, 0.0)
    assert (many.epochs, many.dropout) == (10.0, 0.1)
    unknown = fitted("1e9pieces")
    assert (unknown.epochs, unknown.dropout) == (None, 0.0)


def test_the_user_s_options_are_kept() -> None:
    each = fitted(length=32, batch_size=7, learning_rate=0.5, optimizer="sgd", text=10_000_000)
    assert (each.length, each.batch_size, each.learning_rate, each.optimizer) == (32, 7, 0.5, "sgd")
    assert each.matrix_learning_rate is None


def test_one_rate_for_all_weights_suits_the_matrices() -> None:
    scaling = Scaling(rate=0.2, matrix_factor=0.1)
    of_tables, of_all = (fitted(scaling=scaling, optimizer=kind) for kind in ("muon", "adamw"))
    assert of_tables.matrix_learning_rate == pytest.approx(of_all.learning_rate)
    assert of_tables.learning_rate == pytest.approx(10 * of_all.learning_rate)


def test_what_the_rules_gave_is_said_and_read_back() -> None:
    each = fitted("6e8pieces", text=60_000_000, batch_size=512, learning_rate=0.002)
    first, second = each.lines(parse_budget("6e8pieces"))
    assert "600,000,000 pieces, 10.0 epochs of this text" in first
    assert second == (
        f"about {6e8 / 65_536:,.0f} steps of 512 rows of 128 pieces; muon, learning rate 0.002 "
        f"({each.matrix_learning_rate:.2g} for matrices), "
        "dropout 0.1"
    )
    assert Fit.from_json(json.loads(json.dumps(each.to_json()))) == each


PRETRAINING_PAGE = Path(__file__).parents[2] / "docs" / "pretrain.md"


@pytest.mark.parametrize("where", ["budget_fit", "docs"])
def test_the_rules_are_written_down_as_they_are(where: str) -> None:
    text = str(budget_fit.__doc__) if where == "budget_fit" else PRETRAINING_PAGE.read_text(encoding="utf-8")
    rules = " ".join(text.split())
    for said in (
        f"{Scaling().length} pieces, on a CPU {Scaling().cpu_length}",
        f"{BATCH:,} pieces · (D / {BATCH_AT:.0e})^{BATCH_POWER}".replace("e+0", "e"),
        f"{SMALLEST['cuda']:,} pieces on a GPU, to keep it busy; {SMALLEST['cpu']:,} on a CPU",
        f"{STEP_SECONDS:g} s of work on a CPU",
        f"{Scaling().rate:g} / √width for AdamW, {Scaling().matrix_factor:g} times that for the matrices",
        f"a warmup of {WARMUP_STEPS} steps",
        f"none up to {FEW_EPOCHS:g} epochs of the text, then {Scaling().dropout:g}",
    ):
        assert said in rules


# --- from a recipe to a job -------------------------------------------------------------------------------------------


def request(recipe: str, budget: str = "1000steps", *, shape: Mapping[str, Any] | None = None, **options: Any) -> Any:
    return PretrainingRequest(
        recipe=RECIPES[recipe],
        budget=parse_budget(budget),
        device="cpu",
        start=None,
        shape=RECIPES[recipe].shaped(shape or {}),
        objective=options.pop("objective", {}),
        options=PretrainOptions(**options).values(),
        reporting={},
    )


def job_of(recipe: str, *, text_pieces: int | None = None, n_pieces: int = 1000, **options: Any) -> Job:
    asked = request(recipe, **options)
    with devices_for("cpu") as devices:
        job: Job = asked.plan(n_pieces, asked.fit(n_pieces, devices, text_pieces=text_pieces))
    return job


@pytest.mark.parametrize("name", ["bert-base", "electra-small", "gpt-2018", "elmo-original", "t5-base", "modern-base"])
def test_as_published_takes_the_paper_s_settings(name: str) -> None:
    published, recipe = job_of(name, as_published=True), RECIPES[name]
    assert published.fit is None
    for setting in ("phases", "optimizer", "schedule", "max_grad_norm", "sentence_starts"):
        assert getattr(published.training, setting) == getattr(recipe.training, setting)
    assert {**published.objective, **recipe.objective_settings} == published.objective
    assert published.encoder["dropout_rate"] == recipe.config(1000).dropout_rate
    scaled = job_of(name)
    assert scaled.fit is not None
    assert scaled.training.phases != published.training.phases


def test_the_user_s_options_come_before_the_rules_and_before_the_paper() -> None:
    for as_published in (True, False):
        job = job_of(
            "bert-tiny",
            as_published=as_published,
            length=32,
            batch_size=6,
            learning_rate=0.25,
            optimizer="adamw",
            schedule="cosine",
            warmup=17,
            objective={"mask_rate": 0.4},
            shape={"dropout_rate": 0.3},
            text_pieces=10,
        )
        [phase] = {(each.length, each.batch_size) for each in job.training.phases}
        assert phase == (32, 6)
        assert (job.training.optimizer.kind, job.training.optimizer.lr) == ("adamw", 0.25)
        assert (job.training.schedule.kind, job.training.schedule.warmup) == ("cosine", 17)
        assert (job.objective["mask_rate"], job.objective["final_mask_rate"]) == (0.4, None)
        assert job.encoder["dropout_rate"] == 0.3


def test_dropout_of_the_rules_is_the_encoder_s() -> None:
    few, many = job_of("bert-tiny", text_pieces=10**12), job_of("bert-tiny", text_pieces=1000)
    for job, rate in ((few, 0.0), (many, 0.1)):
        assert (job.encoder["dropout_rate"], job.encoder["embedding_dropout_rate"]) == (rate, rate)
        assert job.encoder["attention_dropout_rate"] == 0.0


@pytest.mark.parametrize("text_pieces", [10**12, 1000])
def test_every_fitted_recipe_can_be_saved(text_pieces: int) -> None:
    """With dropout and without: a family's config.json must be able to say it."""
    for name, recipe in RECIPES.items():
        if recipe.scaling is not None:
            family, job = FAMILIES[recipe.family], job_of(name, text_pieces=text_pieces)
            config = config_from_json(job.encoder)
            assert family.read_config(family.write_config(config), "config") == config


@pytest.mark.parametrize("name", ["bert-base", "gpt-small", "gpt-2018", "modern-small"])
def test_a_model_has_the_positions_that_it_was_trained_on(name: str) -> None:
    """Learned or rotary: a position that no row had would be noise where the model is used."""
    assert job_of(name).encoder["max_positions"] == job_of(name).training.longest == 64
    assert job_of(name, length=96).encoder["max_positions"] == 96
    published = job_of(name, as_published=True)
    assert published.encoder["max_positions"] >= RECIPES[name].shape["max_positions"]
    assert published.encoder["max_positions"] >= published.training.longest


def test_relative_positions_reach_as_far_as_ever() -> None:
    assert job_of("t5-small").encoder["max_positions"] == 512
    assert job_of("t5-small", length=1024).encoder["max_positions"] == 1024


def test_masks_fall_and_are_drawn_anew_where_training_is_fitted() -> None:
    fitted_job, published = job_of("bert-base"), job_of("bert-base", as_published=True)
    names = ("mask_rate", "final_mask_rate", "static_copies")
    assert tuple(fitted_job.objective[name] for name in names) == (0.3, 0.15, None)
    assert tuple(published.objective[name] for name in names) == (0.15, None, 10)


def test_elmo_has_a_full_softmax_of_frequent_words_where_training_is_fitted() -> None:
    """The published one is of 793,471 words, which a text of minutes has not, sampled."""
    for name in ("elmo-small", "elmo-medium", "elmo-original"):
        scaled, published = job_of(name, n_pieces=10**6), job_of(name, n_pieces=10**6, as_published=True)
        assert (scaled.encoder["n_outputs"], scaled.objective["softmax"]) == (32_768, "full")
        assert (published.encoder["n_outputs"], published.objective["softmax"]) == (793_471, "sampled")
    assert job_of("elmo-small", n_pieces=5000).encoder["n_outputs"] == 5000
    assert job_of("elmo-small", n_pieces=10**6, shape={"n_outputs": 99}).encoder["n_outputs"] == 99
    assert job_of("elmo-tiny", n_pieces=10**6).encoder["n_outputs"] == 8192


def test_the_cost_is_of_the_objective_that_is_trained() -> None:
    """ELECTRA's generator is another where training is fitted, and a budget of operations reads other pieces."""
    scaling, published = RECIPES["electra-small"].scaling, RECIPES["electra-small"].objective_settings
    assert scaling is not None
    fits = [job_of("electra-small", budget="1e15flops", objective=each).fit for each in ({}, scaling.objective)]
    assert fits[0] == fits[1]
    wide = job_of("electra-small", budget="1e15flops", objective={**published, "generator_share": 1.0}).fit
    assert fits[0] is not None
    assert wide is not None
    assert wide["pieces"] < 0.9 * fits[0]["pieces"]


# --- by one call ------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": "1min",
    "shape": {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32},
    "device": "cpu",
    "stop_after": "0.001s",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "text.txt")
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(folder / "text.txt", output=folder / "corpus", vocab_size=300)
    return folder / "corpus"


def settings_of(run: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((run / "run.json").read_text())["settings"]
    return settings


def runs_at(monkeypatch: pytest.MonkeyPatch, flops_per_second: float) -> None:
    """As if the machine multiplied matrices so fast; steps are not timed, which would take seconds."""
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: Timing((0.01,), 0.0))
    for room in (pretraining_request, recipe_choice):
        monkeypatch.setattr(room, "measured_peak", lambda *_: flops_per_second)


def test_the_same_command_resumes_a_run_with_the_fit_it_began_with(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    runs_at(monkeypatch, 1e8)
    assert isinstance(polyseme.pretrain(corpus, output=run, **SMALL), PausedRun)
    began = settings_of(run)
    runs_at(monkeypatch, 1e6)
    again = polyseme.pretrain(corpus, output=run, **SMALL)
    assert isinstance(again, PausedRun)
    assert again.done == 2
    assert settings_of(run) == began
    polyseme.pretrain(corpus, output=tmp_path / "slower", **SMALL)
    assert settings_of(tmp_path / "slower")["fit"]["pieces"] == pytest.approx(began["fit"]["pieces"] / 100)
    with pytest.raises(OutputError, match='budget is "1min" there and "2min" here'):
        polyseme.pretrain(corpus, output=run, **{**SMALL, "budget": "2min"})


def test_a_text_that_would_be_read_over_200_times_is_warned_of(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_at(monkeypatch, 1e12)
    with pytest.warns(PolysemeWarning, match=r"read this text [\d,]{4,} times, and more than 200 teach nothing new"):
        polyseme.pretrain(corpus, output=tmp_path / "run", **SMALL)
    with warnings.catch_warnings(action="error", category=PolysemeWarning):
        polyseme.pretrain(corpus, output=tmp_path / "few", **{**SMALL, "budget": "20steps"})


def test_a_budget_too_small_for_a_step_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"budget of 0\.01s"):
        polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, "budget": "0.01s"})


def test_a_model_trained_further_takes_its_family_s_recipe_and_a_quarter_of_the_rate(
    corpus: Path, tmp_path: Path
) -> None:
    settings = {**SMALL, "budget": "6steps", "stop_after": None}
    polyseme.pretrain(corpus, output=tmp_path / "first", **settings)
    further = {"budget": "6steps", "device": "cpu"}
    polyseme.pretrain(corpus, output=tmp_path / "more", model=tmp_path / "first", **further)
    first, more = settings_of(tmp_path / "first"), settings_of(tmp_path / "more")
    assert (first["family"], more["recipe"]) == ("bert", "bert-tiny")
    assert more["encoder"] == first["encoder"]
    for name in ("learning_rate", "matrix_learning_rate"):
        assert more["fit"][name] == pytest.approx(first["fit"][name] / 4)
    polyseme.pretrain(corpus, output=tmp_path / "own", model=tmp_path / "first", learning_rate=0.01, **further)
    assert settings_of(tmp_path / "own")["fit"]["learning_rate"] == 0.01


# --- which recipe -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "device", "speed", "expected"),
    [
        ("5min", "cpu", 5e10, "modern-tiny"),
        ("1s", "cpu", 1e6, "modern-tiny"),
        ("6min", "cuda", H200, "modern-small"),
        ("20min", "cuda", H200, "modern-small"),
        ("2d", "cuda", H200, "modern-base"),
        ("1e20flops", "cpu", 1.0, "modern-base"),
        ("1000steps", "cpu", 1.0, "modern-tiny"),
        ("1000steps", "cuda", 1.0, "modern-small"),
        ("2e6pieces", "cuda", 1.0, "modern-tiny"),
        ("1e12pieces", "cpu", 1.0, "modern-base"),
    ],
)
def test_without_a_recipe_the_encoder_suits_budget_and_device(
    budget: str, device: str, speed: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_at(monkeypatch, speed)
    assert best_encoder(parse_budget(budget), device) == expected
    chosen = chosen_recipe(None, budget=parse_budget(budget), device=device, start=None, in_pairs=False)
    assert chosen.name == expected


def test_a_larger_budget_never_takes_a_smaller_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    runs_at(monkeypatch, 1e13)
    names = [best_encoder(parse_budget(f"{10**power}s"), "cuda") for power in range(8)]
    places = [recipe_choice.ENCODERS.index(name) for name in names]
    assert places == sorted(places)
    assert set(names) == set(recipe_choice.ENCODERS)


def test_texts_in_pairs_are_translated_and_a_named_recipe_comes_first() -> None:
    budget = parse_budget("1000steps")
    assert chosen_recipe(None, budget=budget, device="cpu", start=None, in_pairs=True).name == "transformer-tiny"
    assert chosen_recipe("t5-base", budget=budget, device="cpu", start=None, in_pairs=True).name == "t5-base"


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"no recipe 'electra-smal'.*electra-small"):
        chosen_recipe("electra-smal", budget=parse_budget("1h"), device="cpu", start=None, in_pairs=False)


# --- AWD-LSTM ---------------------------------------------------------------------------------------------------------


def test_awd_lstm_has_the_published_dropout_where_a_text_is_read_often() -> None:
    recipe = RECIPES["awd-lstm"]
    assert recipe.scaling is not None
    config = recipe.config(1000)

    def rates(epochs: float) -> dict[str, float]:
        each = fitted(f"{epochs * 1e6:.0f}pieces", text=1_000_000, scaling=recipe.scaling)
        return fitted_dropout(recipe.scaling, config, each.dropout)  # type: ignore[arg-type]

    published = {name: recipe.shape[name] for name in rates(64)}
    assert rates(64) == pytest.approx(published)
    assert rates(500) == pytest.approx(published)
    assert all(rate == 0 for rate in rates(1).values())
    assert rates(8) == pytest.approx({name: rate / 2 for name, rate in published.items()})
    each = fitted("1e8pieces", scaling=recipe.scaling)
    assert (each.length, each.batch_size) == (70, 64)
    assert fitted("1e5pieces", device="cpu", scaling=recipe.scaling).batch_size == 16
    assert fitted_training(recipe.scaling, each).varied

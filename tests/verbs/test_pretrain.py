"""Pretraining by one call: every recipe, stopped and gone on with, refused where it must be."""

from __future__ import annotations

import json
import math
import resource
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from huggingface_hub import ModelCard

import polyseme
from polyseme import model_folder
from polyseme.cli import main
from polyseme.errors import InputError, OptionError, OutputError, PolysemeError, PolysemeWarning
from polyseme.recipes.recipe import Recipe
from polyseme.recipes.recipe_table import RECIPES
from polyseme.training import pretraining, time_budget
from polyseme.training.effects import read_log
from polyseme.training.loader import StepRows
from polyseme.training.pretraining import Pretraining
from polyseme.training.time_budget import Timing
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Plan
from training.kills import interrupted_at

SHAPE = {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32}
SMALL: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": "6steps",
    "batch_size": 8,
    "length": 16,
    "shape": SHAPE,
    "device": "cpu",
    "log_every": 1,
}


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is done."""
    place = tmp_path_factory.mktemp("runs") / "run"
    polyseme.pretrain(corpus, output=place, **SMALL)
    return place


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_log(run)]


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_a_run_holds_what_it_should(finished: Path) -> None:
    run = json.loads((finished / "run.json").read_text())
    assert run["finished"]
    assert run["n_steps"] == 6
    assert run["settings"]["training"]["phases"] == [{"share": 1.0, "length": 16, "batch_size": 8}]
    assert {"polyseme", "torch", "python"} <= run["versions"].keys()
    ledger = json.loads((finished / "ledger.json").read_text())
    assert (ledger["pieces"], ledger["steps"], ledger["measured"]) == (6 * 8 * 16, 6, False)
    assert ledger["flops"] > 0
    assert [line["step"] for line in read_log(finished)] == [1, 2, 3, 4, 5, 6]


def test_the_model_is_taken_by_run_and_by_folder_and_by_transformers(finished: Path) -> None:
    from transformers import AutoModelForMaskedLM

    by_run, by_folder = (polyseme.load(path, device="cpu") for path in (finished, finished / "model"))
    one, other = (model.embed(["the dawn broke"])[0].vectors for model in (by_run, by_folder))
    assert np.array_equal(one, other)
    assert len(by_run.fill("the [MASK] broke")[0].pieces) == 5
    theirs = AutoModelForMaskedLM.from_pretrained(finished / "model")
    ids = torch.from_numpy(by_run.pieces("the dawn broke").ids)[None]
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True).hidden_states[-1][0]
    assert np.allclose(by_run.pieces("the dawn broke").states[-1], expected.numpy(), atol=1e-5)


def test_electra_keeps_its_generator_beside_the_model(corpus: Path, tmp_path: Path) -> None:
    changes = {"recipe": "electra-small", "shape": {**SHAPE, "embedding_width": 8}}
    polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, **changes})
    assert polyseme.load(tmp_path / "run", device="cpu").show().outputs == ("replaced",)
    assert polyseme.load(tmp_path / "run" / "generator", device="cpu").fill("the [MASK] broke")
    assert "This is its generator." in (tmp_path / "run" / "generator" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_family_without_segments_is_trained_on_a_corpus_with_them(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(corpus, output=run, **{**SMALL, "recipe": "gpt-tiny", "budget": "1steps"})
        polyseme.pretrain(corpus, output=tmp_path / "more", model=run, **{**SMALL, "recipe": None, "shape": None})
    frame = polyseme.load(tmp_path / "more", device="cpu").bundle.tokenizer.framing  # type: ignore[union-attr]
    assert (frame.single, frame.n_segments) == ("start a end", 1)


@pytest.mark.slow
def test_alternating_masks_are_trained_and_saved_in_our_own_layout(text: Path, tmp_path: Path) -> None:
    """GPT-3's; GPT-2's layout cannot hold them. Two masks repeat over four layers."""
    shape = {**SHAPE, "n_layers": 4, "masks": "causal,band:4"}
    run = tmp_path / "run"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=run, **{**SMALL, "recipe": "gpt-tiny", "vocab_size": 300, "shape": shape})
        polyseme.pretrain(text, output=tmp_path / "more", model=run, **{**SMALL, "recipe": None, "shape": None})
    assert losses(tmp_path / "more")[0] == pytest.approx(losses(run)[-1], rel=0.1)
    for place in (run, tmp_path / "more"):
        config: Any = polyseme.load(place, device="cpu").bundle.config
        assert config.layer_masks == ("causal", "band:4", "causal", "band:4")
        assert json.loads((place / "model" / "config.json").read_text())["model_type"] == "causal-transformer"


@pytest.mark.parametrize(
    ("recipe", "shape", "said"),
    [
        ("bert-tiny", {"masks": "local:3"}, "could not be saved: .*'bert' cannot say all of them .*masks"),
        ("gpt-tiny", {"masks": "all"}, "'causal' needs an encoder that sees only the pieces before"),
        ("gpt-tiny", {"embedding_width": 8}, "'gpt2' cannot say all of them .*embedding_width 8 would become None"),
        ("lstm-tiny", {"top_width": 12}, "The output cannot share the table of pieces: it is"),
        ("modern-tiny", {"positions": "learned"}, "'modernbert' cannot say all of them .*positions 'learned'"),
        ("t5-tiny", {"decoder_layers": None}, "needs a decoder|cannot say|could not be saved"),
        ("bart-tiny", {"embedding_scale": 2.0}, "embedding_scale 2.0 would become"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_corpus_is_built(
    text: Path, tmp_path: Path, recipe: str, shape: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolysemeError, match=said):
        polyseme.pretrain(text, output=tmp_path / "run", recipe=recipe, budget="2steps", shape=shape, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_writes_the_card_of_its_model(finished: Path, text: Path) -> None:
    ledger = json.loads((finished / "ledger.json").read_text())
    card = ModelCard.load(finished / "model" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("polyseme", "fill-mask")
    assert [line for line in card.text.splitlines() if line.startswith("#")] == [
        "# run",
        *(f"## {heading}" for heading in ("Data", "Training", "Cost", "Scores")),
    ]
    assert f"{ledger['pieces']:,} pieces in" in card.text
    assert f"held-out documents: {ledger['held_out']:.3f} nats per piece" in card.text
    assert "from scratch" in card.text
    assert "with the recipe bert-tiny" in card.text
    assert f"`{text.name}`" in card.text
    assert "budget 6steps, 6 steps of 8 rows of 16 pieces" in card.text
    assert str(finished.parent) not in card.text
    assert str(text.parent) not in card.text


def test_text_and_its_corpus_train_alike(text: Path, finished: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=tmp_path / "run", tokenizer=str(finished / "model"), **SMALL)
    assert (tmp_path / "run" / "corpus" / "corpus.json").is_file()
    assert losses(tmp_path / "run")[0] == pytest.approx(losses(finished)[0], rel=0.05)


@pytest.mark.parametrize("what", ["corpus", "text"])
def test_a_model_is_trained_further(what: str, finished: Path, corpus: Path, text: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "shape": None}
    polyseme.pretrain({"corpus": corpus, "text": text}[what], output=tmp_path / "more", model=finished, **settings)
    # warmup takes the first step of six: the model begins where it ended, not at the level of chance
    assert losses(tmp_path / "more")[0] == pytest.approx(losses(finished)[-1], rel=0.1)


def shrunk(recipe: Recipe) -> dict[str, Any]:
    """The recipe's encoder as small as may be, in the words of its kind."""
    if "n_heads" in recipe.shape:
        small: dict[str, Any] = {
            "embedding_width": 8,
            "head_width": 8,
            "decoder_layers": 1,
            "cutoffs": (40, 80),
            "masks": "all",
        }
        own = {name: value for name, value in small.items() if recipe.shape.get(name)}
        return SHAPE | own | {"inner_width": 4 * SHAPE["width"]}  # GPT's config.json has no other
    if recipe.family == "static":
        return {"width": 16, **({"n_buckets": 100} if "n_buckets" in recipe.shape else {})}
    small = {"width": 16, "token_width": 16}
    if "order" not in recipe.shape:  # NNLM has one layer
        small["n_layers"] = 1
    if recipe.shape.get("top_width"):
        small["top_width"] = 16
    if recipe.shape.get("inner_width"):
        small["inner_width"] = 32
    if "filter_counts" in recipe.shape:
        small["filter_counts"] = (2,) * len(recipe.shape["filter_counts"])
    return small


def alike(recipe: Recipe) -> tuple[Any, ...]:
    """What decides how a recipe runs, but for the sizes of its layers."""
    choices = (recipe.family, recipe.objective, recipe.tokenizer, recipe.frame, recipe.tied)
    return (*choices, recipe.scaling is None, len(recipe.training.phases), recipe.training.optimizer.kind)


BEGINNING = [name for name, recipe in RECIPES.items() if not recipe.only_further]
"""Those that begin with a new model."""
FIRST_OF_A_KIND = {alike(RECIPES[name]): name for name in reversed(BEGINNING)}.values()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST_OF_A_KIND else pytest.mark.slow) for name in BEGINNING]
)
def test_every_recipe_runs_dry(name: str, corpus: Path, text: Path, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    lines = tmp_path / "lines.txt"
    lines.write_text(text.read_text().replace("\n\n", "\n"))
    pairs: dict[str, Any] = {"source": lines, "target": lines}
    texts = pairs if recipe.objective in ("translation", "tlm") else {"sources": text}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        told = polyseme.pretrain(
            **texts,
            recipe=name,
            budget="100steps",
            vocab_size=320,
            batch_size=8,
            length=4 if recipe.objective == "glove" else None,  # the few words of the text make few pairs
            shape=shrunk(recipe),
            device="cpu",
            dry_run=True,
        )
    assert len(told.seconds_per_step) == (1 if recipe.scaling else len(recipe.training.phases))
    assert told.n_steps == 100
    assert told.seconds > 0
    assert told.memory > 0
    assert told.checkpoint_bytes > 4 * told.parameters
    assert any("100 steps" in line for line in told.lines())


def test_recipes_have_the_published_shapes() -> None:
    cards = {card.name: card for card in polyseme.list_recipes()}
    assert (cards["bert-large"].layers, cards["bert-large"].width) == (24, 1024)
    # BERT's own figure: 1M steps of 256 rows, nine tenths of them of 128 pieces
    assert cards["bert-base"].published_pieces == pytest.approx(1e6 * 256 * (0.9 * 128 + 0.1 * 512))
    # The paper's table 1 gives ELECTRA-Small 1.4e18 FLOPs, counted a little otherwise
    assert cards["electra-small"].published_flops == pytest.approx(1.4e18, rel=0.3)
    assert cards["bert-tiny"].published_flops is None


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_budgets_of_pieces_and_of_operations_become_steps(corpus: Path, finished: Path, tmp_path: Path) -> None:
    bill = json.loads((finished / "ledger.json").read_text())
    for budget in (f"{4 * 8 * 16}pieces", f"{bill['flops'] / 6 * 4:.6e}flops"):
        polyseme.pretrain(corpus, output=tmp_path / budget, **{**SMALL, "budget": budget})
        assert json.loads((tmp_path / budget / "run.json").read_text())["n_steps"] == 4


class Clock:
    """A clock that goes on by a quarter of a second whenever it is read: no machine is too slow or too fast."""

    def __init__(self) -> None:
        self.now = time.perf_counter()

    def perf_counter(self) -> float:
        self.now += 0.25
        return self.now


def test_a_budget_of_time_is_measured_once_and_leaves_the_weights_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "time", Clock())
    monkeypatch.setattr(time_budget, "TOLERANCE", math.inf)  # the steps take less than this clock says
    settings = {**SMALL, "as_published": True, "objective": {"next": None}}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):  # of how little is learned
        polyseme.pretrain(corpus, output=tmp_path / "timed", **{**settings, "budget": "15s"})
        n_steps = json.loads((tmp_path / "timed" / "run.json").read_text())["n_steps"]
        polyseme.pretrain(corpus, output=tmp_path / "counted", **{**settings, "budget": f"{n_steps}steps"})
    assert losses(tmp_path / "timed") == losses(tmp_path / "counted")


# --- stopped and gone on with -----------------------------------------------------------------------------------------


def test_the_same_call_goes_on_and_a_finished_run_is_refused(finished: Path, corpus: Path) -> None:
    with pytest.raises(OutputError, match="finished"):
        polyseme.pretrain(corpus, output=finished, **SMALL)
    with pytest.raises(OptionError, match="is finished"):
        polyseme.pretrain(resume=finished)


def test_a_model_that_is_gone_is_written_again(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(run / "model")
    polyseme.pretrain(resume=run)
    name = "model/model.safetensors"
    assert (run / name).read_bytes() == (finished / name).read_bytes()


def test_a_spoilt_checkpoint_is_left_out_and_said(corpus: Path, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    polyseme.pretrain(corpus, output=run, **{**SMALL, "checkpoint_every": 2})
    last = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "finished": False}))
    with pytest.warns(PolysemeWarning, match="left out"):
        polyseme.pretrain(resume=run, device="cpu")
    assert losses(run) == losses(finished)


def test_a_loss_that_is_no_number_stops_with_a_checkpoint_and_a_reason(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PolysemeError, match="lower learning rate"):
        polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, "learning_rate": 1e30, "budget": "50steps"})
    assert "lower learning rate" in json.loads((tmp_path / "run" / "run.json").read_text())["stopped"]
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "model").exists()


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": "soon"}, "20min"),
        ({"recipe": "bert-tinny"}, "bert-tiny"),
        ({"batch_size": 100_000}, "smaller than a batch"),
        ({"shape": {**SHAPE, "n_pieces": 64}}, "has room for 64"),
        ({"shape": {**SHAPE, "wideness": 3}}, "wideness"),
        ({"recipe": "gpt-2018", "shape": {**SHAPE, "inner_width": 32}}, "inner_width 32 would become 64"),
        ({"length": 999, "shape": {**SHAPE, "max_positions": 128}}, "longer than the 128 positions"),
        ({"objective": {"ratee": 0.2}}, "ratee"),
        ({"optimizer": "adan"}, "adan"),
        ({"schedule": "cosin"}, "cosine"),
        ({"dtype": "fp17"}, "fp17"),
        ({"device": "cuda:9"}, "cuda:9"),
        ({"batch_size": 0}, "at least 1 row"),
        ({"log_every": 0}, "'log_every' must be at least 1"),
        ({"keep_checkpoints": 0}, "'keep_checkpoints' must be at least 1"),
        ({"shard_size": -5}, "'shard_size' must be at least 1"),
        ({"workers": -1}, "workers must be 0 or more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_is_refused_and_nothing_is_left(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(PolysemeError, match=message):
        polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, **changes})
    assert list(tmp_path.iterdir()) == []


def test_plain_text_and_pairs_are_told_apart_before_either_is_read(tmp_path: Path) -> None:
    """The files need not even be there: the recipe alone says what it learns from."""
    with pytest.raises(OptionError, match=r"in pairs, and nowhere\.txt is plain text.*--source FILE --target FILE"):
        polyseme.pretrain("nowhere.txt", output=tmp_path / "run", recipe="transformer-tiny", budget="2steps")
    with pytest.raises(
        OptionError, match=r"plain text, and source nowhere\.en, target nowhere\.de is of texts in pairs"
    ):
        polyseme.pretrain(source="nowhere.en", target="nowhere.de", output=tmp_path / "run", recipe="bert-tiny")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", ["100steps", "2min"])
def test_a_dry_run_counts_as_many_evaluations_as_the_run_has(
    budget: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With steps of one second and evaluations of ten, whatever they take here: two minutes have one, at the end."""
    monkeypatch.setattr(Pretraining, "trial", lambda self, **_: Timing((1.0,), 10.0))
    told = {
        every: polyseme.pretrain(corpus, dry_run=True, evaluate_every=every, **{**SMALL, "budget": budget})
        for every in (None, 5, 50, 1000)
    }
    for every, each in told.items():
        every = every or -(-each.n_steps // (10 if budget == "100steps" else 1))
        evaluated = [n for n in range(1, each.n_steps + 1) if n % every == 0]
        n_evaluations = len(evaluated) + (each.n_steps not in evaluated)
        assert each.seconds == each.n_steps + 10 * n_evaluations
        if budget == "100steps":
            assert each.n_steps == 100
        else:
            assert 120 - 21 <= each.seconds <= 120


def test_a_dry_run_says_what_it_times(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="polyseme"):
        polyseme.pretrain(corpus, dry_run=True, **{**SMALL, "device": "cpu"})
    said = [message for message in caplog.messages if message.startswith("timing steps of ")]
    assert len(said) == 1
    assert said[0].endswith(" pieces on cpu, and an evaluation")


def test_sources_and_output_must_be_named(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nothing to train on"):
        polyseme.pretrain(output=tmp_path / "run")
    with pytest.raises(OptionError, match="no place"):
        polyseme.pretrain(corpus)
    with pytest.raises(InputError, match="nowhere"):
        polyseme.pretrain(tmp_path / "nowhere", output=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_takes_no_other_settings(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="learning_rate"):
        polyseme.pretrain(resume=finished, learning_rate=1.0)
    with pytest.raises(InputError, match="is no run"):
        polyseme.pretrain(resume=tmp_path)


def test_other_settings_are_named(finished: Path, corpus: Path) -> None:
    with pytest.raises(OutputError, match=r"training\.seed is 0 there and 5 here"):
        polyseme.pretrain(corpus, output=finished, **SMALL, seed=5)


def test_other_text_in_a_run_is_refused_and_replaced_when_forced(text: Path, corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {**SMALL, "budget": "2steps"}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=run, vocab_size=300, **settings)
        with pytest.raises(OutputError, match=r"other text.*--resume"):
            polyseme.pretrain(text, output=run, vocab_size=300, held_out=0.3, **settings)
        polyseme.pretrain(text, output=run, vocab_size=300, held_out=0.3, force=True, **settings)
        polyseme.pretrain(corpus, output=run, force=True, **settings)
        assert not (run / "corpus").exists()
        polyseme.pretrain(text, output=run, vocab_size=300, force=True, **settings)
    with pytest.raises(OutputError, match="would go with"):
        polyseme.pretrain(run / "corpus", output=run, force=True, **settings)
    assert (run / "corpus" / "corpus.json").is_file()


def test_a_corpus_that_was_exchanged_is_noticed(corpus: Path, text: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(text, output=tmp_path / "run", vocab_size=300, **SMALL)
        polyseme.build_corpus(text, output=tmp_path / "run" / "corpus", vocab_size=300, held_out=0.3, force=True)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "finished": False}))
    with pytest.raises(InputError, match="not the one"):
        polyseme.pretrain(resume=tmp_path / "run", device="cpu")


@pytest.mark.filterwarnings("ignore:.* is enough to read this text:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("budget", ["6steps", "1h"])
@pytest.mark.parametrize(
    ("most", "message"), [(3, "--micro-batch-size 2"), (0, "Not even one fits")], ids=["two", "none"]
)
def test_too_little_memory_names_what_fits(
    budget: str, most: int, message: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.step

    def short_of_memory(self: Trainer, rows: StepRows, plan: Plan) -> Any:
        self.at = rows.step
        if any(len(batch["pieces"]) > most for batch in rows.passes):
            raise torch.OutOfMemoryError("as a GPU would")
        return step(self, rows, plan)

    monkeypatch.setattr(Trainer, "step", short_of_memory)
    with pytest.raises(OptionError, match=message):
        polyseme.pretrain(corpus, output=tmp_path / "run", **{**SMALL, "budget": budget})


def test_a_full_disk_ends_with_a_paragraph_and_whole_checkpoints(corpus: Path, tmp_path: Path) -> None:
    shape = [f"--set={name}={value}" for name, value in {**SHAPE, "width": 64}.items()]
    options = ["--budget=6steps", "--batch-size=8", "--length=16", "--device=cpu", *shape]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, hard))
    try:
        done = CliRunner().invoke(main, ["pretrain", str(corpus), "-o", str(tmp_path / "run"), *options])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert "grown past the largest file" in done.output
    assert not [path for path in (tmp_path / "run").rglob("*") if ".part" in path.name]


def test_a_vanished_shard_is_named(corpus: Path, text: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        place = polyseme.build_corpus(text, output=tmp_path / "corpus", vocab_size=300).folder
    gone = next(place.rglob("*train.pieces"))
    gone.unlink()
    with pytest.raises(InputError, match=gone.name.replace(".", r"\.")):
        polyseme.pretrain(place, output=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["gpt-tiny", "bert-tiny"])
def test_two_minutes_beat_the_unigram_entropy(recipe: str, data: Path, tmp_path: Path) -> None:
    from polyseme.corpus.corpus import Corpus

    source = data / "corpus" / "books-00.txt.xz"
    polyseme.pretrain(
        source,
        output=tmp_path / "run",
        recipe=recipe,
        budget="2min",
        vocab_size=2048,
        batch_size=16,
        length=64,
        device="cpu",
    )
    entropy = Corpus.open(tmp_path / "run" / "corpus").unigram_entropy("held")
    held = [line["held_out"]["loss"] for line in read_log(tmp_path / "run") if "held_out" in line][-1]
    assert math.isfinite(held)
    assert held < entropy - 0.3


# --- next-sentence prediction -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of several sentences."""
    path = tmp_path_factory.mktemp("sentences") / "text.txt"
    draw = np.random.default_rng(3)
    words = ["dawn", "broke", "vase", "news", "came", "every", "house", "people", "bread", "beer"]
    documents = [" ".join(f"The {' '.join(draw.choice(words, 6))}." for _ in range(6)) for _ in range(120)]
    path.write_text("\n\n".join(documents))
    return path


@pytest.mark.parametrize(
    ("recipe", "choices", "reference", "logits"),
    [
        ("bert-tiny", ("--objective", "next=nsp"), "BertForPreTraining", "seq_relationship_logits"),
        ("albert-small", ("--objective", "next=sop"), "AlbertForPreTraining", "sop_logits"),
        pytest.param(
            *("bert-tiny", ("--objective", "next=sop", "--layout", "sentence-pair")),
            *("BertForPreTraining", "seq_relationship_logits"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_pairs_are_learned_from_the_command_line_and_judged_by_next(
    recipe: str, choices: tuple[str, ...], reference: str, logits: str, sentences: Path, tmp_path: Path
) -> None:
    """The model that is saved has its heads in transformers, too."""
    arguments = ["--recipe", recipe, *choices, "--budget", "4steps", "--batch-size", "8", "--tokenizer", "wordpiece"]
    arguments += ["--length", "24", "--vocab-size", "80", "--device", "cpu", "--log-every", "1", "--held-out", "0.1"]
    shape = {**SHAPE, "embedding_width": 8} if recipe == "albert-small" else SHAPE
    arguments += [part for name, value in shape.items() for part in ("--set", f"{name}={value}")]
    run = str(tmp_path / "run")
    done = CliRunner().invoke(main, ["pretrain", str(sentences), *arguments, "-o", run])
    assert done.exit_code == 0, done.output
    last = read_log(tmp_path / "run")[-1]
    assert last["loss"] == pytest.approx(last["masked"] + last["next"])
    assert last["held_out"].keys() == {"loss", "masked", "next"}
    told = CliRunner().invoke(main, ["next", "The dawn broke.", "The vase broke.", "-m", run, "--device", "cpu"])
    assert told.exit_code == 0, told.output
    assert ("are in this order" in told.output) == ("next=sop" in choices)
    model = polyseme.load(run, device="cpu")
    probability = model.next("The dawn broke.", "The vase broke.")
    assert f"{probability:.4f}" in told.output
    theirs = getattr(transformers, reference).from_pretrained(tmp_path / "run" / "model").eval()
    tokenizer = model.bundle.text_tokenizer
    texts = [polyseme.Document(text=text, words=()) for text in ("The dawn broke.", "The vase broke.")]
    framed = tokenizer.frame(*(tokenizer.encode(text).ids for text in texts))
    with torch.no_grad():
        judged = theirs(torch.from_numpy(framed.ids)[None], token_type_ids=torch.from_numpy(framed.segments)[None])
    assert float(judged[logits].softmax(-1)[0, 0]) == pytest.approx(probability, abs=1e-5)


@pytest.mark.parametrize("layout", ["doc-sentences", pytest.param("full-sentences", marks=pytest.mark.slow)])
def test_a_layout_is_chosen_from_the_command_line(layout: str, sentences: Path, tmp_path: Path) -> None:
    arguments = ["--recipe", "roberta-tiny", "--layout", layout, "--budget", "2steps", "--batch-size", "8"]
    arguments += ["--length", "24", "--vocab-size", "300", "--device", "cpu", "--held-out", "0.1"]
    arguments += [part for name, value in SHAPE.items() for part in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(main, ["pretrain", str(sentences), *arguments, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["objective"]["layout"] == layout
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert 0.7 * 2 * 8 * 24 < ledger["pieces"] < 2 * 8 * 24  # padding is not counted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "gpt-tiny", "layout": "doc-sentences"}, "pieces are masked, and the recipe gpt-tiny .*'causal'"),
        ({"recipe": "gpt-tiny", "objective": {"next": "nsp"}}, "'causal' has no setting 'next'"),
        ({"recipe": "roberta-tiny", "objective": {"next": "sop"}}, "needs the output 'next'.*'roberta' has"),
        ({"layout": "doc-sentence"}, "no layout 'doc-sentence'. Did you mean 'doc-sentences'"),
        ({"layout": "doc-sentences", "objective": {"next": "nsp"}}, "are of one segment"),
        ({"layout": "doc-sentences", "objective": {"layout": "full-sentences"}}, "two were given"),
        ({"layout": "doc-sentences", "reset_positions": True}, "supports neither mask_documents"),
        ({"layout": "sentence-pair"}, "none has two sentences"),
    ],
)
def test_rows_that_cannot_be_are_refused_and_nothing_is_left(
    changes: dict[str, Any], message: str, text: Path, tmp_path: Path
) -> None:
    """Each document of `text` is one sentence."""
    with pytest.raises((OptionError, InputError), match=message) as error:
        polyseme.pretrain(text, output=tmp_path / "run", **{**SMALL, "vocab_size": 90, **changes})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_run_of_next_sentences_that_is_stopped_ends_as_if_it_had_not(sentences: Path, tmp_path: Path) -> None:
    changes = {**SMALL, "objective": {"next": "nsp"}, "vocab_size": 80, "checkpoint_every": 2}
    changes |= {"length": 24, "held_out": 0.1}
    polyseme.pretrain(sentences, output=tmp_path / "whole", **changes)
    with interrupted_at(3) as stop:
        polyseme.pretrain(sentences, output=tmp_path / "cut", **changes)
    assert stop.value.__notes__ == [
        f"The run is kept in {tmp_path / 'cut'}, with a checkpoint of step 2: the same command resumes it."
    ]
    polyseme.pretrain(resume=tmp_path / "cut", device="cpu", workers=3)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def test_text_of_single_sentences_is_refused_for_next_sentences_and_nothing_is_left(text: Path, tmp_path: Path) -> None:
    """Each document of `text` is one sentence."""
    with pytest.raises(InputError, match="none has two sentences") as error:
        polyseme.pretrain(text, output=tmp_path / "run", **{**SMALL, "objective": {"next": "nsp"}, "vocab_size": 90})
    assert "\n" not in str(error.value)
    with pytest.raises(OptionError, match="supports neither mask_documents"):
        polyseme.pretrain(
            text, output=tmp_path / "run", **{**SMALL, "objective": {"next": "nsp"}, "mask_documents": True}
        )


def test_a_model_that_is_trained_further_is_loaded_once(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    family_of = model_folder.family_of
    monkeypatch.setattr(model_folder, "family_of", lambda folder: opened.append(folder) or family_of(folder))
    changes = {name: value for name, value in SMALL.items() if name != "shape"}
    polyseme.pretrain(corpus, output=tmp_path / "further", model=finished, **changes)
    assert opened == [finished / "model"]

"""Heads that do nothing go first; curves and folders hold what the pruned model itself scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import polyseme
from polyseme.api import Model
from polyseme.bundle import Bundle
from polyseme.cli import main
from polyseme.errors import ModelError, OptionError
from polyseme.pruning.head_gates import apply_gates, fixed_gates
from polyseme.pruning.head_importance import gradient_importance, least_important, normalize_by_layer, number_of_heads
from polyseme.pruning.head_removal import AttentionPlace, HeadPlace, attentions_of, without_heads
from polyseme.pruning.learned_gates import drawn, gate_importance, open_probability
from polyseme.pruning.pruning_subject import TaskSubject, TextSubject, objective_of
from polyseme.pruning.text_rows import text_batches
from polyseme.tasks.splits import evenly_spaced
from polyseme.text.documents import make_document
from polyseme.transfer.evaluate_task import labeled_data
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import TEXT, tiny_model
from transfer.small_tasks import small_task

DEAD = [HeadPlace(AttentionPlace("encoder", 0), 2), HeadPlace(AttentionPlace("encoder", 2), 1)]


def kill(bundle: Bundle, places: list[HeadPlace]) -> None:
    """Let heads add nothing."""
    for at, head in places:
        attention = attentions_of(bundle)[at]
        with torch.no_grad():
            attention.output.weight.unflatten(1, (attention.n_heads, -1))[:, head] = 0.0


def save_as_csv(path: Path, kind: str, n: int) -> Path:
    items = small_task(kind, n_train=n, n_dev=2).splits["train"]
    path.write_text("review,stars\n" + "".join(f"{item.text},{item.gold}\n" for item in items))
    return path


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task model with two heads that do nothing."""
    bundle = tiny_model("bert").bundle
    settings = FinetuneSettings(epochs=1, batch_size=16, learning_rate=1e-3)
    done = finetune_task(small_task("classify", n_train=80), bundle, settings)
    assert done.model.bundle is not None
    kill(done.model.bundle, DEAD)
    folder = tmp_path_factory.mktemp("pruned") / "stars"
    columns = {"text": "review", "label": "stars"}
    save_task_model(done.model, folder, card={"metrics": ["accuracy"], "columns": columns})
    return folder


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_as_csv(tmp_path_factory.mktemp("data") / "dev.csv", "classify", 24)


@pytest.mark.parametrize("kind", ["tag", "choose"])
def test_importance_is_the_mean_of_every_example_s_gradient(kind: str) -> None:
    settings = FinetuneSettings(epochs=1, batch_size=16)
    task = small_task(kind, n_train=8, n_dev=5)
    model = finetune_task(task, tiny_model("bert").bundle, settings).model
    subject = TaskSubject(model, {"dev": task.splits["dev"]}, task.metrics)
    assert model.bundle is not None
    model.double()
    importance = gradient_importance(subject, model.bundle)
    sums = dict.fromkeys(importance, 0.0)
    attentions = attentions_of(model.bundle)
    for item in task.splits["dev"]:
        alone = TaskSubject(model, {"dev": [item]}, task.metrics)
        gates = {
            at: torch.ones(each.n_heads, dtype=torch.float64, requires_grad=True) for at, each in attentions.items()
        }
        with apply_gates(attentions, fixed_gates(gates)):
            [batch] = alone.batches("dev")
            alone.loss(model.bundle, batch).total.backward()
        for place in sums:
            sums[place] += abs(float(gates[place.at].grad[place.head])) / len(task.splits["dev"])
    assert importance == pytest.approx(sums, rel=1e-9, abs=1e-15)
    layers = {
        at: sum(value**2 for place, value in normalize_by_layer(importance).items() if place.at == at)
        for at in attentions
    }
    assert layers == pytest.approx(dict.fromkeys(attentions, 1.0))


def test_heads_go_by_importance_and_layers_keep_some() -> None:
    attentions = attentions_of(tiny_model("bert").bundle)
    importance = {HeadPlace(at, head): 4.0 * at.layer + head for at in attentions for head in range(4)}
    first, second = (AttentionPlace("encoder", layer) for layer in (0, 1))
    assert least_important(importance, 4, attentions, at_least=1) == [
        *(HeadPlace(first, head) for head in (0, 1, 2)),
        HeadPlace(second, 0),
    ]
    assert least_important(importance, 4, attentions, at_least=0) == [HeadPlace(first, head) for head in range(4)]
    assert number_of_heads("50%", attentions, at_least=1) == number_of_heads(0.5, attentions, at_least=1) == 6
    assert number_of_heads(3, attentions, at_least=1) == number_of_heads("3", attentions, at_least=1) == 3
    for wrong in ("0%", "100%", "140%", "-5%", "abc", "", 0, 12, 1.0, "nan"):
        with pytest.raises(OptionError, match="heads to remove"):
            number_of_heads(wrong, attentions, at_least=1)
    with pytest.raises(OptionError, match="at most 9 can be removed if every layer keeps 1"):
        number_of_heads("90%", attentions, at_least=1)
    assert number_of_heads("90%", attentions, at_least=0) == 11


def test_gates_are_hard_concrete() -> None:
    """Exactly 0 as often as the formula says, and exactly 1, too."""
    log_alpha = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)
    gates = drawn(log_alpha, 20_000, torch.Generator().manual_seed(1))
    assert float(gates.min()) == 0.0
    assert float(gates.max()) == 1.0
    torch.testing.assert_close((gates > 0).double().mean(0), open_probability(log_alpha), atol=0.015, rtol=0)


def test_gates_close_where_heads_do_nothing(stars: Path) -> None:
    model = load_task_model(stars)
    items = small_task("classify", n_train=24).splits["train"]
    subject = TaskSubject(model, {"train": items, "dev": items}, ("accuracy",))
    assert model.bundle is not None
    opened = gate_importance(subject, model.bundle, 2, steps=30)
    dead = [opened[place] for place in DEAD]
    assert max(dead) < sorted(opened.values())[6]
    assert all(each.grad is None for each in model.parameters())


def test_a_task_model_is_pruned(stars: Path, dev: Path, tmp_path: Path) -> None:
    output = tmp_path / "pruned"
    report = polyseme.prune(model=stars, heads=2, dev=dev, output=output, device="cpu", points=3)
    assert sorted(report.removed) == sorted(DEAD)
    assert [point.removed for point in report.points] == [0, 2, 3, 6, 9]
    assert report.pruned.figures == report.whole.figures  # these heads did nothing

    before, after = (polyseme.evaluate(str(dev), model=folder, device="cpu") for folder in (stars, output))
    assert after.lines[0].figures == before.lines[0].figures == report.pruned.figures
    texts = ["the crane is flat", "a vase broke"]
    both = [polyseme.predict(texts, model=folder, device="cpu").predictions for folder in (stars, output)]
    assert [each.label for each in both[0]] == [each.label for each in both[1]]
    model = load_task_model(output)
    assert model.bundle is not None
    assert model.bundle.n_parameters() == report.pruned.n_parameters < report.whole.n_parameters
    written = json.loads((output / "pruning.json").read_text())
    assert [each["removed"] for each in written["curve"]] == [0, 2, 3, 6, 9]
    assert {(each["layer"], each["head"]) for each in written["removed"]} == {(1, 2), (3, 1)}, "as the page counts them"
    page = (output / "pruning.html").read_text()
    assert "2 of 12 heads removed" in page
    assert page.count('class="none"') == 2
    assert "without 2 of its 12 attention heads" in (output / "README.md").read_text()
    shown = polyseme.show(model=output)
    assert (shown.heads, shown.task) == ("10 of 12 attention heads", "classify: bad, good")
    assert {"predict", "evaluate", "tradeoffs", "attribute", "embed"} <= {*shown.can}
    assert polyseme.show(model=stars).heads is None

    further = polyseme.prune(model=output, heads="50%", dev=dev, device="cpu", points=2, reestimate=True)
    assert further.n_heads == 10
    assert len(further.removed) == 5


def test_each_head_is_measured_by_itself(stars: Path, dev: Path) -> None:
    report = polyseme.prune(model=stars, heads=2, dev=dev, device="cpu", points=0, each_head=True, max_items=3)
    assert len(report.single) == 12
    assert all(each.without == report.whole.figures for each in report.single if each.place in DEAD)
    model = load_task_model(stars)
    assert model.bundle is not None
    alone = without_heads(model.bundle, [HeadPlace(DEAD[0].at, head) for head in (0, 1, 2)])
    items = labeled_data(str(dev), None, model, {"text": "review", "label": "stars"}, "").splits["test"]
    subject = TaskSubject(model, {"dev": evenly_spaced(items, 3)}, ("accuracy",))
    [figure] = [each for each in report.single if each.place == HeadPlace(DEAD[0].at, 3)]
    assert figure.alone == subject.figures(alone)


def test_a_frozen_model_is_pruned_too(tmp_path: Path, dev: Path) -> None:
    task = small_task("classify", n_train=40, n_dev=10)
    done = finetune_task(task, tiny_model("bert").bundle, FinetuneSettings(epochs=1, frozen=True))
    save_task_model(done.model, tmp_path / "frozen", card={"columns": {"text": "review", "label": "stars"}})
    report = polyseme.prune(
        model=tmp_path / "frozen", heads="50%", dev=dev, output=tmp_path / "half", device="cpu", points=0
    )
    scored = polyseme.evaluate(str(dev), model=tmp_path / "half", device="cpu")
    assert scored.lines[0].figures["accuracy"] == report.pruned.figures["accuracy"]
    assert load_task_model(tmp_path / "half").config.frozen


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlnet", "t5"])
def test_pretrained_models_are_judged_by_texts(family: str) -> None:
    bundle = tiny_model(family).bundle
    objective = objective_of(bundle)
    rows = text_batches([make_document(TEXT)] * 2, bundle, objective)
    subject = TextSubject(bundle, {"dev": rows}, objective)
    kill(bundle, [DEAD[0]])
    importance = normalize_by_layer(gradient_importance(subject, bundle))
    assert {place.at for place in importance} == set(attentions_of(bundle))
    assert importance[DEAD[0]] == 0.0 == min(importance.values())
    assert sorted(importance.values())[3] > 0
    assert subject.figures(without_heads(bundle, [DEAD[0]]))["loss"] == pytest.approx(subject.figures(bundle)["loss"])


def test_a_pretrained_model_is_pruned(tmp_path: Path) -> None:
    bundle = tiny_model("bert").bundle
    kill(bundle, DEAD)
    Model(bundle).save(tmp_path / "model")
    texts = [line for line in TEXT.splitlines() if line] * 2
    report = polyseme.prune(
        model=tmp_path / "model", heads=2, dev=texts, output=tmp_path / "pruned", device="cpu", points=0
    )
    assert sorted(report.removed) == sorted(DEAD)
    assert report.pruned.figures == pytest.approx(report.whole.figures, rel=1e-5)
    assert polyseme.load(tmp_path / "pruned").bundle.config.heads_left is not None
    assert "transformers" not in (tmp_path / "pruned" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--heads", "0%"], "over 0% and under 100%"),
        (["--heads", "100%"], "over 0% and under 100%"),
        (["--heads", "abc"], "such as 50%"),
        (["--heads", "90%"], "if every layer keeps 1"),
        (["--dev", None], "Name it: --dev FILE"),
        (["--method", "gates"], "--train FILE"),
        (["--method", "magic"], "magic"),
        (["--at-least", "-1"], "'at_least' must be at least 0"),
        (["--dev", "other.csv"], "the label 'ugly' is none of the model's ('bad', 'good')"),
        (["--dev", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input(options: list[Any], message: str, stars: Path, dev: Path, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("review,stars\nthe crane,good\nthe vase,ugly\n")
    settings = {"-m": stars, "--dev": dev, "--heads": "50%", "-o": tmp_path / "output", "--device": "cpu"}
    name, value = options
    settings[name] = tmp_path / value if str(value).endswith(".csv") else value
    arguments = [part for pair in settings.items() if pair[1] is not None for part in pair]
    with pytest.raises(polyseme.PolysemeError) as error:
        CliRunner().invoke(main, ["prune", *map(str, arguments)], catch_exceptions=False, standalone_mode=False)
    assert message in str(error.value)
    assert not (tmp_path / "output").exists()


def test_models_without_heads_or_outputs_are_refused(dev: Path, tmp_path: Path) -> None:
    tiny_model("elmo").save(tmp_path / "elmo")
    with pytest.raises(ModelError, match="elmo has no attention heads"):
        polyseme.prune(model=tmp_path / "elmo", heads="50%", dev=["a text"])
    with pytest.raises(ModelError, match="does not predict the pieces of plain text"):
        objective_of(tiny_model("transformer").bundle)

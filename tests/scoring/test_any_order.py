"""Scores under an order of factorization: equal to the reference's two streams, and to writing from left to right."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from polyseme.api import Model
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.generating.language_model import language_model
from polyseme.parts.masks import MatrixMask
from polyseme.scoring.any_order import parse_order
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.types import Batch
from references import Pair, assert_close, make_pair
from tiny_models import tiny_config, tiny_model, tiny_tokenizer

TEXTS = ["The vase broke.", "", "Sandy broke the law.", "Dawn"]
LONG = "The burglar broke into the house and the newscaster broke into the movie broadcast. " * 2
unscored = pytest.mark.filterwarnings("ignore:The piece that comes first:polyseme.errors.PolysemeWarning")


@cache
def pair() -> Pair:
    found = make_pair(FAMILIES["xlnet"], "XLNetLMHeadModel", tiny_config("xlnet"))
    found.ours.tokenizer = tiny_tokenizer("xlnet")
    return found


def reference(ids: list[int], order: list[int]) -> list[float]:
    """Of every piece but the first of the order (places from 0 on), by the reference's query stream."""
    n = len(ids)
    rank = torch.empty(n, dtype=torch.long)
    rank[torch.tensor(order)] = torch.arange(n)
    hidden = (rank[None, :] >= rank[:, None]).double()[None]
    with torch.no_grad():
        logits = (
            pair()
            .reference(
                torch.tensor([ids]),
                token_type_ids=torch.zeros(1, n, dtype=torch.long),
                perm_mask=hidden,
                target_mapping=torch.eye(n, dtype=torch.float64)[None],
            )
            .logits[0]
        )
    found = logits.log_softmax(-1)[torch.arange(n), torch.tensor(ids)]
    return [float("nan") if place == order[0] else float(found[place]) for place in range(n)]


@unscored
@pytest.mark.parametrize("order", ["left-to-right", "right-to-left", "shuffled"])
def test_every_order_equals_the_reference(order: str) -> None:
    model = Model(pair().ours)
    tokenizer = pair().ours.tokenizer
    for text in TEXTS:
        n = len(model.score([text])[0].ids)
        places = {
            "left-to-right": list(range(n)),
            "right-to-left": list(range(n))[::-1],
            "shuffled": np.random.default_rng(n).permutation(n).tolist(),
        }[order]
        if order == "shuffled" and not n:
            continue
        [scored] = model.score([text], order=[place + 1 for place in places] if order == "shuffled" else order)
        if n:
            np.testing.assert_allclose(scored.piece_log_probs, reference(scored.ids.tolist(), places), rtol=1e-9)
            assert scored.totals.unscored == 1
    assert tokenizer is not None


@unscored
def test_texts_together_and_alone_and_in_windows() -> None:
    model = Model(pair().ours)
    for order in ("left-to-right", "right-to-left"):
        together = model.score([*TEXTS, LONG], order=order)
        for text, one in zip([*TEXTS, LONG], together, strict=True):
            [alone] = model.score([text], order=order, batch_pieces=7)
            np.testing.assert_allclose(one.piece_log_probs, alone.piece_log_probs, rtol=1e-9)
        long = together[-1]
        assert len(long.ids) > 2 * 40
        assert np.isnan(long.piece_log_probs).sum() == 1
        [finer] = model.score([LONG], order=order, stride=3)
        assert not np.allclose(finer.piece_log_probs, long.piece_log_probs, equal_nan=True)


@unscored
def test_a_window_from_the_right_is_the_mirror_of_one_from_the_left() -> None:
    """Every piece of a long text sees at least half a window of what comes earlier in the order."""
    scorer = scorer_of(pair().ours, order="right-to-left")
    windows = list(scorer.method._windows(100))  # type: ignore[attr-defined]
    guessed = sorted(start + int(place) for start, _, targets in windows for place in targets)
    assert guessed == list(range(99))
    for start, rank, targets in windows:
        assert len(rank) <= 40
        assert start + len(rank) == 100 or min(rank[targets]) >= 19


@unscored
def test_one_permuted_pass_is_the_sum_of_conditional_passes() -> None:
    """log p(New | is a city) + log p(York | New, is a city), as two passes in which only what is known stands."""
    model = Model(pair().ours)
    ids = model.score(["a crane caught fish"])[0].ids.tolist()
    n = len(ids)
    order = [*range(2, n), 0, 1]
    [scored] = model.score(["a crane caught fish"], order=[place + 1 for place in order])
    for place, known in ((0, order[: n - 2]), (1, order[: n - 1])):
        turns = torch.full((1, n), n)
        turns[0, known] = torch.arange(len(known))
        turns[0, place] = n - 1
        seen = torch.zeros(1, n, n, dtype=torch.bool)
        for one in range(n):
            for other in known:
                seen[0, one, other] = turns[0, other] < turns[0, one] or (one == other)
        with torch.no_grad():
            states = pair().ours.encoder(
                Batch(
                    torch.tensor([ids]),
                    segments=torch.zeros(1, n, dtype=torch.long),
                    mask=MatrixMask(seen),
                    targets=torch.tensor([[place]]),
                ),
                layers=[-1],
            )
            log_probs = pair().ours.outputs["permuted"].log_probs(states.queries[states.depth][0])  # type: ignore[operator]
        assert scored.piece_log_probs[place] == pytest.approx(float(log_probs[0, ids[place]]), abs=1e-10)


# --- writing on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [True, False], ids=["with memory", "reading again"])
@unscored
def test_writing_on_is_scoring_from_left_to_right(memory: bool) -> None:
    model = tiny_model("xlnet", clamp_distance=None, **({"memory_length": None, "reuse": None} if memory else {}))
    model.bundle.double()
    language = language_model(model.bundle)
    assert language.next_piece.remembers is memory  # type: ignore[attr-defined]
    [scored] = model.score(["The vase broke the law."])
    ids = torch.from_numpy(scored.ids)[None]
    found, held = language.next_piece.start(Batch(ids[:, :2]), 30)
    for place in range(2, ids.shape[1]):
        assert float(found.log_softmax(-1)[0, ids[0, place]]) == pytest.approx(scored.piece_log_probs[place], abs=1e-9)
        found, held = language.next_piece.step(Batch(ids[:, place, None]), held)


@pytest.mark.parametrize("memory", [True, False], ids=["with memory", "reading again"])
def test_prompts_of_different_lengths_together_and_alone(memory: bool) -> None:
    model = tiny_model("xlnet", **({"memory_length": None, "reuse": None} if memory else {}))
    model.bundle.double()
    prompts = ["Dawn broke", "A crane", "Sandy broke the world record"]
    for settings in ({}, {"beam": 3}, {"temperature": 1.0, "seed": 4}):
        together = model.generate(prompts, max_new=5, **settings)  # type: ignore[arg-type]
        alone = [model.generate(prompts[: n + 1], max_new=5, **settings)[n] for n in range(len(prompts))]  # type: ignore[arg-type]
        assert together == alone
    with pytest.raises(InputError, match="is empty"):
        model.generate([""])


def test_a_memory_of_another_batch_size_is_refused() -> None:
    model = tiny_model("xlnet", memory_length=None, reuse=None)
    language = language_model(model.bundle)
    _, memory = language.next_piece.start(Batch(torch.tensor([[3, 4], [5, 6]])), 9)
    with pytest.raises(ModelError, match="The memory is of 2 rows and the batch of 3"):
        model.bundle.encoder(Batch(torch.tensor([[3], [4], [5]])), memory=memory)
    assert_close(memory.lengths, torch.tensor([2, 2]), 0)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["1,3", "0,1", "1,1,2", "2 3 4", (), "left to right", "leftwards"])
def test_an_order_that_is_no_permutation(order: str) -> None:
    with pytest.raises(OptionError):
        parse_order(order)


def test_an_order_of_another_length_or_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The order is of 3 pieces, and a text has"):
        Model(pair().ours).score(["Sandy broke the law."], order="3,1,2")
    for family in ("gpt2", "bert"):
        with pytest.raises(OptionError, match="cannot score in the order"):
            tiny_model(family).score(["Dawn broke."], order="right-to-left")
    tiny_model("xlnet").save(tmp_path / "xlnet")
    (tmp_path / "text.txt").write_text("Dawn broke.", encoding="utf-8")
    line = ["score", str(tmp_path / "text.txt"), "-m", str(tmp_path / "xlnet"), "--json", "--order"]
    result = CliRunner().invoke(main, [*line, "1,3"])
    assert result.exit_code == 2
    assert "names each place from 1 to their number once" in result.stderr
    result = CliRunner().invoke(main, [*line, "right-to-left"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["how"] == "right to left, with a query stream"
    with pytest.warns(PolysemeWarning, match="first in the order"):
        tiny_model("xlnet").score(["Dawn broke."])

"""The biLM: what is read and guessed, the loss by its equations, no peeking, every softmax, what comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

import polyseme
from golden_elmo import GOLDEN
from objectives.rows import redrawn, tensors
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys
from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.cost import forward_flops
from polyseme.errors import ModelError, OptionError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.objectives.bilm import BiLM
from polyseme.objectives.objective_table import check_needs, objective_from
from polyseme.text.character_tokenizer import SENTENCE_BEGIN, SENTENCE_END, CharacterTokenizer
from polyseme.types import Example, Rows
from references import assert_close
from tiny_models import tiny_config, tiny_tokenizer

TEXT = "the dawn broke a vase and news of it came to every house where people sat at bread and beer"
TOKENIZER = train_tokenizer(
    "words", [TEXT, "the house , the vase , the beer and the dawn"], vocab_size=99, frame="elmo"
)
START, END, UNKNOWN = (TOKENIZER.specials[role] for role in ("start", "end", "unknown"))
N_WORDS = 12
"""Of the softmax; the corpus has more."""
N_ROWS, LENGTH = 3, 8

CASES: dict[str, tuple[BiLM, dict[str, Any]]] = {
    "full": (BiLM(fresh=0), {}),
    "sampled": (BiLM(fresh=0, softmax="sampled", n_samples=6), {}),
    "adaptive": (BiLM(fresh=0), {"output_cutoffs": (8,)}),
}
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def forget_what_was_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def told(case: str = "full") -> BiLM:
    return CASES[case][0].for_tokenizer(TOKENIZER)


def bundle_for(case: str = "full", *, spread: float | None = 0.3, **changes: Any) -> Bundle:
    torch.manual_seed(2)
    config = FAMILIES["elmo"].tiny().replace(**{"n_outputs": N_WORDS, "n_layers": 2, **CASES[case][1], **changes})
    return redrawn(new_bundle(FAMILIES["elmo"], config, ["two-way"], TOKENIZER), spread)


def some_rows(seed: int = 0, length: int = LENGTH) -> Rows:
    """Pairs of rows, with an end of a text here and there."""
    pieces = np.random.default_rng(seed).integers(3, TOKENIZER.n_pieces, (N_ROWS, 2 * (length + 1)))
    pieces[0, 4] = pieces[1, length + 4] = END
    special = pieces == END
    return Rows(pieces=pieces, starts=~special, special=special, keys=row_keys(seed, 0, np.arange(N_ROWS)))


def words_of(example: Example) -> list[list[str]]:
    """What a step reads, spelled out again."""
    characters = example.arrays["characters"][example.arrays["numbers"]]
    return [CharacterTokenizer().pieces(row) for row in characters.tolist()]


# --- what is read and guessed -----------------------------------------------------------------------------------------


def test_each_half_reads_its_row_and_guesses_the_word_beyond() -> None:
    """A separator is read as the marker that begins a text, and guessed as the one that ends it, for either half."""
    rows = some_rows()
    example = told().corrupt(rows)
    names = TOKENIZER.pieces(range(TOKENIZER.n_pieces))
    onward, back = np.split(rows.pieces, 2, axis=1)
    for row, read in enumerate(words_of(example)):
        ahead = ["<S>" if piece == END else names[piece] for piece in onward[row, :-1]]
        assert read == [*ahead, *(names[piece] for piece in back[row, 1:])]
    targets = example.arrays["targets"]
    assert np.array_equal(targets[:, :LENGTH], onward[:, 1:])
    assert np.array_equal(targets[:, LENGTH:], np.where(back[:, :-1] == END, START, back[:, :-1]))
    assert "<S>" in words_of(example)[0]
    assert "</S>" in words_of(example)[1]
    assert example.counts == {"forward": N_ROWS * LENGTH, "backward": N_ROWS * LENGTH}


def test_words_are_spelled_once_in_arrays_of_few_shapes() -> None:
    characters = told().corrupt(some_rows()).arrays["characters"]
    assert characters.shape == (256, 50)
    spelled = characters[characters.any(axis=1)]
    assert len(np.unique(spelled, axis=0)) == len(spelled) <= TOKENIZER.n_pieces
    assert {SENTENCE_BEGIN, SENTENCE_END} <= set(spelled[:, 1].tolist())


def test_words_that_the_softmax_lacks_are_guessed_as_unknown_and_read_by_their_characters() -> None:
    nets = told().nets(bundle_for())
    rows = some_rows()
    arrays = tensors(told().corrupt(rows))
    rare = arrays["targets"] >= N_WORDS
    assert rare.any()
    instead = {**arrays, "targets": torch.where(rare, UNKNOWN, arrays["targets"])}
    assert torch.equal(nets(arrays)[0]["forward"], nets(instead)[0]["forward"])
    assert UNKNOWN not in rows.pieces
    assert all("<UNK>" not in row for row in words_of(told().corrupt(rows)))


# --- the loss ---------------------------------------------------------------------------------------------------------


def by_hand(x: Tensor, half: Any, config: Any, held: list[tuple[Tensor, Tensor]], backwards: bool) -> Tensor:
    """Clipped LSTMs with projections, one after the other, each from the second on added to what it reads."""
    for number, layer in enumerate(half.layers):
        reader, (h, c), states = layer[0], held[number], []
        times = list(x.unbind(1))
        for now in reversed(times) if backwards else times:
            i, f, g, o = (now @ reader.input.T + h @ reader.recurrent.T + reader.bias).chunk(4, dim=-1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            c = c.clamp(-config.cell_clip, config.cell_clip)
            h = (torch.sigmoid(o) * torch.tanh(c)) @ reader.projection.T
            h = h.clamp(-config.projection_clip, config.projection_clip)
            states.append(h)
        held[number] = (h, c)
        read = torch.stack(states[::-1] if backwards else states, dim=1)
        x = read if number == 0 else read + x
    return x


def test_the_loss_is_that_of_the_equations() -> None:
    """Both halves, over two steps, each with the memory of its own reading, in double precision."""
    objective = told()
    bundle = bundle_for().double()
    encoder, softmax, config = bundle.encoder, bundle.outputs["two-way"].softmax, bundle.config
    nets = objective.nets(bundle)
    memory = nets.new_memory(N_ROWS)
    zeros = torch.zeros(N_ROWS, config.width).double(), torch.zeros(N_ROWS, config.inner_width).double()
    held: dict[str, list[Any]] = {name: [zeros] * config.n_layers for name in ("forward", "backward")}
    for seed in range(2):
        example = objective.corrupt(some_rows(seed))
        arrays = tensors(example)
        loss = objective.loss(nets, arrays, memory)
        tokens = encoder.tokens(arrays["characters"][arrays["numbers"].long()].long())
        for name, half, first in (("forward", encoder.forwards, 0), ("backward", encoder.backwards, LENGTH)):
            here = slice(first, first + LENGTH)
            top = by_hand(tokens[:, here], half, config, held[name], name == "backward")
            targets = arrays["targets"][:, here].long()
            targets = torch.where(targets < N_WORDS, targets, UNKNOWN)
            log_probs = torch.log_softmax(top @ softmax.table.T + softmax.bias, dim=-1)
            assert_close(loss.parts[name], -log_probs.gather(2, targets[..., None]).sum(), 1e-12)
        assert loss.memory is not None
        memory = loss.memory
    assert memory.lengths.tolist() == [2 * LENGTH] * N_ROWS
    assert objective.weights == {"forward": 0.5, "backward": 0.5}


def losses_of(nets: Any, arrays: dict[str, Tensor], memory: Any, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """[2, R, T]: the loss of every target of both halves."""
    kept: list[Tensor] = []
    whole = nets.output.loss

    def watched(states: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = whole(states, targets)
        kept.append(losses.detach().view(N_ROWS, -1))
        return losses

    with monkeypatch.context() as patch:
        patch.setattr(nets.output, "loss", watched)
        nets(arrays, memory)
    return torch.stack(kept)


def test_no_half_peeks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is read changes what is guessed beyond it in its half's own direction, and nothing else."""
    objective = told()
    nets = objective.nets(bundle_for()).double().eval()
    arrays = tensors(objective.corrupt(some_rows()))
    memory = objective.loss(nets, tensors(objective.corrupt(some_rows(1))), nets.new_memory(N_ROWS)).memory
    before = losses_of(nets, arrays, memory, monkeypatch)
    for place in range(2 * LENGTH):
        numbers = arrays["numbers"].clone()
        numbers[:, place] = (numbers[:, place] + 1) % 5
        changed = losses_of(nets, {**arrays, "numbers": numbers}, memory, monkeypatch) != before
        half, at = divmod(place, LENGTH)
        seen = changed[half].all(dim=0).tolist()
        expected = [later >= at for later in range(LENGTH)] if half == 0 else [later <= at for later in range(LENGTH)]
        assert seen == expected == changed[half].any(dim=0).tolist()
        assert not changed[1 - half].any()


def test_a_stream_that_begins_anew_knows_nothing_of_what_it_read_and_the_others_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = told()
    nets = objective.nets(bundle_for()).double().eval()
    arrays = tensors(objective.corrupt(some_rows()))
    memory = objective.loss(nets, tensors(objective.corrupt(some_rows(1))), nets.new_memory(N_ROWS)).memory
    carried = losses_of(nets, arrays, memory, monkeypatch)
    alone = losses_of(nets, arrays, nets.new_memory(N_ROWS), monkeypatch)
    some = losses_of(nets, {**arrays, "fresh": torch.tensor([False, True, False])}, memory, monkeypatch)
    assert (carried != alone).all()
    assert torch.equal(some[:, 1], alone[:, 1])
    assert torch.equal(some[:, [0, 2]], carried[:, [0, 2]])


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_as_many_streams_begin_anew_as_asked(share: float) -> None:
    objective = BiLM(fresh=share).for_tokenizer(TOKENIZER)
    rows = some_rows()
    many = 4000
    keys = row_keys(5, 0, np.arange(many))
    pieces = np.broadcast_to(rows.pieces[:1], (many, rows.pieces.shape[1]))
    marks = np.zeros(pieces.shape, np.bool_)
    fresh = objective.corrupt(Rows(pieces=pieces, starts=~marks, special=marks, keys=keys)).arrays["fresh"]
    assert abs(fresh.mean() - share) < 0.02
    with pytest.raises(OptionError, match="from 0 to 1"):
        BiLM(fresh=1.5)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "sampled" else pytest.mark.slow) for case in CASES]
)
def test_one_batch_is_learnt_by_heart(case: str) -> None:
    objective = told(case)
    bundle = bundle_for(case, spread=None, n_layers=1, n_highways=0, cell_clip=3.0, projection_clip=3.0)
    nets = objective.nets(bundle)
    example = objective.corrupt(some_rows(length=5))
    arrays = {**tensors(example), "characters": tensors(example)["characters"][:32]}
    assert example.arrays["numbers"].max() < 32
    optimizer = torch.optim.AdamW(nets.parameters(), lr=2e-2)
    first: dict[str, float] = {}
    for step in range(150):
        torch.manual_seed(step)
        parts = objective.loss(nets, arrays).parts
        first = first or {name: float(part.detach()) for name, part in parts.items()}
        optimizer.zero_grad()
        (sum(parts.values()) / example.counts["forward"]).backward()
        optimizer.step()
    nets.eval()
    with torch.no_grad():
        for name, part in objective.loss(nets, arrays).parts.items():
            assert float(part) < 0.2 * first[name], name


@every_case
def test_every_parameter_is_trained(case: str) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case))
    parts, after = nets(tensors(objective.corrupt(some_rows())), nets.new_memory(N_ROWS))
    (parts["forward"] + parts["backward"]).backward()
    for name, parameter in nets.named_parameters():
        assert parameter.grad is not None, name
    assert {"forwards.outputs.0", "backwards.cells.1"} <= after.tensors().keys()


def test_the_compiled_nets_equal_the_plain_ones() -> None:
    objective = told()
    nets = objective.nets(bundle_for(n_layers=1)).double()
    arrays = tensors(objective.corrupt(some_rows(length=3)))  # a graph of every step
    fast = torch.compile(nets, fullgraph=True, backend="aot_eager")
    found = []
    for run in (nets, fast):
        parts, memory = run(arrays, nets.new_memory(N_ROWS))
        found.append({**parts, **{name: each.double() for name, each in memory.tensors().items()}})
    for name, each in found[0].items():
        assert_close(found[1][name], each, 1e-10)


def test_cost_is_that_of_the_encoder_and_of_both_softmaxes() -> None:
    bundle = bundle_for()
    forward = forward_flops(bundle.config, [LENGTH] * 5)
    for objective, n_words in ((BiLM(), N_WORDS), (BiLM(softmax="sampled", n_samples=6), 7)):
        assert objective.flops(objective.nets(bundle), 5, LENGTH) == 3 * (forward + 2 * 2 * 5 * LENGTH * n_words * 12)


# --- what comes out ---------------------------------------------------------------------------------------------------


@every_case
def test_what_comes_out_is_elmo_s_files_with_the_softmax_beside(case: str, tmp_path: Path) -> None:
    objective = told(case)
    nets = objective.nets(bundle_for(case)).eval()
    model = objective.result(nets)["model"]
    save_bundle(model, tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "options.json", "polyseme.json", "vocabulary.txt", "weights.hdf5",
    ]  # fmt: skip
    words = (tmp_path / "model" / "vocabulary.txt").read_text().splitlines()
    assert words == TOKENIZER.pieces(range(N_WORDS))
    options = json.loads((tmp_path / "model" / "options.json").read_text())
    assert options["n_tokens_vocab"] == N_WORDS
    names: set[str] = set()
    with h5py.File(tmp_path / "model" / "weights.hdf5") as file:
        file.visit(names.add)
    assert {"char_embed", "CNN_proj/W_proj", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"} <= names
    assert ("softmax/W" in names) == (case != "adaptive")

    loaded = load_bundle(tmp_path / "model")
    assert loaded.config == nets.bundle.config
    assert isinstance(loaded.tokenizer, CharacterTokenizer)
    assert loaded.tokenizer.vocabulary == tuple(words)
    arrays = tensors(objective.corrupt(some_rows()))
    again = objective.nets(loaded).eval()
    with torch.no_grad():
        for name, part in nets(arrays)[0].items():
            assert_close(again(arrays)[0][name], part, 1e-6)
    assert polyseme.load(tmp_path / "model", device="cpu").embed("Dawn broke.")[0].vectors.shape == (3, 24)


def test_a_vocabulary_of_another_softmax_is_refused(tmp_path: Path) -> None:
    save_bundle(told().result(told().nets(bundle_for()))["model"], tmp_path / "model")
    path = tmp_path / "model" / "vocabulary.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ModelError, match="has 11 words, and the softmax of the model 12"):
        load_bundle(tmp_path / "model")


def test_published_files_cannot_score_or_generate_and_say_why() -> None:
    model = polyseme.load(GOLDEN / "allennlp", device="cpu")
    with pytest.raises(ModelError, match=r"cannot score texts: it has no softmax and no words for one"):
        model.score(["Dawn broke."])
    with pytest.raises(ModelError, match=r"cannot generate.* has the outputs: none"):
        model.generate("Dawn")


# --- needs ------------------------------------------------------------------------------------------------------------


@every_case
def test_what_fits_is_let_through(case: str) -> None:
    check_needs(told(case), bundle_for(case), TOKENIZER)
    assert objective_from("bilm", told(case).to_json()) == CASES[case][0]


@pytest.mark.parametrize(
    ("objective", "changes", "tokenizer", "said"),
    [
        (BiLM(softmax="sampled"), {"output_cutoffs": (8,)}, TOKENIZER, "that is not sampled"),
        (BiLM(max_characters=20), {}, TOKENIZER, "in 20 characters, and the encoder reads 50 of them"),
        (BiLM(), {"n_outputs": 50}, TOKENIZER, "chooses from 50 words, and the corpus has only"),
        (BiLM(), {}, tiny_tokenizer("lstm"), "has none for: start"),
        (BiLM(), {}, tiny_tokenizer("bert"), "this tokenizer's unit is the piece"),
    ],
    ids=["sampled and adaptive", "characters", "softmax", "markers", "unit"],
)
def test_what_cannot_work_is_refused(objective: BiLM, changes: dict[str, Any], tokenizer: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_needs(objective.for_tokenizer(tokenizer), bundle_for(**changes), tokenizer)


def test_an_encoder_of_one_direction_is_refused() -> None:
    bundle = new_bundle(FAMILIES["lstm"], tiny_config("lstm"), ["causal"])
    with pytest.raises(OptionError, match=r"sees each side of a piece by itself.* there is: causal, streams"):
        check_needs(told(), bundle, TOKENIZER)

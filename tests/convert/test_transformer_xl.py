"""Transformer-XL against its golden files: three segments, both kinds of first memory, every option of its config."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from polyseme.bundle import Bundle, count_parameters, named_tensors, new_bundle
from polyseme.convert.conversion_table import read, write
from polyseme.convert.transformer_xl import FAMILY, read_config, table, write_config
from polyseme.errors import ModelError
from polyseme.model_folder import load_bundle, put_weights, save_bundle
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Batch
from references import assert_close
from tiny_models import tiny_model

GOLDEN = Path(__file__).parents[1] / "golden" / "transformer_xl"
FOLDERS = [
    "div1-same-length-clamp",
    "div2",
    "div2-projected-tied-r-prenorm",
    "div1-projected-no-mem",
]
CASES = [
    (folder, start)
    for folder in FOLDERS
    for start in (["no-mems"] if folder.endswith("no-mem") else ["hf-zero-mems", "empty-mems"])
]
every_case = pytest.mark.parametrize(("folder", "start"), CASES)
TINY: Any = FAMILY.tiny()
WITHIN = 1e-5
"""Rule 9 in fp32, which is what the files are in."""


SIZES = {
    name: FAMILY.base().replace(
        width=width,
        head_width=head_width,
        n_layers=n_layers,
        n_heads=n_heads,
        inner_width=inner_width,
        narrowing=narrowing,
        shared_biases=narrowing == 1,
        memory_length=memory_length,
        clamp_distance=clamp_distance,
        masks=(f"band:{memory_length}",),
        embedding_scale=width**0.5,
    )
    for name, width, head_width, n_layers, n_heads, inner_width, narrowing, memory_length, clamp_distance in (
        ("transformer-xl-standard", 410, 41, 16, 10, 2100, 1, 640, 400),
        ("transformer-xl-large", 1024, 64, 18, 16, 4096, 4, 1600, 1000),
    )
}
"""The two models of WikiText-103, as they are evaluated; the large one as `transformers` published it."""


@cache
def settings(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / folder / "config.json").read_text(encoding="utf-8"))
    return found


@cache
def weights(folder: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / folder / "model.safetensors")


def bundle_of(
    theirs: dict[str, Any], tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32, **changes: Any
) -> Bundle:
    config = read_config(theirs, "config.json").replace(**changes)
    found = read(table(config, theirs["tie_word_embeddings"]), tensors, "it")
    with torch.device("meta"):
        bundle = new_bundle(FAMILY, config, found.outputs, tied=theirs["tie_word_embeddings"])
    put_weights(bundle, {name: tensor.clone() for name, tensor in found.tensors.items()}, GOLDEN, dtype, "cpu")
    return bundle.eval()


def golden_bundle(folder: str, start: str) -> Bundle:
    first = {"hf-zero-mems": "zeros", "empty-mems": "empty", "no-mems": "zeros"}[start]
    return bundle_of(settings(folder), weights(folder), first_memory=first)


# --- the golden files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attentions", [False, True], ids=["fused", "eager"])
@every_case
def test_three_segments_equal_the_golden_files(folder: str, start: str, attentions: bool) -> None:
    """Every layer, attentions, memories, log-probabilities of all clusters, and losses in the order of pieces."""
    bundle = golden_bundle(folder, start)
    expected = load_file(GOLDEN / folder / "expected.safetensors")
    depth = bundle.config.depth
    memory = None if start == "no-mems" else bundle.encoder.new_memory(2)
    for segment in range(3):
        key = f"{start}.segment{segment}"
        pieces = expected[f"segment{segment}.input_ids"]
        with torch.no_grad():
            states = bundle.encoder(Batch(pieces), memory=memory, attentions=attentions)
            output = bundle.outputs["causal"]
            log_probs = output.log_probs(states[-1].flatten(0, 1))
            losses = output.loss(states[-1][:, :-1].flatten(0, 1), pieces[:, 1:].flatten())
        memory = states.memory
        for number in range(depth + 1):
            assert_close(states[number], expected[f"{key}.hidden{number}"], WITHIN)
        for number in range(depth if attentions else 0):
            assert_close(states.attentions["self"][number], expected[f"{key}.attention{number}"], WITHIN)
        assert_close(log_probs, expected[f"{key}.log_probs"].flatten(0, 1), WITHIN)
        assert_close(losses, expected[f"{key}.losses_in_order"].flatten(), WITHIN)
        assert_close(losses.mean(), expected[f"{key}.loss"][0], WITHIN)
        if memory is not None:
            for number, held in enumerate(memory.states):
                assert_close(held, expected[f"{key}.mems{number}"].transpose(0, 1), WITHIN)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_key_of_the_files_is_written_back(folder: str) -> None:
    """But for second names and the buffer of frequencies."""
    bundle = bundle_of(settings(folder), weights(folder))
    rules = table(bundle.config, True)
    written = write(rules, named_tensors(bundle), ["causal"], prefix=True)
    second = {alias.theirs.replace("{p}", "transformer.") for alias in rules.aliases}
    assert set(written) == set(weights(folder)) - second - {"transformer.pos_emb.inv_freq"}
    assert all(torch.equal(tensor, weights(folder)[name]) for name, tensor in written.items())
    assert second <= set(weights(folder))


@pytest.mark.parametrize("folder", FOLDERS)
def test_configs_go_out_as_they_came(folder: str) -> None:
    theirs = settings(folder)
    written = write_config(read_config(theirs, "config.json"))
    for name in set(theirs) - {"model_type", "tie_word_embeddings"}:
        assert written[name] == theirs[name], name


def test_a_golden_folder_is_loaded_and_saved(tmp_path: Path) -> None:
    """As any model folder, with a tokenizer of words beside it."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((GOLDEN / "div2" / name).read_bytes())
    backend = Tokenizer(models.WordLevel({"<unk>": 0} | {f"w{id}": id for id in range(1, 100)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    bundle = load_bundle(folder)
    assert list(bundle.outputs) == ["causal"]
    save_bundle(bundle, tmp_path / "ours")
    again = load_bundle(tmp_path / "ours")
    assert again.config == bundle.config
    assert named_tensors(again).keys() == named_tensors(bundle).keys()
    assert load_tokenizer(tmp_path / "ours").n_pieces == 100


# --- what has no golden file -----------------------------------------------------------------------------------------


def plain_log_probs(theirs: dict[str, Any], tensors: dict[str, Tensor], states: Tensor) -> Tensor:
    """The adaptive softmax as its equations say, over tensors by their names."""
    cutoffs = [0, *theirs["cutoffs"], theirs["vocab_size"]]
    divided = theirs["div_val"] > 1

    def logits(number: int, more: tuple[Tensor, Tensor] | None = None) -> Tensor:
        low, high = cutoffs[number], cutoffs[number + 1]
        key = f"crit.out_layers.{number if divided else 0}"
        weight, bias = tensors[f"{key}.weight"], tensors[f"{key}.bias"]
        if not divided:
            weight, bias = weight[low:high], bias[low:high]
        if more is not None:
            weight, bias = torch.cat([weight, more[0]]), torch.cat([bias, more[1]])
        mapped = states @ tensors[f"crit.out_projs.{number}"] if f"crit.out_projs.{number}" in tensors else states
        return mapped @ weight.T + bias

    first = F.log_softmax(logits(0, (tensors["crit.cluster_weight"], tensors["crit.cluster_bias"])), dim=-1)
    others = [
        first[:, [cutoffs[1] + number - 1]] + F.log_softmax(logits(number), dim=-1)
        for number in range(1, len(cutoffs) - 1)
    ]
    return torch.cat([first[:, : cutoffs[1]], *others], dim=1)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shared", [True, False], ids=["maps shared", "maps apart"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_output_and_its_gradients_equal_the_equations(folder: str, shared: bool, tied: bool) -> None:
    """With tables and maps shared with the token layer or not, in float64."""
    theirs = {**settings(folder), "proj_share_all_but_first": shared, "tie_word_embeddings": tied}
    theirs["tie_projs"] = [False, shared, shared]
    tensors = {name: tensor.double() for name, tensor in weights(folder).items()}
    generator = torch.Generator().manual_seed(3)
    for name, tensor in tensors.items():
        apart = (name.startswith("crit.out_projs.") and not shared) or (name.endswith("weight") and not tied)
        if name.startswith("crit.") and apart:
            tensors[name] = tensor + torch.randn(tensor.shape, generator=generator).double()
    bundle = bundle_of(theirs, tensors, torch.float64)
    states = torch.randn(30, bundle.config.widths[-1], generator=generator).double()
    targets = torch.randint(0, 100, (30,), generator=generator)
    of_crit = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items() if name.startswith("crit.")}
    expected = plain_log_probs(theirs, of_crit, states)
    output = bundle.outputs["causal"]
    assert_close(output.log_probs(states), expected, 1e-10)
    assert_close(output.log_probs(states).exp().sum(-1), torch.ones(30), 1e-10)
    losses = output.loss(states, targets)
    assert_close(losses, -expected.gather(1, targets[:, None])[:, 0], 1e-10)
    losses.sum().backward()
    (-expected.gather(1, targets[:, None]).sum()).backward()
    ours = {**dict(output.named_parameters())}
    for name, tensor in of_crit.items():
        kind, _, rest = name.removeprefix("crit.").partition(".")
        our_name = {"cluster_weight": "cluster_table", "cluster_bias": "cluster_bias"}.get(kind)
        number, _, leaf = rest.partition(".")
        if kind == "out_projs":
            our_name = f"maps.{number}"
        elif our_name is None:
            our_name = f"tables.{number}" if leaf == "weight" else f"biases.{number}"
        if kind == "out_projs" and shared and theirs["div_val"] == 1 and number != "0":
            continue  # one map under two names: compared below as their sum
        assert_close(ours[our_name].grad, tensor.grad, 1e-10, float(of_crit["crit.cluster_weight"].grad.abs().max()))
    if shared and theirs["div_val"] == 1 and "crit.out_projs.1" in of_crit:
        both = of_crit["crit.out_projs.1"].grad + of_crit["crit.out_projs.2"].grad
        assert_close(bundle.encoder.embeddings.pieces.maps[0].weight.grad, both, 1e-10)


def test_what_is_shared_is_one_parameter() -> None:
    bundle = bundle_of(settings("div2"), weights("div2"))
    clusters, output = bundle.encoder.piece_clusters(), bundle.outputs["causal"]
    assert clusters is not None
    for number in range(3):
        assert output.tables[number] is clusters.tables[number].weight
        assert (output.maps[number] is clusters.maps[number].weight) == (number > 0)
    shared = bundle_of(settings(FOLDERS[2]), weights(FOLDERS[2]))
    assert sum(name.endswith("content_bias") for name, _ in shared.named_parameters()) == 1


def test_a_segment_with_memory_is_the_long_row_where_it_should_be() -> None:
    """Where all that came before is remembered and distances are not clamped, two segments are one row."""
    bundle = bundle_of({**settings("div2"), "mem_len": 40}, weights("div2"), torch.float64, first_memory="empty")
    pieces = torch.randint(0, 100, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = bundle.encoder(Batch(pieces))[-1]
        first = bundle.encoder(Batch(pieces[:, :9]), memory=bundle.encoder.new_memory(2))
        second = bundle.encoder(Batch(pieces[:, 9:]), memory=first.memory)
    assert_close(torch.cat([first[-1], second[-1]], dim=1), whole, 1e-10)


def test_ragged_rows_are_rows_alone() -> None:
    bundle = golden_bundle(FOLDERS[0], "hf-zero-mems").double()
    pieces = torch.randint(0, 100, (3, 8), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([8, 1, 5])
    with torch.no_grad():
        before = bundle.encoder(Batch(pieces, lengths), memory=bundle.encoder.new_memory(3)).memory
        after = bundle.encoder(Batch(pieces.flip(1)), memory=before)[-1]
        for row, length in enumerate(lengths.tolist()):
            alone = bundle.encoder(Batch(pieces[row : row + 1, :length]), memory=bundle.encoder.new_memory(1)).memory
            assert_close(bundle.encoder(Batch(pieces[[row]].flip(1)), memory=alone)[-1][0], after[row], 1e-10)


# --- configs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attn_type": 2}, "sets 'attn_type' to 2"),
        ({"adaptive": False}, "sets 'adaptive' to False"),
        ({"sample_softmax": 5}, "sets 'sample_softmax' to 5"),
        ({"same_length": True, "mem_len": 0}, "'same_length' without a memory"),
        ({"tie_projs": [True, True, True]}, "'tie_projs' is not what follows"),
        ({"cutoffs": 20}, "'cutoffs' must be a list"),
        ({"cutoffs": [60, 20]}, r"'cutoffs' must rise.*Got \[60, 20\]"),
        ({"cutoffs": [20, 120]}, "below the 100 pieces"),
        ({"div_val": 5}, "cannot grow 5 times narrower"),
        ({"mem_len": None}, "'mem_len' must be a whole number"),
    ],
)
def test_configs_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    theirs = {name: value for name, value in settings("div2").items() if name not in ("tie_projs", "model_type")}
    with pytest.raises(ModelError, match=said):
        read_config({**theirs, **changes}, "config.json")


def test_parameter_counts() -> None:
    """The standard model's as the original program prints it; the large one's added up from the shapes of its file."""
    assert count_parameters("transfo-xl", SIZES["transformer-xl-standard"], ["causal"]) == 151_107_538
    width, inner, sizes = 1024, 4096, (20_000, 20_000, 160_000, 67_735)
    narrow = [width // 4**number for number in range(4)]
    token_layer = sum(size * each for size, each in zip(sizes, narrow, strict=True)) + width * sum(narrow)
    output = width * width + 3 * (width + 1) + sum(sizes)
    attention = 5 * width * width + 2 * width  # queries, keys, values, results, distances; two biases
    layer = attention + 2 * width * inner + inner + width + 2 * 2 * width
    counted = count_parameters("transfo-xl", SIZES["transformer-xl-large"], ["causal"])
    assert counted == token_layer + output + 18 * layer == 285_205_322


# --- what users call -------------------------------------------------------------------------------------------------


def test_embed_and_pieces_read_its_layers() -> None:
    model = tiny_model("transfo-xl")
    [found] = model.embed("Sandy broke the law .", layer="all")
    assert found.vectors.shape == (5, TINY.n_layers + 1, TINY.width)
    assert model.pieces("Sandy broke the law .").states.shape == (TINY.n_layers + 1, 5, TINY.width)

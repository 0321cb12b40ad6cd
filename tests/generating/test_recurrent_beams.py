"""Beams of a small recurrent model that has learned something: what they find is the likeliest of all texts."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import StepByStep
from polyseme.objectives.objective import TwoStackNets
from polyseme.types import Batch, States

START, END, N_PIECES = 0, 1, 40
LETTERS = (2, 3, 4)
MAX_NEW = 3
KINDS = {
    "last state": {"decoder_attention": "none", "decoder_feeding": "none"},
    "attention": {"decoder_attention": "general", "decoder_feeding": "none"},
    "input feeding": {"decoder_attention": "additive", "decoder_feeding": "attentional"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def trained(kind: str) -> Bundle:
    """One that is on its way to write what it reads from the end to the start."""
    torch.manual_seed(1)
    config = FAMILIES["seq2seq"].tiny().replace(n_pieces=N_PIECES, init_std=0.5, **KINDS[kind])
    bundle = new_bundle(FAMILIES["seq2seq"], config, ["causal"]).double()
    nets = TwoStackNets(bundle, None, "translation")
    optimizer = torch.optim.Adam(nets.parameters(), lr=1e-2)
    sources = torch.tensor(list(itertools.product(LETTERS, repeat=2)))
    targets = torch.nn.functional.pad(sources.flip(1), (0, 1), value=END)
    for _ in range(60):
        optimizer.zero_grad()
        nets({"pieces": sources, "targets": targets})[0]["translation"].div(targets.numel()).backward()
        optimizer.step()
    return bundle.eval()


def writer(bundle: Bundle) -> LanguageModel:
    forbidden = tuple(piece for piece in range(N_PIECES) if piece not in (*LETTERS, END))
    assert bundle.decoder is not None
    return LanguageModel(
        next_piece=StepByStep(bundle.decoder, bundle.outputs["causal"]),  # type: ignore[arg-type]
        n_pieces=N_PIECES,
        device=torch.device("cpu"),
        source=bundle.encoder,
        before=(START,),
        end=END,
        forbidden=forbidden,
    )


def every_text(bundle: Bundle, source: list[int], penalty: float) -> dict[tuple[int, ...], float]:
    """The score of every text there can be, the end counted where it is written."""
    assert bundle.decoder is not None
    scores: dict[tuple[int, ...], float] = {}
    with torch.no_grad():
        read = bundle.encoder(Batch(torch.tensor([source])))
        for length in range(MAX_NEW + 1):
            texts = list(itertools.product(LETTERS, repeat=length))
            written = torch.tensor([[*text, END] if length < MAX_NEW else list(text) for text in texts])
            before = torch.nn.functional.pad(written[:, :-1], (1, 0), value=START)
            source_of_all = States({2: read[-1].expand(len(texts), -1, -1)}, None, 2)
            log_probs = bundle.outputs["causal"].log_probs(bundle.decoder(Batch(before, source=source_of_all))[-1])
            totals = log_probs.gather(2, written[:, :, None]).sum(dim=(1, 2)) / written.shape[1] ** penalty
            scores |= dict(zip(texts, totals.tolist(), strict=True))
    return scores


@every_kind
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_is_an_exhaustive_search(kind: str, penalty: float) -> None:
    bundle = trained(kind)
    decoding = Decoding(max_new=MAX_NEW, beam=12, n=6, length_penalty=penalty, early_stopping="never")
    sources = [[2, 4], [3], [4, 4, 2, 3]]
    for source, texts in zip(sources, write_on(writer(bundle), [[]] * 3, decoding, sources=sources), strict=True):
        scores = every_text(bundle, source, penalty)
        best = sorted(scores, key=lambda text: -scores[text])[:6]
        assert [tuple(text.pieces) for text in texts] == best
        assert [text.score for text in texts] == pytest.approx([scores[text] for text in best], abs=1e-9)


@every_kind
def test_it_has_learned_something(kind: str) -> None:
    """Else the test above would show little."""
    bundle = trained(kind)
    sources = [list(pair) for pair in itertools.product(LETTERS, repeat=2)]
    texts = write_on(writer(bundle), [[]] * 9, Decoding(max_new=MAX_NEW), sources=sources)
    assert sum(text[0].pieces == source[::-1] for source, text in zip(sources, texts, strict=True)) >= 4


@every_kind
def test_a_source_by_itself_and_among_others(kind: str) -> None:
    model = writer(trained(kind))
    sources = [[2, 4], [3], [4, 4, 2, 3], [2, 2, 2]]
    decoding = Decoding(max_new=MAX_NEW, beam=3, n=2)
    together = write_on(model, [[]] * 4, decoding, sources=sources)
    for source, texts in zip(sources, together, strict=True):
        [alone] = write_on(model, [[]], decoding, sources=[source])
        assert [text.pieces for text in alone] == [text.pieces for text in texts]

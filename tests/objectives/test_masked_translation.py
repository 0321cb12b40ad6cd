"""Translation language modeling: the loss is BERT's over each pair by itself; what must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import polyseme
from objectives.rows import rows_for, tensors, told
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.layout import RowOptions
from polyseme.errors import InputError, OptionError
from polyseme.objectives.masked_translation import MaskedTranslation
from polyseme.objectives.objective_table import check_needs, objective_from
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer


def test_the_loss_is_that_of_every_pair_by_itself() -> None:
    """A source and its target, each with positions from 0 on and a segment; in float64, and the gradients too."""
    objective = told(MaskedTranslation(mask_rate=0.3))
    pair = make_pair(FAMILIES["bert"], "BertForMaskedLM", tiny_config("bert"))
    rows = rows_for(objective, n_rows=5, length=40)
    example = objective.corrupt(rows)
    arrays = tensors(example)
    labels = torch.full(arrays["pieces"].shape, -100)
    real = arrays["weights"] > 0
    at = torch.arange(len(labels))[:, None].expand_as(real)
    labels[at[real], arrays["places"][real].long()] = arrays["targets"][real].long()
    losses = []
    for row in range(5):
        for number in (0, 1):
            its = torch.from_numpy(rows.documents[row] == number)  # type: ignore[index]
            n_source = int(its[:20].sum())
            positions = torch.cat([torch.arange(n_source), torch.arange(int(its.sum()) - n_source)])
            logits = pair.reference(
                input_ids=arrays["pieces"][row, its].long()[None],
                position_ids=positions[None],
                token_type_ids=(torch.arange(40) >= 20).long()[its][None],
            ).logits[0]
            losses.append(F.cross_entropy(logits, labels[row, its], reduction="sum"))
    nets: Any = objective.nets(pair.ours)
    found, expected = objective.loss(nets, arrays).parts["masked"], torch.stack(losses).sum()
    assert example.counts["masked"] == real.sum() > 40
    assert_close(found, expected, 1e-10)
    found.backward()
    expected.backward()
    references = {
        "pieces": pair.reference.bert.embeddings.word_embeddings,
        "positions.table": pair.reference.bert.embeddings.position_embeddings,
        "segments": pair.reference.bert.embeddings.token_type_embeddings,
    }
    gradients = dict(nets.encoder.embeddings.named_parameters())
    largest = max(float(each.weight.grad.abs().max()) for each in references.values())
    for name, theirs in references.items():
        assert_close(gradients[f"{name}.weight"].grad, theirs.weight.grad, 1e-10, largest)


def test_rows_have_both_sides_of_a_pair_and_positions_that_begin_anew(tmp_path: Path) -> None:
    words = ["dawn", "broke", "a", "vase", "of", "thin", "glass", "at", "the", "old", "house", "by", "the", "sea"]
    lines = [" ".join(words[n % 9 : n % 9 + 2 + n % 4]) for n in range(60)]
    (tmp_path / "one").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "other").write_text("".join(f"{line[::-1]}\n" for line in lines))
    corpus = polyseme.build_corpus(
        source=tmp_path / "one",
        target=tmp_path / "other",
        output=tmp_path / "corpus",
        frame="bert",
        vocab_size=80,
        held_out=0.1,
    )
    source = MaskedTranslation().needs.layout.rows(corpus, RowOptions(length=48))
    rows = source.rows(np.arange(source.n_rows))
    assert rows.pieces.shape == (source.n_rows, 96)
    assert source.mean_length == 96
    assert rows.documents is not None
    assert rows.positions is not None
    assert rows.segments is not None
    assert (rows.segments == np.repeat([0, 1], 48)).all()
    n_pairs = 0
    for row in range(source.n_rows):
        for number in range(rows.documents[row].max() + 1):
            texts = []
            for segment in (0, 1):
                its = (rows.documents[row] == number) & (rows.segments[row] == segment)
                assert (rows.positions[row, its] == np.arange(its.sum())).all()
                pieces = rows.pieces[row, its]
                assert (pieces[0], pieces[-1]) == tuple(corpus.tokenizer.specials[each] for each in ("start", "end"))
                assert rows.special[row, its].tolist() == [True, *[False] * (len(pieces) - 2), True]
                texts.append(corpus.tokenizer.decode(pieces[1:-1]).replace(" ", ""))
            assert texts[0] == texts[1][::-1]
            n_pairs += 1
    assert n_pairs == corpus.n_documents("train")
    counts = corpus.piece_counts("train", "source") + corpus.piece_counts("train", "target")
    shares = (counts + 0.5) / (counts + 0.5).sum()
    held = sum(corpus.piece_counts("held", side) for side in ("source", "target"))
    baseline = MaskedTranslation().baseline(torch.nn.Identity(), corpus, 10**6)
    assert baseline == pytest.approx(-(held * np.log(shares)).sum() / max(held.sum(), 1))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"rows of translations, which have no next sentence.* Leave out next\."):
        objective_from("tlm", {"next": "nsp"})
    with pytest.raises(OptionError, match=r"no other layout\. Leave out layout\."):
        objective_from("tlm", {"layout": "doc-sentences"})
    roberta = new_bundle(FAMILIES["roberta"], tiny_config("roberta"), ["masked"], tiny_tokenizer("roberta"))
    with pytest.raises(OptionError, match=r"tells languages by segments, and this model \(roberta\) has fewer than 2"):
        check_needs(told(MaskedTranslation(), "roberta"), roberta, tiny_tokenizer("roberta"))
    (tmp_path / "one").write_text("a b\nc d\ne f\n")
    (tmp_path / "other").write_text("b a\nd c\n")
    settings: dict[str, Any] = {"recipe": "xlm-tlm-tiny", "budget": "2steps", "device": "cpu"}
    with pytest.raises(InputError, match=r"other has 2 lines, and .*one continues with line 3"):
        polyseme.pretrain(source=tmp_path / "one", target=tmp_path / "other", output=tmp_path / "run", **settings)
    with pytest.raises(OptionError, match=r"'xlm-tlm-tiny' learns from texts in pairs, and .*one is plain text"):
        polyseme.pretrain(tmp_path / "one", output=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()

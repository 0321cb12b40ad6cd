"""Masks: who sees whom, piece by piece."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyseme.errors import ModelError
from polyseme.parts.masks import (
    AllKeys,
    Band,
    Causal,
    FactorizationOrder,
    MatrixMask,
    Places,
    SameDocument,
    get_mask,
    visible_keys,
)
from polyseme.types import Mask, Stream

HERE = torch.arange(4)[None]
WITH_MEMORY = torch.arange(-2, 4)[None]


def drawing(allowed: Tensor | None) -> list[str]:
    """A mask of one row as a picture: a line a query, x where it sees a key."""
    assert allowed is not None
    assert allowed.shape[0] == 1
    return ["".join("x" if each else "." for each in line) for line in allowed[0].tolist()]


def drawn(mask: Mask, k: Tensor = HERE, stream: Stream = "self") -> list[str]:
    return drawing(mask.allowed(HERE, k, stream))


def test_everything_is_no_mask_at_all() -> None:
    assert AllKeys().allowed(HERE, WITH_MEMORY, "self") is None


def test_causal() -> None:
    assert drawn(Causal()) == ["x...", "xx..", "xxx.", "xxxx"]
    assert drawn(Causal(), WITH_MEMORY) == ["xxx...", "xxxx..", "xxxxx.", "xxxxxx"]
    assert drawn(Causal(), stream="query") == ["....", "x...", "xx..", "xxx."]


def test_a_band_counts_the_query_itself() -> None:
    assert drawn(Band(2)) == ["x...", "xx..", ".xx.", "..xx"]
    assert drawn(Band(3), WITH_MEMORY) == ["xxx...", ".xxx..", "..xxx.", "...xxx"]
    assert drawn(Band(3), stream="query") == ["....", "x...", "xx..", ".xx."]
    assert drawn(Band(1)) == ["x...", ".x..", "..x.", "...x"]


def test_order_is_the_factorization_and_all_of_the_memory() -> None:
    order = FactorizationOrder(torch.tensor([[3, 1, 0, 2]]))  # 3 → 2 → 4 → 1, counted from one
    assert drawn(order) == ["xxxx", ".xx.", "..x.", ".xxx"]
    assert drawn(order, stream="query") == [".xxx", "..x.", "....", ".xx."]
    assert drawn(order, WITH_MEMORY) == ["xxxxxx", "xx.xx.", "xx..x.", "xx.xxx"]
    assert drawn(order, WITH_MEMORY, "query") == ["xx.xxx", "xx..x.", "xx....", "xx.xx."]


def test_same_document_and_a_memory_is_another() -> None:
    documents = SameDocument(torch.tensor([[0, 0, 1, 0]]))
    assert drawn(documents) == ["xx.x", "xx.x", "..x.", "xx.x"]
    assert drawn(documents, WITH_MEMORY) == ["..xx.x", "..xx.x", "....x.", "..xx.x"]


def test_given_is_read_by_place() -> None:
    matrix = torch.tensor([[[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]], dtype=torch.bool)
    assert drawn(MatrixMask(matrix)) == ["x..x", "....", "xxxx", ".x.."]
    assert drawn(MatrixMask(matrix), WITH_MEMORY) == ["xxx..x", "xx....", "xxxxxx", "xx.x.."]
    at = torch.tensor([[3, 0]])
    assert drawing(MatrixMask(matrix).allowed(at, HERE, "query")) == [".x..", "x..x"]


def test_rows_keep_their_own_masks() -> None:
    ranks = torch.tensor([[0, 1, 2], [2, 1, 0]])
    here = torch.arange(3)[None]
    both = FactorizationOrder(ranks).allowed(here, here, "self")
    assert both is not None
    assert drawing(both[:1]) == ["x..", "xx.", "xxx"]
    assert drawing(both[1:]) == ["xxx", ".xx", "..x"]
    own_places = Causal().allowed(torch.tensor([[3], [1]]), torch.arange(5)[None], "self")
    assert own_places is not None
    assert drawing(own_places[:1]) == ["xxxx."]
    assert drawing(own_places[1:]) == ["xx..."]


# --- put together ----------------------------------------------------------------------------------------------------


def test_what_is_seen_is_the_conjunction() -> None:
    """The encoder's own mask ∧ the batch's ∧ the keys that exist; a batch's mask never widens."""
    exists = torch.tensor([[True, True, True, False]])
    where = Places(HERE, HERE, exists, counted=True)
    documents = SameDocument(torch.tensor([[0, 1, 1, 1]]))
    both = visible_keys(Causal(), documents, where)
    assert both.allowed is not None
    assert drawing(both.allowed[:, 0]) == ["x...", ".x..", ".xx.", ".xx."]
    wide = visible_keys(Causal(), MatrixMask(torch.ones(1, 4, 4, dtype=torch.bool)), where)
    assert wide.allowed is not None
    assert drawing(wide.allowed[:, 0]) == ["x...", "xx..", "xxx.", "xxx."]


def test_with_itself_a_piece_sees_itself_whatever_the_masks_say() -> None:
    nothing = MatrixMask(torch.zeros(1, 4, 4, dtype=torch.bool))
    where = Places(HERE, HERE, torch.tensor([[True, True, False, False]]), counted=True)
    content = visible_keys(AllKeys(), nothing, where, itself=True)
    query = visible_keys(AllKeys(), nothing, where, "query", itself=True)
    assert content.allowed is not None
    assert query.allowed is not None
    assert drawing(content.allowed[:, 0]) == ["x...", ".x..", "..x.", "...x"]
    assert not query.allowed.any()


def test_plain_causal_rows_need_no_matrix() -> None:
    """A causal mask alone hides padding on the right, so the fused kernel may be told just that."""
    padded = Places(HERE, HERE, torch.tensor([[True, True, False, False]]), counted=True)
    assert visible_keys(Causal(), None, padded).causal
    assert visible_keys(Causal(), None, padded).allowed is None
    assert not visible_keys(Causal(), None, Places(HERE, WITH_MEMORY, None, counted=False)).causal
    assert not visible_keys(Causal(), None, padded, "query").causal
    assert not visible_keys(Band(3), None, padded).causal


def test_masks_by_name() -> None:
    assert get_mask("all") == AllKeys()
    assert get_mask("causal") == Causal()
    assert get_mask("band:7") == Band(7)


@pytest.mark.parametrize("name", ["", "band", "band:", "band:0", "band:-1", "band:x", "future"])
def test_an_unknown_mask_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="all, causal or band:WIDTH"):
        get_mask(name)

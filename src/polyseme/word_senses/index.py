"""An index of the uses of words: every word of every text with its vector, searched for nearest neighbors.

An index is a folder, read through memory maps, so that it may be larger than memory:

| file | |
|---|---|
| index.json | the model's fingerprint, layers, pooling, counts, the source, a checksum of each file |
| texts.arrow | id, text and fields of each document |
| uses.arrow | for each use its document, its offsets in the text, and the number of its word's form |
| forms.arrow | the forms: words without case |
| vectors-N.f32 | [uses, D] of the N-th layer of index.json, at length 1 |
| graph-N.usearch | past a million uses, a graph over them (the extra `index`) |

Up to a million uses the search is exact; beyond that a graph may miss neighbors, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from polyseme.embedding.layer_selection import LayerChoice
from polyseme.embedding.model_fingerprint import differences
from polyseme.errors import InputError, ModelError
from polyseme.files.atomic import AnyPath
from polyseme.files.checksums import first_damaged
from polyseme.files.field_names import fields_of_words
from polyseme.json_reading import damage_reported, load_json, parse_json
from polyseme.plots.word_uses import Use
from polyseme.text.word_forms import form
from polyseme.word_senses.context_vectors import with_context
from polyseme.word_senses.nearest_neighbors import BLOCK, Floats, Graph, Near, nearest, unit

CARD = "index.json"
FORMAT = 2
EXACT_UP_TO = 1_000_000
"""Uses up to which every vector is compared."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The origin of the vectors of an index: model, layer and pooling."""

    fingerprint: dict[str, str]
    """By part; see `embedding.model_fingerprint`."""
    layer: LayerChoice
    pool: str

    def differences(self, other: View) -> list[str]:
        """The differences from `other`, in words."""
        result = differences(self.fingerprint, other.fingerprint)
        result += [f"layer ({layer_name(self.layer)} there, {layer_name(other.layer)} here)"] * (
            self.layer != other.layer
        )
        return result + [f"pooling ({self.pool} there, {other.pool} here)"] * (self.pool != other.pool)


class IndexedUse(NamedTuple):
    """A use, with the id of its document, and its fields."""

    id: str
    use: Use
    fields: dict[str, Any]


class UseIndex:
    """The uses of words in texts, with their vectors; built by `build_index.index_uses`, opened by `load_index`."""

    def __init__(
        self, *, texts: pa.Table, uses: pa.Table, forms: pa.Table, vectors: Sequence[Floats],
        graphs: Sequence[Graph | None], views: Sequence[View], source: dict[str, Any],
    ) -> None:  # fmt: skip
        self.views = views
        self.vectors = vectors
        """[uses, D] of each view."""
        self.source = source
        """The name of the source, and its size in bytes if known."""
        self._texts = texts
        self._uses = uses
        self._forms = forms
        self._graphs = graphs

    def __len__(self) -> int:
        return int(self._uses.num_rows)

    @property
    def n_documents(self) -> int:
        return int(self._texts.num_rows)

    def use(self, row: int) -> IndexedUse:
        """A use by its row."""
        document, start, end = (self._uses.column(name)[row].as_py() for name in ("document", "start", "end"))
        id, text, fields = (self._texts.column(name)[document].as_py() for name in ("id", "text", "fields"))
        first, last = np.searchsorted(self._document_of_use, [document, document + 1]).tolist()
        return IndexedUse(
            id, Use(text, start, end), fields_of_words(parse_json(fields, kind=dict), [row - first], last - first)
        )

    def forms(self) -> dict[str, int]:
        """Every form, and how often it is used."""
        counts = np.bincount(self._form_of_use, minlength=self._forms.num_rows)
        return dict(zip(self._forms.column("form").to_pylist(), counts.tolist(), strict=True))

    def is_word(self, word: str) -> NDArray[np.bool_]:
        """Whether each use is of this word, in any case: [uses]."""
        number = pc.index(self._forms.column("form"), form(word)).as_py()
        matches: NDArray[np.bool_] = self._form_of_use == number
        return matches

    def rows_of(self, text: str, start: int, end: int) -> NDArray[np.int64]:
        """The uses at exactly these offsets of exactly this text."""
        documents = np.flatnonzero(pc.equal(self._texts.column("text"), text).to_numpy())
        if not len(documents):
            return np.empty(0, dtype=np.int64)
        uses = {name: self._uses.column(name).to_numpy() for name in ("document", "start", "end")}
        is_there = np.isin(uses["document"], documents) & (uses["start"] == start) & (uses["end"] == end)
        return np.flatnonzero(is_there)

    def nearest(
        self,
        query: Floats,
        top: int,
        allowed: NDArray[np.bool_] | None = None,
        view: int = 0,
        *,
        mean: Floats | None = None,
    ) -> Near:
        """The `top` uses nearest to a vector of length 1, of those allowed ([uses]); with `mean`, without it."""
        graph = self._graphs[view]
        if graph is not None and mean is None and (allowed is None or int(allowed.sum()) > EXACT_UP_TO):
            return graph.nearest(self.vectors[view], query, top, allowed)
        return nearest(self.vectors[view], query, top, allowed, mean=mean)

    def with_context(self, rows: NDArray[np.int64], reach: int, view: int = 0) -> Floats:
        """The vectors of some uses, each with the mean of the words within reach in its text: [rows, D]."""
        vectors, documents = self.vectors[view], self._document_of_use
        mixed = [np.empty((0, vectors.shape[1]), np.float32)]
        for row in rows.tolist():
            near = range(max(row - reach, 0), min(row + reach + 1, len(self)))
            same_text = [each for each in near if documents[each] == documents[row]]
            mixed.append(with_context(np.asarray(vectors[same_text]), [row], reach, same_text))
        return np.concatenate(mixed)

    def form_means(self, view: int = 0) -> tuple[list[str], Floats]:
        """Every form, and the mean of the vectors of its uses at length 1: [forms, D]."""
        vectors, forms = self.vectors[view], self._form_of_use
        sums = np.zeros((self._forms.num_rows, vectors.shape[1]), np.float32)
        for start in range(0, len(self), BLOCK):
            np.add.at(sums, forms[start : start + BLOCK], vectors[start : start + BLOCK])
        return self._forms.column("form").to_pylist(), unit(sums)

    @property
    def is_exact(self) -> bool:
        """Whether `nearest` compares every vector."""
        return all(graph is None for graph in self._graphs)

    @cached_property
    def _document_of_use(self) -> NDArray[np.int64]:
        documents: NDArray[np.int64] = self._uses.column("document").to_numpy()
        return documents

    @cached_property
    def _form_of_use(self) -> NDArray[np.int32]:
        forms: NDArray[np.int32] = self._uses.column("form").to_numpy()
        return forms


def load_index(folder: AnyPath, requested: Sequence[View] | None = None) -> UseIndex:
    """The index in a folder. It must have the views that are requested; otherwise the error names the differences."""
    folder = Path(folder)
    card = _read_card(folder)
    with damage_reported(f"The index {folder}", "Rebuild it with --force."):
        views = [view_from_json(view) for view in card["views"]]
        if not views or not isinstance(card["uses"], int):
            raise ValueError("it does not say what it holds")
    numbers = list(range(len(views))) if requested is None else [_number_of(view, views, folder) for view in requested]
    n_uses = card["uses"]
    used = ["texts.arrow", "uses.arrow", "forms.arrow", *map(vectors_name, numbers)]
    used += [name for name in map(graph_name, numbers) if n_uses > EXACT_UP_TO and (folder / name).exists()]
    with damage_reported(f"The index {folder}", "Rebuild it with --force."):
        damaged = first_damaged(folder, card.get("checksums"), used)
        if damaged is not None:
            raise ValueError(f"{damaged} is not as it was written: its checksum is another")
        return UseIndex(
            texts=_table(folder / "texts.arrow"),
            uses=_table(folder / "uses.arrow"),
            forms=_table(folder / "forms.arrow"),
            vectors=[
                _vectors(folder / vectors_name(number), (n_uses, card["views"][number]["width"])) for number in numbers
            ],
            graphs=[
                Graph.load(path) if n_uses > EXACT_UP_TO and path.exists() else None
                for path in (folder / graph_name(number) for number in numbers)
            ],
            views=[views[number] for number in numbers],
            source=card["source"],
        )


def model_of_index(folder: AnyPath) -> str | None:
    """The model that an index was made with, if the index and the model's folder exist."""
    if not (Path(folder) / CARD).is_file():
        return None
    model = str(_read_card(Path(folder)).get("model") or "")
    return model if model and Path(model).is_dir() else None


def view_to_json(view: View) -> dict[str, Any]:
    """A view as files have it."""
    return {"fingerprint": view.fingerprint, "layer": asdict(view.layer), "pool": view.pool}


def view_from_json(content: Mapping[str, Any]) -> View:
    """A view from what a file has of it."""
    layer = content["layer"]
    return View(
        fingerprint=content["fingerprint"],
        layer=LayerChoice(layer["mode"], tuple(layer["layers"]), tuple(layer["weights"])),
        pool=content["pool"],
    )


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = load_json(folder / CARD, kind=dict)
    except FileNotFoundError:
        raise InputError(
            f"There is no index in {folder}: it has no {CARD}. Name a source to build one from with --in."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / CARD} cannot be read: {error}. Rebuild the index with --force.") from error
    if card.get("format") != FORMAT:
        raise InputError(f"{folder / CARD} is not of the format that this polyseme reads ({FORMAT}). Build it again.")
    return card


def _number_of(requested: View, views: Sequence[View], folder: Path) -> int:
    """The number of the view of an index that is requested."""
    differing = [view.differences(requested) for view in views]
    for number, differs in enumerate(differing):
        if not differs:
            return number
    fewest = min(differing, key=len)
    raise ModelError(
        f"The index {folder} does not fit: it differs in {', '.join(fewest)}. Query it with the model and the settings "
        "that it was built with, or build another with --index and --in."
    )


def layer_name(layer: LayerChoice) -> str:
    """A layer as a user would write it."""
    if layer.mode == "one":
        return str(layer.layers[0])
    if layer.weights:
        return f"mix:last{len(layer.layers)}:{','.join(f'{weight:g}' for weight in layer.weights)}"
    return f"{layer.mode}:{layer.layers[0]}:{layer.layers[-1]}"


def _table(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _vectors(path: Path, shape: tuple[int, int]) -> Floats:
    if path.stat().st_size != 4 * shape[0] * shape[1]:
        raise ValueError(f"{path.name} is not of the size it should be")
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape)


def vectors_name(number: int) -> str:
    """The file of a view's vectors."""
    return f"vectors-{number}.f32"


def graph_name(number: int) -> str:
    """The file of the graph over a view's vectors."""
    return f"graph-{number}.usearch"

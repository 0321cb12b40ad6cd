"""The shards of a corpus that is being built: of every source, side and split one, all growing together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from polyseme.corpus.documents import TextSource
from polyseme.corpus.shards import SPLITS, ShardWriter, State
from polyseme.corpus.sides import PairSource
from polyseme.corpus.work import Worked

AnySource: TypeAlias = TextSource | PairSource


class Writers:
    """The shards of all sources, sides and splits, as they grow."""

    def __init__(self, folder: Path, sources: Sequence[AnySource], dtype: np.dtype[Any]) -> None:
        self._names = [source.name for source in sources]
        self._writers = {
            source.name: {
                side: {split: ShardWriter(folder, source.name, split, dtype, side) for split in SPLITS}
                for side in source.sides
            }
            for source in sources
        }

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        self._each(ShardWriter.close)

    def begin(self) -> None:
        self._each(ShardWriter.begin)

    def go_on(self, states: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bool:
        """Go on from where the shards were; False if they are not as they were then."""
        pairs = [
            (writer, State.from_json(states[name][side][split]))
            for name, its in self._writers.items()
            for side, mine in its.items()
            for split, writer in mine.items()
        ]
        if not all(writer.holds(state) for writer, state in pairs):
            return False
        for writer, state in pairs:
            writer.go_on(state)
        return True

    def n_documents(self, source: int) -> dict[str, int]:
        first = next(iter(self._writers[self._names[source]].values()))
        return {split: writer.state.counts.documents for split, writer in first.items()}

    def append(self, source: int, worked: Worked) -> None:
        for side, mine in self._writers[self._names[source]].items():
            for split, writer in mine.items():
                writer.append(worked.stretches[side][split])
                writer.flush()

    def states(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self._mapped(lambda writer: writer.state.to_json())

    def finish(self) -> dict[str, dict[str, dict[str, State]]]:
        self._each(ShardWriter.finish)
        return self._mapped(lambda writer: writer.state)

    def _mapped(self, act: Callable[[ShardWriter], Any]) -> dict[str, dict[str, dict[str, Any]]]:
        return {
            name: {side: {split: act(writer) for split, writer in mine.items()} for side, mine in its.items()}
            for name, its in self._writers.items()
        }

    def _each(self, act: Callable[[ShardWriter], None]) -> None:
        self._mapped(act)

"""An index of the uses of words: every word of every text with its vector, to be asked for the nearest ones.

An index is a folder, read through memory maps, so that one larger than memory can be asked too:

    index.json          the model's fingerprint, layers, pooling, counts, the source
    texts.arrow         id and text of each document
    uses.arrow          of each use its document, where in the text it stands, and its word's form
    vectors-N.npy       [uses, D] of layer number N of index.json, float32 at length 1
    graph-N.usearch     past a million uses, a graph over them (the extra `index`)

Up to a million uses the search is exact; past that a graph proposes, cosines are exact, and that is said.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from polyseme import files
from polyseme.bundle import Bundle
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.plots.uses import Use
from polyseme.types import Progress
from polyseme.vectors.fingerprint import differences, fingerprint
from polyseme.vectors.flow import Embedder
from polyseme.vectors.gather import Gathered, form, gather
from polyseme.vectors.layers import LayerChoice, parse_layers
from polyseme.vectors.nearest import Graph, Near, nearest, unit

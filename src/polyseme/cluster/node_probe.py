"""What a machine of a cluster has installed.

Ray sends this function as code and not by its name, so that it also runs where polyseme is not installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import socket


def describe_node() -> dict[str, str | None]:
    """The machine's name, and the versions of what results depend on; None is what is missing."""
    versions: dict[str, str | None] = {"host": socket.gethostname(), "polyseme": None, "torch": None}
    try:
        versions["polyseme"] = importlib.import_module("polyseme").__version__
        versions["torch"] = importlib.metadata.version("torch").partition("+")[0]
    except ImportError:  # PackageNotFoundError is one, too
        pass
    return versions

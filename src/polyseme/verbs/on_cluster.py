"""The option `ray` of the verbs that work row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from polyseme.api import Model
from polyseme.cluster.ray_cluster import check_cluster
from polyseme.cluster.ray_workers import RayWorkers
from polyseme.errors import OptionError
from polyseme.files.chunks import Job, Workers

Given = TypeVar("Given")


def check_workers(options: Any) -> None:
    """Refuse, before a model is loaded, what workers cannot do, and a cluster that is not there."""
    if options.ray is None:
        return
    if isinstance(options.model, Model):
        raise OptionError("Workers load the model themselves. With ray=…, give the model by its name or folder.")
    if str(options.device).startswith("cuda:"):
        raise OptionError(f"Ray gives every worker a GPU of its own. Write --device cuda instead of {options.device}.")
    check_cluster(options.ray, options.output)


def workers_of(options: Given, make_job: Callable[[Given], Job[Any, Any]], device: Any) -> Workers | None:
    """The workers that the options name, each of which makes the job of the same options; None: there are none."""
    record: Any = options
    if record.ray is None:
        return None
    without = replace(record, sources=(), progress=None, ray=None)
    return RayWorkers(record.ray, partial(make_job, without), on_gpu=device.type == "cuda")

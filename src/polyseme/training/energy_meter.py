"""The energy that a device takes.

It is measured where the GPU's driver counts it (NVML), and then it is the GPU's alone, without the machine around it.
Elsewhere it is estimated from stated watts, and called so.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from polyseme.training.energy_ledger import Rates

NVML = "libnvidia-ml.so.1"
SAMPLED_EVERY = 1.0
"""Seconds between two readings of a GPU's power, where it does not count its energy."""


class Meter:
    """The energy that this process's device takes, from now on.

    Of several processes each has its own; a run's energy is the leading one's times the number of processes.
    """

    def __init__(self, device: torch.device | str, *, rates: Rates | None = None, n_cores: int | None = None) -> None:
        device = torch.device(device)
        self.measured = False
        """Whether a counter was read, or watts were only stated."""
        rates = rates or Rates()
        on_cpu = rates.watts_per_core * (n_cores or torch.get_num_threads())
        self._watts = on_cpu if device.type == "cpu" else rates.watts_per_gpu
        self._since = time.monotonic()
        self._stopped: float | None = None
        self._read: Callable[[], float] = lambda: self._watts * (time.monotonic() - self._since)
        self._ended = threading.Event()
        counter = _counter(device, self._ended) if device.type == "cuda" else None
        if counter is not None:
            first = counter()
            self.measured = True
            self._read = lambda: counter() - first

    def joules(self) -> float:
        """Since the meter was made; up to `stop`, once that was called."""
        return self._read() if self._stopped is None else self._stopped

    def stop(self) -> float:
        """The last reading, which the meter keeps to."""
        self._stopped = self.joules()
        self._ended.set()
        return self._stopped


def _counter(device: torch.device, ended: threading.Event) -> Callable[[], float] | None:
    """The joules a GPU has taken, counted from any moment; None where the driver does not tell."""
    try:
        driver = ctypes.CDLL(NVML)
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if not _done(driver, "nvmlInit_v2") or not _knows(driver, device, handle):
        return None
    energy = ctypes.c_ulonglong()

    def joules() -> float:
        _done(driver, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(energy))
        return energy.value / 1e3

    if _done(driver, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(energy)):
        return joules
    power = ctypes.c_uint()

    def watts() -> float:
        _done(driver, "nvmlDeviceGetPowerUsage", handle, ctypes.byref(power))
        return power.value / 1e3

    if _done(driver, "nvmlDeviceGetPowerUsage", handle, ctypes.byref(power)):
        return _Sampled(watts, ended).joules
    return None


def _knows(driver: Any, device: torch.device, handle: ctypes.c_void_p) -> bool:
    """Whether NVML knows the GPU: by its UUID, since torch numbers those it may see, else by its number."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if uuid is not None:
        return _done(driver, "nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(handle))
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    number = int(visible[index]) if index < len(visible) and visible[index].isdigit() else index
    return _done(driver, "nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))


def _done(driver: Any, name: str, *arguments: Any) -> bool:
    """Whether the driver has a function, and that went well."""
    function = getattr(driver, name, None)
    return function is not None and function(*arguments) == 0


class _Sampled:
    """Energy as power times time, from a reading every second."""

    def __init__(self, watts: Callable[[], float], ended: threading.Event) -> None:
        self._watts = watts
        self._lock = threading.Lock()
        self._joules = 0.0
        self._last = (time.monotonic(), watts())
        threading.Thread(target=self._run, args=(ended,), name="polyseme-meter", daemon=True).start()

    def joules(self) -> float:
        with self._lock:
            now, power = time.monotonic(), self._watts()
            then, before = self._last
            self._joules += (now - then) * (power + before) / 2
            self._last = (now, power)
            return self._joules

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLED_EVERY):
            self.joules()

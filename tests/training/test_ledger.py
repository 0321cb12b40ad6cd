"""The ledger: sums, words, and energy that says whether it was measured."""

from __future__ import annotations

import ctypes
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from polyseme.errors import ModelError, OptionError
from polyseme.training import energy_meter
from polyseme.training.energy_ledger import JOULES_PER_KWH, Ledger, Rates, measured_peak
from polyseme.training.energy_meter import Meter

RATES = Rates(kg_per_kwh=0.5, price_per_kwh=0.2)


def session(**changes: Any) -> Ledger:
    given: dict[str, Any] = {
        "pieces": 1000,
        "flops": 6e12,
        "seconds": 2.0,
        "steps": 10,
        "device": "cpu",
        "joules": 2 * JOULES_PER_KWH,
        "measured": False,
        "peak": 6e12,
        "rates": RATES,
    }
    return Ledger.of(**{**given, **changes})


# --- one session -----------------------------------------------------------------------------------------------------


def test_energy_becomes_carbon_dioxide_and_money_by_the_rates() -> None:
    bill = session()
    assert (bill.kwh, bill.kg_co2e, bill.price, bill.currency) == (2.0, 1.0, 0.4, "USD")


def test_rented_devices_cost_by_the_hour() -> None:
    rates = Rates(price_per_device_hour=3.0, currency="EUR")
    bill = session(seconds=1800, n_devices=4, rates=rates)
    assert bill.price == pytest.approx(6.0)
    assert bill.currency == "EUR"


def test_utilization_is_of_all_devices() -> None:
    assert session().utilization == pytest.approx(0.5)
    assert session(n_devices=2).utilization == pytest.approx(0.25)
    assert session(peak=0.0).utilization is None


# --- several ---------------------------------------------------------------------------------------------------------


def test_sessions_add_up() -> None:
    first = session(measured=True)
    second = session(pieces=500, flops=3e12, seconds=4.0, steps=5, device="NVIDIA H200", n_devices=2, peak=3e12)
    both = first.add(second)
    assert (both.pieces, both.flops, both.seconds, both.steps, both.n_sessions) == (1500, 9e12, 6.0, 15, 2)
    assert (both.device, both.n_devices, both.device_seconds) == ("cpu, then NVIDIA H200", 2, 10.0)
    assert both.utilization == pytest.approx(9e12 / (2 * 6e12 + 8 * 3e12))
    assert (both.kwh, both.kwh_estimated, both.measured) == (4.0, 2.0, False)
    assert both.kg_co2e == pytest.approx(2.0)
    assert both.price == pytest.approx(0.8)


def test_the_order_of_adding_does_not_matter() -> None:
    one, two, three = session(), session(pieces=7), session(steps=3, measured=True)
    assert one.add(two).add(three) == one.add(two.add(three))


def test_a_session_whose_peak_is_unknown_leaves_the_utilization_unknown() -> None:
    assert session().add(session(peak=0.0)).utilization is None


def test_currencies_do_not_mix() -> None:
    with pytest.raises(OptionError, match="USD so far, and cannot be continued in EUR"):
        session().add(session(rates=Rates(currency="EUR")))


# --- written ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peak", [6e12, 0.0])
def test_a_ledger_goes_to_json_and_back(peak: float) -> None:
    bill = session(peak=peak).add(session(peak=peak, measured=True))
    written = json.loads(json.dumps(bill.to_json()))
    assert written["utilization"] == bill.utilization
    assert written["measured"] is False
    assert Ledger.from_json(written) == bill


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ModelError, match="'peices'"):
        Ledger.from_json({**session().to_json(), "peices": 3})


@pytest.mark.parametrize(
    ("bill", "said"),
    [
        (session(measured=True), "(measured)"),
        (session(measured=False), "(estimated)"),
        (session(measured=False).add(session(measured=False)), "(estimated)"),
        (session(measured=True).add(session(measured=False)), "(partly estimated)"),
    ],
)
def test_what_was_estimated_is_called_so(bill: Ledger, said: str) -> None:
    assert said in bill.lines()[-1]


def test_the_lines_say_what_there_is() -> None:
    assert session(n_devices=2).add(session()).lines() == [
        "20 steps, 2,000 pieces in 4.0 s in 2 sessions on 2 × cpu (500 pieces/s)",
        "1.2e+13 FLOPs (3.0 TFLOP/s, 33% of the matrix product's speed there)",
        "4.00 kWh (estimated), 2.00 kg of CO₂e, 0.800 USD",
    ]
    assert "speed there" not in "".join(session(peak=0.0).lines())


@pytest.mark.parametrize("name", ["kg_per_kwh", "price_per_device_hour", "watts_per_core"])
def test_a_rate_below_nothing_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        Rates(**{name: -1.0})


# --- energy ----------------------------------------------------------------------------------------------------------


class Clock:
    """Time that goes on only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(energy_meter, "time", made)
    return made


class Driver:
    """As much of NVML as the meter calls; status 0 is success."""

    def __init__(self, clock: Clock, *, counts: bool, tells: bool = True, knows: bool = True) -> None:
        self.clock, self.counts, self.tells, self.knows = clock, counts, tells, knows
        self.asked: list[Any] = []

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:  # noqa: N802
        self.asked.append(name)
        return 0 if self.knows else 6

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        self.asked.append(index)
        return 0 if self.knows else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:  # noqa: N802
        energy._obj.value = int(self.clock.now * 250 * 1000)
        return 0 if self.counts else 3

    def nvmlDeviceGetPowerUsage(self, handle: Any, power: Any) -> int:  # noqa: N802
        power._obj.value = int(self.clock.now * 2500)
        return 0 if self.tells else 3


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver | None, uuid: str | None = "1-2-3") -> None:
    def load(name: str) -> Driver:
        assert name == "libnvidia-ml.so.1"
        if driver is None:
            raise OSError("no such library")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    found = SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)


def test_a_cpu_is_estimated_by_its_cores(clock: Clock) -> None:
    meter = Meter("cpu", rates=Rates(watts_per_core=8.0), n_cores=4)
    clock.now += 10
    assert meter.joules() == pytest.approx(320.0)
    assert not meter.measured


def test_a_gpu_without_its_driver_is_estimated(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    meter = Meter("cuda:0", rates=Rates(watts_per_gpu=300.0))
    clock.now += 10
    assert meter.joules() == pytest.approx(3000.0)
    assert not meter.measured


@pytest.mark.parametrize("fault", [{"knows": False}, {"tells": False}])
def test_a_driver_that_does_not_tell_is_no_error(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, fault: dict[str, bool]
) -> None:
    install(monkeypatch, Driver(clock, counts=False, **fault))
    assert not Meter("cuda:0").measured


def test_a_gpu_that_counts_is_read(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(clock, counts=True)
    install(monkeypatch, driver)
    meter = Meter("cuda:1")
    clock.now += 10
    assert meter.joules() == pytest.approx(2500.0)
    assert meter.measured
    assert driver.asked == [b"GPU-1-2-3"]
    assert meter.stop() == pytest.approx(2500.0)
    clock.now += 10
    assert meter.joules() == pytest.approx(2500.0)


def test_a_gpu_that_only_tells_its_power_is_sampled(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver(clock, counts=False))
    monkeypatch.setattr(energy_meter, "SAMPLED_EVERY", 1000.0)
    meter = Meter("cuda:0")
    [thread] = [each for each in threading.enumerate() if each.name == "polyseme-meter"]
    for _ in range(5):
        clock.now += 2
        meter.joules()
    assert meter.joules() == pytest.approx(2.5 * (110**2 - 100**2) / 2)
    assert meter.measured
    meter.stop()
    thread.join(600)
    assert not thread.is_alive()


def test_a_sampled_gpu_is_looked_at_without_being_asked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(clock, counts=False)
    looks = threading.Semaphore(0)
    install(monkeypatch, driver)
    monkeypatch.setattr(energy_meter, "SAMPLED_EVERY", 0.001)
    tell = driver.nvmlDeviceGetPowerUsage

    def look(handle: Any, power: Any) -> int:
        looks.release()
        return tell(handle, power)

    monkeypatch.setattr(driver, "nvmlDeviceGetPowerUsage", look)
    meter = Meter("cuda:0")
    assert all(looks.acquire(timeout=600) for _ in range(10))
    meter.stop()


def test_gpus_without_an_id_go_by_those_that_are_visible(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(clock, counts=True)
    install(monkeypatch, driver, uuid=None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    Meter("cuda:1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    Meter("cuda:1")
    assert driver.asked == [5, 1]


# --- speed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_matrix_product_has_a_speed(dtype: torch.dtype) -> None:
    speed = measured_peak("cpu", dtype)
    assert 1e7 < speed < 1e15
    assert measured_peak(torch.device("cpu"), dtype) == speed, "measured again"

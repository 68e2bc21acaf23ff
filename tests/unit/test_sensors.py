# SPDX-License-Identifier: Apache-2.0
"""Sensors that are there, those that are not, and the energy that follows."""

import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from decode_board import DecodeBoard
from pynq.pl_server.xrt_device import XrtDevice

from fastdelta.bench import decode as decode_bench
from fastdelta.bench.decode import bench_decode
from fastdelta.cli import decode_table
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.sensors import (
    Energy,
    PowerMeter,
    Rail,
    SensorReading,
    measure_energy,
    read_sensors,
)
from fastdelta.shapes import DecodeShape

FIELDS = {
    "m12VPex": 12_100, "mPexCurr": 2_000, "m12VAux": 12_000, "mAuxCurr": 1_000, "m3v3Pex": 3_300,
    "mVccIntVol": 850, "mVccIntCurr": 10_000, "m0v85": 850, "mOnChipTemp": 61, "mFanTemp": 40,
}  # fmt: skip


class Card(XrtDevice):
    """A card of which only the sensors are known."""

    def __init__(self, **fields):
        self.info = SimpleNamespace(**{**dict.fromkeys(FIELDS, 0), **fields})

    @property
    def device_info(self):
        if self.info is None:
            raise RuntimeError("xclGetDeviceInfo2 failed")
        return self.info


def test_power_is_that_of_the_12_v_inputs():
    reading = read_sensors(Card(**FIELDS))
    assert reading.power_watts == pytest.approx(12.1 * 2 + 12)
    assert reading.rails["vccint"].watts == pytest.approx(8.5)
    assert reading.rails["3v3_pex"] == Rail(pytest.approx(3.3), None)
    assert reading.temperatures == {"fpga": 61, "fan": 40}
    record = json.loads(json.dumps(reading.to_dict()))
    assert record["rails"]["3v3_pex"] == {
        "volts": pytest.approx(3.3),
        "amperes": None,
        "watts": None,
    }


def test_what_reads_zero_is_absent():
    nothing = read_sensors(Card())
    assert nothing.power_watts is None
    assert set(nothing.rails.values()) == {Rail(None, None)}
    assert nothing.temperatures == {"fpga": None, "fan": None}
    one_input = read_sensors(Card(m12VPex=12_000, mPexCurr=1_500, m12VAux=12_000))
    assert one_input.power_watts == pytest.approx(18)
    assert read_sensors(Card(m12VPex=12_000)).power_watts is None
    silent = Card()
    silent.info = None
    assert read_sensors(silent) == SensorReading()
    assert read_sensors(SimpleNamespace()) == SensorReading()


def reading(watts):
    rail = Rail(12.0, None if watts is None else watts / 12)
    return SensorReading({"12v_pex": rail}, {"fpga": watts})


class Replay:
    """A card that draws one of these powers after the other, a second each."""

    def __init__(self, *powers):
        self.powers = list(powers)
        self.seconds = -1.0

    def sensors(self):
        self.seconds += 1.0
        return reading(self.powers.pop(0))

    def meter(self):
        """Take all readings."""
        meter = PowerMeter(self, interval=3600, clock=lambda: self.seconds)
        with meter:
            while len(self.powers) > 1:
                meter._sample()
        return meter


def test_energy_is_the_integral_of_the_power():
    energy = Replay(10, 20, 20, 40).meter().energy(tokens=5)
    assert energy.joules == pytest.approx(15 + 20 + 30)
    assert energy.seconds == 3
    assert energy.joules_per_token == pytest.approx(13)
    assert energy.watts == pytest.approx(65 / 3)
    assert energy.hottest == 40


def test_gaps_are_filled_and_nothing_is_absent():
    assert Replay(10, None, 30).meter().energy(1).joules == pytest.approx(40)
    assert Replay(None, 10, 10, None).meter().energy(1).joules == pytest.approx(30)
    for powers in ((None, None, None), (None, 10, None)):
        energy = Replay(*powers).meter().energy(7)
        assert energy.joules is energy.joules_per_token is energy.watts is None
        assert energy.to_dict()["sensors"] == "absent"
        assert energy.tokens == 7


def test_meter_reads_on_while_the_work_goes_on():
    card = SimpleNamespace(sensors=lambda: reading(30.0))
    before = threading.active_count()
    energy = measure_energy(card, lambda: time.sleep(0.01) or 3, seconds=0.3)
    assert threading.active_count() == before
    assert energy.samples >= 4
    assert energy.tokens >= 3
    assert energy.watts == pytest.approx(30)
    assert energy.seconds >= 0.3


def test_without_a_sensor_no_work_is_done():
    card = SimpleNamespace(sensors=SensorReading)
    assert measure_energy(card, lambda: pytest.fail("worked")) == Energy()


@pytest.mark.parametrize("watts", [None, 25.0])
def test_bench_reports_joules_per_token_or_their_absence(monkeypatch, watts):
    shape = DecodeShape(head_dim=16, qk_heads=1, group_ratio=1, h_iter=1, bus_width=128)
    monkeypatch.setattr("fastdelta.sensors.MEASURED_SECONDS", 0.0)

    def model_engine(kernel, *, board, shape, a_log, dt_bias, **_options):
        assert (kernel, board) == ("decode", "u55c")
        card = DecodeBoard(shape)
        card.reading = reading(watts)
        engine = DecodeAccelerator(card)
        engine.configure_all(a_log, dt_bias, 0)
        return engine

    monkeypatch.setattr(decode_bench.Accelerator, "open", model_engine)
    report = bench_decode(shape, board="u55c", tokens=24)
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))["energy"]
    shown = str([column._cells for column in decode_table([report]).columns])
    if watts is None:
        assert record["sensors"] == "absent"
        assert record["joules_per_token"] is None
        assert "no sensors" in shown
    else:
        assert record["watts"] == pytest.approx(25)
        assert record["tokens"] % 24 == 0
        assert np.isclose(record["joules_per_token"], record["joules"] / record["tokens"])
        assert "no sensors" not in shown
    assert record["hottest"] == watts

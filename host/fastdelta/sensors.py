# SPDX-License-Identifier: Apache-2.0
"""Power and temperature of a card, as PYNQ reads them from XRT, and energy over time.

A sensor that nobody fills reads 0 in XRT: such a value is absent here, never 0. What a card draws
is the sum of its 12 V inputs; XRT's structure has no current of the 3.3 V input.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

DEFAULT_INTERVAL: Final = 0.05
MEASURED_SECONDS = 2.0
"""How long `measure_energy` runs: the sensors of a card are renewed some ten times a second."""

_MILLI: Final = 1e-3
_INPUTS: Final = ("12v_pex", "12v_aux")

# Fields of XRT's xclDeviceInfo2: millivolts and milliamperes, or degrees Celsius.
_RAILS: Final[Mapping[str, tuple[str, str | None]]] = {
    "12v_pex": ("m12VPex", "mPexCurr"),
    "12v_aux": ("m12VAux", "mAuxCurr"),
    "3v3_pex": ("m3v3Pex", None),
    "vccint": ("mVccIntVol", "mVccIntCurr"),
    "0v85": ("m0v85", None),
}
_TEMPERATURES: Final[Mapping[str, str]] = {"fpga": "mOnChipTemp", "fan": "mFanTemp"}


@dataclass(frozen=True)
class Rail:
    """One supply; None: absent."""

    volts: float | None
    amperes: float | None

    @property
    def watts(self) -> float | None:
        """Voltage times current."""
        if self.volts is None or self.amperes is None:
            return None
        return self.volts * self.amperes


@dataclass(frozen=True)
class SensorReading:
    """What the sensors of a card say at one time.

    Attributes
    ----------
    rails : mapping
        Supplies by name; empty for a card without sensors, such as a simulated one.
    temperatures : mapping
        Degrees Celsius by place; None: absent.
    """

    rails: Mapping[str, Rail] = field(default_factory=dict)
    temperatures: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def power_watts(self) -> float | None:
        """What the card draws from the 12 V inputs that have sensors; None if none has."""
        inputs = [self.rails[name].watts for name in _INPUTS if name in self.rails]
        present = [watts for watts in inputs if watts is not None]
        return sum(present) if present else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; what is absent is null."""
        return {
            "power_watts": self.power_watts,
            "rails": {
                name: {**asdict(rail), "watts": rail.watts} for name, rail in self.rails.items()
            },
            "temperatures": dict(self.temperatures),
        }


def read_sensors(device: Any) -> SensorReading:
    """Read the sensors of a card through PYNQ.

    Parameters
    ----------
    device
        PYNQ device; one that does not come from XRT has no sensors.
    """
    try:
        info = device.device_info
    except (AttributeError, RuntimeError):  # not XRT's, or XRT cannot tell
        return SensorReading()
    rails = {
        name: Rail(_value(info, volts, _MILLI), _value(info, amperes, _MILLI))
        for name, (volts, amperes) in _RAILS.items()
    }
    temperatures = {place: _value(info, name, 1.0) for place, name in _TEMPERATURES.items()}
    return SensorReading(rails, temperatures)


def _value(info: Any, name: str | None, scale: float) -> float | None:
    raw = 0 if name is None else getattr(info, name, 0)
    return float(raw) * scale if raw > 0 else None


class HasSensors(Protocol):
    """A card whose sensors can be read."""

    def sensors(self) -> SensorReading:
        """Read the sensors."""


@dataclass(frozen=True)
class Energy:
    """Energy that a card took for a number of tokens; None: the card has no sensor of its power.

    Attributes
    ----------
    joules : float or None
        Integral of the power, which includes what the card takes when idle.
    seconds : float
        Over this time.
    tokens : int
        Tokens done meanwhile.
    samples : int
        Readings of the power.
    hottest : float or None
        Highest temperature of the FPGA, degrees Celsius.
    """

    joules: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    samples: int = 0
    hottest: float | None = None

    @property
    def joules_per_token(self) -> float | None:
        """Energy a token."""
        return None if self.joules is None or not self.tokens else self.joules / self.tokens

    @property
    def watts(self) -> float | None:
        """Mean power."""
        return None if self.joules is None or not self.seconds else self.joules / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; what is absent is null."""
        return {
            "sensors": "absent" if self.joules is None else "present",
            "joules_per_token": self.joules_per_token,
            "watts": self.watts,
            **asdict(self),
        }


class PowerMeter:
    """Reads the power of a card again and again while its ``with`` block runs.

    Parameters
    ----------
    card : HasSensors
        The card.
    interval : float
        Seconds between readings.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        card: HasSensors,
        interval: float = DEFAULT_INTERVAL,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._card = card
        self._interval = interval
        self._clock = clock
        self._samples: list[tuple[float, float | None]] = []
        self._temperatures: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="power meter", daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._sample()

    def _sample(self) -> None:
        reading = self._card.sensors()
        self._samples.append((self._clock(), reading.power_watts))
        temperature = reading.temperatures.get("fpga")
        if temperature is not None:
            self._temperatures.append(temperature)

    def energy(self, tokens: int) -> Energy:
        """Return the energy of the ``with`` block, by the trapezoidal rule.

        A reading that is absent leaves a gap, over which its neighbours are joined; without any,
        or with one alone, the energy is absent.
        """
        present = [(when, watts) for when, watts in self._samples if watts is not None]
        seconds = self._samples[-1][0] - self._samples[0][0]
        hottest = max(self._temperatures, default=None)
        if len(present) < 2:
            return Energy(None, seconds, tokens, len(present), hottest)
        joules = sum(
            (later - earlier) * (one + other) / 2
            for (earlier, one), (later, other) in itertools.pairwise(present)
        )
        covered = present[-1][0] - present[0][0]
        # A gap at an end is taken to have the mean power.
        joules *= seconds / covered if covered > 0 else 1.0
        return Energy(joules, seconds, tokens, len(present), hottest)


def measure_energy(
    card: HasSensors, work: Callable[[], int], seconds: float | None = None
) -> Energy:
    """Repeat some work and return the energy that it took; none is done without a sensor.

    Parameters
    ----------
    card : HasSensors
        The card that works.
    work : callable
        Does it once and returns how many tokens that were.
    seconds : float
        How long to repeat it; by default `MEASURED_SECONDS`.
    """
    if card.sensors().power_watts is None:
        return Energy()
    limit = MEASURED_SECONDS if seconds is None else seconds
    tokens, began = 0, time.perf_counter()
    with PowerMeter(card) as meter:
        while not tokens or time.perf_counter() - began < limit:
            tokens += work()
    return meter.energy(tokens)

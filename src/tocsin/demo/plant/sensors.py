"""A network of sensors, some in each hall, that send a reading a second. Now and then a switch fails.

Then the sensors of its hall that hang on it fall silent one after the other, and come back together. Drawn by chance
with a seed; nothing here knows a bus or a clock.
"""

from __future__ import annotations

import random
from typing import Final

from tocsin.model import Event

__all__ = ["Hall", "halls"]

_SENSORS: Final = ("s1", "s2", "s3")
_GAP: Final = 6
"""Seconds a failure lasts: longer than the wait of `sensor_gap`."""
_CALM: Final = (25, 45)  # seconds between two failures
_FIRST: Final = {"north": 9, "south": 34}


class Hall:
    """A hall with its sensors."""

    def __init__(self, name: str, first: int, chance: random.Random) -> None:
        """Its first failure comes after so many seconds."""
        self.name, self._chance = name, chance
        self._second, self._fails = 0, first
        self._silent: tuple[str, ...] = ("s2", "s3")

    def step(self) -> list[Event]:
        """What its sensors say in the next second."""
        since = self._second - self._fails
        if since == _GAP:
            self._fails = self._second + self._chance.randint(*_CALM)
            self._silent = tuple(self._chance.sample(_SENSORS, self._chance.choice((1, 2))))
        self._second += 1
        # The second of two is silent a second later than the first.
        lost = {sensor for place, sensor in enumerate(self._silent) if place <= since < _GAP}
        return [self._reading(sensor) for sensor in _SENSORS if sensor not in lost]

    def _reading(self, sensor: str) -> Event:
        reading = {"hall": self.name, "sensor": sensor, "temp": round(self._chance.gauss(21, 0.5), 1)}
        return Event("sensor.reading", f"hall/{self.name}", data=reading)


def halls(seed: int) -> list[Hall]:
    """Those of the plant."""
    return [Hall(name, first, random.Random(f"{seed}/{name}")) for name, first in _FIRST.items()]

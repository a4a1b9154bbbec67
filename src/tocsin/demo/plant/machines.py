"""Machines that measure: start, a value a second, end. Some fall silent, some drift, some end and start again.

A machine is a list of steps, one a second, drawn by chance with a seed: the same seed gives the same plant. Nothing
here knows a bus or a clock.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final, Literal

from tocsin.model import Event

__all__ = ["Machine", "Temper", "machines"]

Temper = Literal["steady", "silent", "drifting", "ending"]
_Step = Literal["start", "value", "rise", "nothing", "end"]

NOMINAL: Final = 9.0
_NOISE, _RISE = 0.02, 0.2
_CALM: Final = (14, 30)  # values between two troubles


def _times(count: int, step: _Step) -> list[_Step]:
    return [step] * count


# Each trouble outlasts the limit of `supervision`, but a drift, which is three values one above the other.
_TROUBLE: Final[dict[Temper, list[_Step]]] = {
    "steady": [],
    "silent": _times(6, "nothing"),
    "drifting": _times(3, "rise"),
    "ending": ["end", *_times(7, "nothing"), "start"],
}
_TEMPERS: Final[dict[str, tuple[Temper, int]]] = {
    "m1": ("steady", 0),
    "m2": ("steady", 0),
    "m3": ("silent", 4),
    "m4": ("steady", 0),
    "m5": ("ending", 9),
    "m6": ("drifting", 6),
    "m7": ("steady", 0),
    "m8": ("silent", 24),
}
"""Each with the number of values before its first trouble, so that a minute shows one of each."""


class Machine:
    """One machine."""

    def __init__(self, name: str, temper: Temper, calm: int, chance: random.Random) -> None:
        """Switch it on; its first trouble comes after `calm` values."""
        self.name, self._temper, self._chance = name, temper, chance
        self._plan: deque[_Step] = deque(["start", *_times(calm, "value"), *_TROUBLE[temper]])
        self._risen = 0

    def step(self) -> Event | None:
        """What it says in its next second; None: nothing."""
        if not self._plan:
            self._plan += _times(self._chance.randint(*_CALM), "value") + _TROUBLE[self._temper]
        match self._plan.popleft():
            case "nothing":
                return None
            case "start":
                return self._say("machine.start", {})
            case "end":
                return self._say("machine.end", {})
            case "rise":
                self._risen += 1
            case "value":
                self._risen = 0
        value = self._chance.gauss(NOMINAL + self._risen * _RISE, _NOISE)
        return self._say("machine.value", {"value": round(value, 3)})

    def _say(self, type: str, more: dict[str, float]) -> Event:
        return Event(type, f"line/{self.name}", data={"machine": self.name, **more})


def machines(seed: int) -> list[Machine]:
    """Those of the plant, each with a chance of its own."""
    return [Machine(name, temper, calm, random.Random(f"{seed}/{name}")) for name, (temper, calm) in _TEMPERS.items()]

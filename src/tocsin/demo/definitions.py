"""The demo's composite events, and where each runs. The texts are what a user would write.

On the node is what must be told at once; on Spark what looks at whole streams. `hall_blind`, on Spark, is made of
`sensor_gap`, which the node looks for: a name means the same in both places.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tocsin.client import Bus
from tocsin.demo.supervision import BACK_TO_NORMAL, POSSIBLE_STOP

__all__ = ["DEFINITIONS", "Wanted", "define", "names"]


class Wanted(NamedTuple):
    """A definition, and where it is to run."""

    text: str
    context: Literal["recent", "chronicle"]
    placement: Literal["node", "spark"]


DEFINITIONS: Final = {
    "possible_stop": Wanted(POSSIBLE_STOP, "recent", "node"),
    "back_to_normal": Wanted(BACK_TO_NORMAL, "chronicle", "node"),
    "sensor_gap": Wanted("PLUS([type = 'sensor.reading'] AS last, 3 SECONDS) BY hall, sensor", "recent", "node"),
    "hall_blind": Wanted(
        "SEQ(sensor_gap AS first, sensor_gap AS second) WITHIN 5 SECONDS BY hall", "chronicle", "spark"
    ),
    "drift": Wanted(
        "SEQ([type = 'machine.value'] AS a, [type = 'machine.value'] AS b, [type = 'machine.value'] AS c) "
        "WITHIN 5 SECONDS BY machine WHERE b.value > a.value + 0.1 AND c.value > b.value + 0.1",
        "chronicle",
        "spark",
    ),
}


async def define(bus: Bus, *, spark: bool) -> None:
    """Define them; without Spark only those of the node."""
    for name, wanted in DEFINITIONS.items():
        if spark or wanted.placement == "node":
            await bus.define(name, wanted.text, context=wanted.context, placement=wanted.placement)


def names(placement: str) -> str:
    """Those of a place, for people."""
    return ", ".join(name for name, wanted in DEFINITIONS.items() if wanted.placement == placement)

"""The demo's plant: the same seed is the same plant, and within a minute it has one of every trouble."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tocsin import Detector
from tocsin.demo.definitions import DEFINITIONS
from tocsin.demo.plant.machines import machines
from tocsin.demo.plant.sensors import halls
from tocsin.model import Event

BEGUN = datetime(2026, 11, 17, 8, tzinfo=UTC)


def said(seed: int, seconds: int) -> list[Event]:
    """What the plant says, with times."""
    lines, network = machines(seed), halls(seed)
    found: list[Event] = []
    for second in range(seconds):
        spoken = [event for machine in lines if (event := machine.step()) is not None]
        spoken += [event for hall in network for event in hall.step()]
        found += [
            event.replace(time=BEGUN + timedelta(seconds=second, milliseconds=place))
            for place, event in enumerate(spoken)
        ]
    return found


def test_the_same_seed_is_the_same_plant() -> None:
    first, second, other = ([(event.type, event.time, event.data) for event in said(seed, 120)] for seed in (7, 7, 8))
    assert first == second != other


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_the_first_half_minute_has_all_that_is_looked_for(seed: int) -> None:
    """Each definition finds something, and nothing is found that was not done."""
    detector = Detector()
    for name, wanted in DEFINITIONS.items():
        detector.define(name, wanted.text, context=wanted.context)
    found = detector.feed_batch(said(seed, 30))
    keys = {name: [event.data["key"] for event in found if event.type == name] for name in DEFINITIONS}
    assert keys["possible_stop"][0] == {"machine": "m3"} and keys["back_to_normal"][0] == {"machine": "m3"}
    assert {"machine": "m5"} not in keys["possible_stop"], "its measuring has ended"
    assert {tuple(key.values()) for key in keys["drift"]} == {("m6",)}
    assert keys["hall_blind"] == [{"hall": "north"}]
    assert [key["sensor"] for key in keys["sensor_gap"]] == ["s2", "s3"]


def test_troubles_come_again() -> None:
    kinds = Counter(event.type for event in said(7, 300))
    assert kinds["machine.end"] > 3 and kinds["machine.start"] > 10
    assert kinds["machine.value"] > 8 * 200 and kinds["sensor.reading"] > 6 * 200

"""A plant for `make cluster`: people and programs that want to hear of things, and the things that happen there."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tocsin.model import Event

__all__ = ["events", "subscriptions"]

_SITES = ("zagreb", "graz", "brno", "gdansk", "porto")
_PEOPLE = ("ana", "ben", "chloe", "dario", "emil", "fatima", "goran", "hana", "igor", "jana")


def subscriptions(draw: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """People and programs saying what they want to hear of: name and filter text."""
    for number in range(count):
        who = f"{draw.choice(_PEOPLE)}-{number}"
        machine, site = f"m{draw.randrange(400)}", draw.choice(_SITES)
        yield (
            who,
            draw.choice(
                (
                    f"type = 'machine.value' AND machine = '{machine}' AND value > {draw.uniform(8, 12):.2f}",
                    f"type = 'machine.value' AND site = '{site}' AND NOT value < {draw.uniform(9, 12):.1f}",
                    f"type = 'machine.value' AND machine IN ('{machine}', 'm{draw.randrange(400)}') AND temp >= 78",
                    f"type LIKE 'door.%' AND site = '{site}' AND badge IS NULL",
                    f"type = 'door.opened' AND door = '{site}/{draw.randrange(40)}' AND hour NOT BETWEEN 6 AND 19",
                    f"priority >= 9 AND site = '{site}'",
                    f"type = 'alarm' AND text RLIKE '(?i)(fire|smoke)' AND distance_km(lat, lon, "
                    f"{draw.uniform(45, 48):.3f}, {draw.uniform(14, 17):.3f}) < {draw.uniform(5, 25):.0f}",
                )
            ),
        )


def events(draw: random.Random) -> Iterator[Event]:
    """A plant at work: readings mostly, doors now and then, an alarm once in a while."""
    while True:
        site = draw.choice(_SITES)
        kind = draw.random()
        if kind < 0.85:
            reading = {
                "machine": f"m{draw.randrange(400)}",
                "site": site,
                "value": round(draw.gauss(9, 1), 3),
                "temp": round(draw.gauss(70, 4), 1),
            }
            yield Event("machine.value", f"plant/{site}", data=reading)
        elif kind < 0.99:
            door = {"door": f"{site}/{draw.randrange(40)}", "site": site, "hour": draw.randrange(24)}
            if draw.random() < 0.7:
                door["badge"] = draw.randrange(1000)
            yield Event("door.opened", f"gate/{site}", data=door)
        else:
            alarm = {
                "site": site,
                "text": draw.choice(("Smoke in hall 2", "fire door blocked", "pressure low")),
                "lat": round(draw.uniform(45, 48), 4),
                "lon": round(draw.uniform(14, 17), 4),
            }
            yield Event("alarm", f"safety/{site}", data=alarm, priority=9)

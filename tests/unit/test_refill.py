"""Looking for a lane's events among those in memory takes turns: one dear filter does not hold up the node."""

from __future__ import annotations

from tests.helpers import ids, numbered, take, testing
from tocsin.delivery import refill
from tocsin.delivery.lane import ANY_LEVEL, Lane, LaneRecord
from tocsin.model import Event

DEAR = " OR ".join(f"n BETWEEN {number} AND {number + 1}" for number in range(-2000, -1000)) + " OR n > 2990"


def test_a_look_ends_in_time_and_says_how_far_it_got() -> None:
    lane = Lane(LaneRecord("1", DEAR, 1, 0), by_priority=False)
    events = [Event("a", "b", data={"n": number}, offset=number) for number in range(2801, 3001)]
    seen, last = list[int | None](), 2800
    turns = 0
    while last < 3000:
        found = refill.sift(lane, [ANY_LEVEL], events[last - 2800 :])
        assert found.last > last
        turns, last = turns + 1, found.last
        seen += [each.offset for each in found.matches]
    assert turns > 5  # all together they take many times as long
    assert seen == list(range(2991, 3001))


async def test_a_dear_filter_finds_its_past() -> None:
    async with testing.node() as bus:
        await bus.publish_many(numbered(21, 2980))
        sub = await bus.subscribe(DEAR, past=100)
        assert ids(await take(bus, sub)) == [str(number) for number in range(2991, 3001)]

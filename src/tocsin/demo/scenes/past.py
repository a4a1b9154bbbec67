"""A late subscriber: comes long after the beginning, with a filter nobody had before, and is told the past first."""

from __future__ import annotations

from typing import Final

from tocsin.demo.stage import Stage
from tocsin.journal.bounds import last

__all__ = ["late"]

_PAST: Final = 10
_LIVE: Final = 3
_FILTERS: Final = (
    "type = 'machine.value' AND machine = 'm2'",
    "type = 'sensor.reading' AND hall = 'south' AND temp > 21",
    "type = 'machine.value' AND value > 9.02",
    "type = 'machine.value' AND machine IN ('m1', 'm7') AND value < 9",
)


async def late(stage: Stage) -> None:
    """Subscribe with `past=last(10)`, take what was and some of what comes."""
    filter = stage.chance.choice(_FILTERS)
    name = "auditor"
    bus = stage.bus.as_user(name)
    async with await bus.subscribe(filter, consumer=name, past=last(_PAST), order="journal") as sub:
        offsets: list[int] = []
        replayed = 0
        while len(offsets) < _PAST + _LIVE:
            delivery = await sub.next(timeout=30)
            replayed += delivery.replayed
            offsets.append(delivery.offset)
            await delivery.ack()
    await bus.forget(name)  # who comes next time has never been here
    if replayed == _PAST and offsets == sorted(set(offsets)):
        stage.promises.saw("past")
        stage.story.tell(
            f"an auditor comes late and asks for {filter}: is told {_PAST} from the past (offsets {offsets[0]} to "
            f"{offsets[_PAST - 1]}), then what is live ({offsets[_PAST]} on)",
            "subscribe(…, past=last(10)): the journal remembers, so also a filter nobody had before has its past. "
            "No gap and no repetition where it meets the present.",
            tone="good",
            topic="past",
        )

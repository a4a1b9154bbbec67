"""Quality control: asks for values above a limit, whichever machine they are of, and hears of no others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from tocsin.demo.stage import Stage

__all__ = ["FILTER", "control"]

FILTER: Final = "type = 'machine.value' AND value > 9.3"


async def control(stage: Stage) -> None:
    """Hear of what is too high until it is cancelled."""
    sub = await stage.bus.as_user("quality").subscribe(FILTER, consumer="quality")
    async for delivery in sub:
        event = delivery.event
        if not delivery.notice:
            stage.promises.saw("flow")
            late = (datetime.now(UTC) - event.arrived).total_seconds() if event.arrived is not None else 0.0
            stage.story.tell(
                f"quality control hears of {event.data['machine']} = {event.data['value']}, {late * 1000:.0f} ms after "
                f"it was stored; it asked for value > 9.3",
                "A subscription is a condition in SQL over what events contain. An index finds who wants an event, "
                "also among a million such wishes.",
                topic="quality",
                once=True,
            )
        await delivery.ack()

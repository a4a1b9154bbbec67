"""An alert overtakes what was queued before it: a slow printer has reports to print, and then there is smoke."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["overtaking"]

_REPORTS: Final = 16
_PACE: Final = 0.3  # seconds to print one
_BEFORE: Final = 4  # reports printed before there is smoke


async def overtaking(stage: Stage) -> None:
    """Queue reports, raise an alert behind them, and see which comes first."""
    bus, hall = stage.bus.as_user("office"), stage.bus.as_user("hall")
    wanted = "type = 'report' OR type = 'smoke'"
    # One at a time, so that the queue is the node's and not the printer's.
    async with await stage.bus.as_user("printer").subscribe(wanted, consumer="printer", max_in_flight=1) as queue:
        await bus.publish_many([Event("report", "office", data={"page": n + 1}, priority=3) for n in range(_REPORTS)])
        stage.story.tell(f"the office queues {_REPORTS} reports at a slow printer, priority 3")
        last = alert = 0
        for printed in range(_REPORTS + 1):
            if printed == _BEFORE:
                smoke = Event("smoke", "hall/2", priority=10, ttl=20, data={"hall": 2})
                alert = (await hall.publish(smoke)).offset or 0
            delivery = await queue.next(timeout=30)
            if delivery.event.type == "smoke":
                left = _REPORTS - printed
                if last < alert and left:
                    stage.promises.saw("overtaking")
                    stage.story.tell(
                        f"SMOKE in hall 2, priority 10: printed at once, before {left} reports that came earlier",
                        "Higher priority first among all that is not delivered yet, older first within one. The "
                        "reports wait; nothing is lost.",
                        tone="alert",
                        topic="overtaking",
                    )
            else:
                last = delivery.offset
                await asyncio.sleep(_PACE)
            await delivery.ack()

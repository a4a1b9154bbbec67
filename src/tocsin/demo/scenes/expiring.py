"""Time to live: Emil is away; what was meant for the next seconds only is not told to him when he comes back."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["expiring"]

_TTL: Final = 2.0


async def expiring(stage: Stage) -> None:
    """Publish two notes while their reader is away, of which one does not last until he is back."""
    emil, canteen = stage.bus.as_user("emil"), stage.bus.as_user("canteen")
    await (await emil.subscribe("type = 'note'", consumer="emil")).close()
    soup = Event("note", "canteen", data={"text": "soup is served"}, ttl=_TTL)
    shift = Event("note", "canteen", data={"text": "you have the early shift"})
    await canteen.publish_many([soup, shift])
    stage.story.tell(f"two notes for emil, who is away; one lives for {_TTL:.0f} s")
    await asyncio.sleep(_TTL + 0.5)
    async with await emil.subscribe("type = 'note'", consumer="emil") as sub:
        delivery = await sub.next(timeout=30)
        await delivery.ack()
    status = await canteen.status(soup.id)
    had = status.delivered  # who looks at alerts on the page may have got it in time
    if delivery.event.id == shift.id and status.state == "expired" and "emil" not in had:
        stage.promises.saw("expired")
        stage.story.tell(
            f"emil is back and reads “{shift.data['text']}”; the soup is not mentioned any more",
            "Time to live is looked at when an event is matched and again when it is handed out. What is expired is "
            "never delivered, and its status says so.",
            tone="good",
            topic="expired",
        )

"""The overview of machines: hears them in journal order, and tells when one is something else than it was."""

from __future__ import annotations

from typing import Final

from tocsin.demo.stage import Stage
from tocsin.demo.story import Tone
from tocsin.demo.supervision import FILTER, LIMIT, Change, State, Supervision

__all__ = ["watch"]

_WHY: Final[dict[State, str]] = {
    "possible stop": (
        "Nobody publishes silence. possible_stop is a composite event: a wait that each value of a machine begins "
        "anew, and that only silence lets end. It runs on the node."
    ),
    "normal": "The next value ends the stop: back_to_normal is made of possible_stop, by name.",
    "inactive": "A machine that ends its measuring is silent too, but is no stop: the definition says so.",
}
_TONES: Final[dict[State, Tone]] = {"possible stop": "warning", "normal": "good", "inactive": "plain"}
_PROMISED: Final[dict[State, str]] = {"possible stop": "stop", "normal": "normal", "inactive": "inactive"}
_SAYS: Final[dict[State, str]] = {
    "possible stop": f"has sent nothing for {LIMIT} s: possible stop",
    "normal": "sends values again: back to normal",
    "inactive": "has ended its measuring: inactive",
}


async def watch(stage: Stage, overview: Supervision) -> None:
    """Keep an overview up to date until it is cancelled."""
    bus = stage.bus.as_user("overview")
    sub = await bus.subscribe(FILTER, consumer="overview", order="journal")
    async for batch in sub.batches(100):
        for delivery in batch:
            if not delivery.notice and (change := overview.hear(delivery.event)) is not None:
                _tell(stage, change)
        await batch.ack()


def _tell(stage: Stage, change: Change) -> None:
    if change.before is None:
        return  # at the beginning all are normal
    if change.now == "normal" and change.before == "inactive":
        stage.story.tell(f"{change.machine} measures again", tone="good")
        return
    stage.promises.saw(_PROMISED[change.now])
    what, why = _SAYS[change.now], _WHY[change.now]
    stage.story.tell(f"{change.machine} {what}", why, tone=_TONES[change.now], topic=change.now)

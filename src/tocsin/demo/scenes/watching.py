"""Composite events as they are found, by the node or by Spark, and the explanation of why Spark's are there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from tocsin.composite.explain import Explanation
from tocsin.demo.definitions import DEFINITIONS
from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["reasons", "watch"]

_PROMPT: Final = 3.0  # seconds; what took Spark longer happened before it was up
_WHY: Final = {
    "sensor_gap": "The same wait as for machines, for each sensor of each hall. The node tells it within milliseconds.",
    "hall_blind": (
        "Two gaps of one hall, close together. It is made of sensor_gap by name, runs on Spark while that runs on the "
        "node, and means the same as if both ran in one place."
    ),
    "drift": (
        "Three values of one machine, each above the one before. Spark reads the journal as a stream of micro-batches "
        "and stores what it finds there as an event like any other, once."
    ),
}


async def watch(stage: Stage) -> None:
    """Tell of each until it is cancelled."""
    names = ", ".join(f"'{name}'" for name in DEFINITIONS)
    bus = stage.bus.as_user("watch")
    sub = await bus.subscribe(f"type IN ({names})", consumer="watch", order="journal")
    async for delivery in sub:
        event = delivery.event
        if not delivery.notice:
            place = DEFINITIONS[event.type].placement
            stage.promises.saw(place)
            if event.type in _WHY:
                _tell(stage, event)
            if place == "spark":
                _explain(stage, event, await bus.explain(event.id))
        await delivery.ack()


def _tell(stage: Stage, event: Event) -> None:
    key = event.data["key"]
    if event.type == "sensor_gap":
        what = f"sensor {key['sensor']} in hall {key['hall']} sends nothing: sensor_gap"
        stage.story.tell(what, _WHY[event.type], tone="warning", topic=event.type)
        return
    subject = f"hall {key['hall']} is blind" if event.type == "hall_blind" else f"{key['machine']} drifts"
    late = (datetime.now(UTC) - event.time).total_seconds() if event.time is not None else 0.0
    when = f"found {late:.1f} s after it happened"
    if late > _PROMPT:
        when = f"{late:.0f} s ago, while Spark was not ready. Nothing is missed"
    what = f"Spark finds {event.type}: {subject}; {when}"
    stage.story.tell(what, _WHY[event.type], tone="spark", topic=event.type)


def _explain(stage: Stage, event: Event, explanation: Explanation) -> None:
    stage.promises.saw("why")
    stage.story.tell(
        f"why {event.type}? {reasons(explanation)}",
        "Worked out from the event and its definition alone. On the page: Definitions, then Why? Or in a terminal: "
        f"{stage.command} explain {event.id} --url {stage.url}",
        topic=f"why {event.type}",
        once=True,
    )


def reasons(explanation: Explanation) -> str:
    """An explanation in two sentences; `str()` of it has everything."""
    parts = "; ".join(f"{part.name} {_shown(part.event)}at offset {part.offset}" for part in explanation.parts)
    if explanation.completed_by is None:
        return f"{parts}. Nothing came that would have ended the wait."
    return f"{parts}. {explanation.missing}"


def _shown(event: Any) -> str:
    data = event.data if event is not None and isinstance(event.data, dict) else {}
    return f"= {data['value']} " if "value" in data else f"{data['sensor']} " if "sensor" in data else ""

"""How Spark is: asked of the node every second, told when it changes, and while its JVM warms up also in between."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tocsin.demo.stage import Stage

__all__ = ["Warmth", "watch"]

_PATIENCE: Final = 5.0
_EVERY: Final = 1.0


@dataclass
class Warmth:
    """What was heard of the pipeline last."""

    state: str = "starting"
    status: dict[str, Any] = field(default_factory=dict)
    since: float = 0.0
    """When it came up, in seconds since the demo began."""

    @property
    def is_lost(self) -> bool:
        """Will it never come?"""
        return self.state in ("unfit", "none")


async def watch(stage: Stage, warmth: Warmth) -> None:
    """Keep up with it until it is cancelled."""
    place = f"{stage.url.replace('ws', 'http', 1)}/pipeline"
    stage.story.tell(
        "Spark starts beside the node: its JVM warms up, half a minute or so. Nobody waits for it",
        "tocsin up runs both. Definitions placed on Spark begin where they were made: what happens while it warms up "
        "is found later.",
        tone="spark",
    )
    while True:
        try:
            warmth.status = await asyncio.to_thread(_ask, place)
        except (OSError, msgspec.DecodeError):  # the node ends, or is very busy
            await asyncio.sleep(_EVERY)
            continue
        before, warmth.state = warmth.state, str(warmth.status["state"])
        if warmth.state != before:
            _tell(stage, warmth)
        await asyncio.sleep(_EVERY)


def _ask(place: str) -> dict[str, Any]:
    with urllib.request.urlopen(place, timeout=_PATIENCE) as answer:
        found: dict[str, Any] = msgspec.json.decode(answer.read())
        return found


def _tell(stage: Stage, warmth: Warmth) -> None:
    trouble = warmth.status.get("trouble") or {}
    said = " ".join(filter(None, (trouble.get("message"), trouble.get("help"))))
    match warmth.state:
        case "up":
            warmth.since = stage.promises.elapsed
            stage.story.tell(
                f"Spark {warmth.status['spark']} is up, after {warmth.since:.0f} s, and begins with what it has missed",
                "tocsin up --master makes it a cluster: the same definitions, the same answers.",
                tone="spark",
            )
        case "unfit" | "none":
            stage.story.tell(
                "There will be no Spark; the rest goes on without it",
                said or "This node was started without a pipeline. tocsin doctor says what is amiss.",
                tone="alert",
            )
        case "waiting":
            stage.story.tell("Spark has ended, and is started again", said, tone="warning")

"""Scenes of the demo with an audience: who gives a name on the page is a consumer, and may get what is published."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import tocsin
from tocsin.demo.promises import Promises
from tocsin.demo.scenes import expiring
from tocsin.demo.stage import Stage
from tocsin.demo.story import Line, Story


def test_what_expires_is_shown_also_if_a_visitor_saw_it_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "_TTL", 0.2)
    told: list[Line] = []

    async def visit(bus: Any) -> None:
        async with await bus.as_user("visitor").subscribe("ttl IS NOT NULL", consumer="visitor") as seen:
            async for delivery in seen:
                await delivery.ack()

    async def main() -> None:
        promises = Promises(spark=False)
        async with tocsin.connect("memory:", name="demo") as bus:
            story = Story(lambda: promises.elapsed, told.append)
            visitor = asyncio.create_task(visit(bus))
            await asyncio.sleep(0)
            await expiring.expiring(Stage("ws://nowhere", bus, story, promises, random.Random(1), "tocsin"))
            visitor.cancel()
        assert promises.seen["expired"].times == 1

    asyncio.run(main())
    assert "the soup is not mentioned any more" in told[-1].what

"""Nodes that detect composite events, killed between any two of: append, detect, append what was detected, checkpoint.

Afterwards the journal must hold what one detector finds in one go over all its events: the same, in the same order,
each once; and for one definition what a few lines written for it find.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import take, testing
from tocsin.composite.detector import SOURCE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

NEVER = 10**9
POINTS = [point for point in testing.crash_points if point.startswith("detect-")] + ["before-commit", "after-commit"]
Live = Callable[..., dict[str, Any]]


async def _stored(url: str) -> tuple[list[tocsin.Event], list[Any]]:
    """Everything in the journal when all is detected that can be; and the definitions."""
    async with tocsin.connect(url, name="checker") as bus:
        await testing.settled(bus)
        sub = await bus.subscribe("TRUE", past=tocsin.retained(), order="journal", system=True, max_in_flight=1_000_000)
        return [d.event for d in await take(bus, sub)], await bus.definitions()


def check(url: str, published: list[str]) -> int:
    """Compare; returns how many detections there are."""
    events, definitions = asyncio.run(_stored(url))
    assert {event.id for event in events} >= set(published)
    told = [event.id for event in events if event.source == SOURCE]
    assert len(told) == len(set(told)), "told twice"
    detector, expected, waiting = tocsin.Detector(), [], list(definitions)
    for event in events:
        while waiting and (event.offset or 0) > waiting[0].since:
            first = waiting.pop(0)
            detector.define(first.name, first.text, first.context)
        expected += [found.id for found in detector.feed(event)]
    assert told == expected
    pairs = [
        tuple(part["id"] for part in event.data["parts"])
        for event in events
        if event.source == SOURCE and event.type == "pair"
    ]
    since = next((each.since for each in definitions if each.name == "pair"), NEVER)
    assert pairs == _pairs([event for event in events if (event.offset or 0) > since])
    return len(told)


def _pairs(events: list[tocsin.Event]) -> list[tuple[str, ...]]:
    """Chronicle SEQ(a, b) BY k, by hand."""
    queues: dict[int, deque[str]] = defaultdict(deque)
    found = []
    for event in events:
        if event.type == "a":
            queues[event.data["k"]].append(event.id)
        elif event.type == "b" and queues[event.data["k"]]:
            found.append((queues[event.data["k"]].popleft(), event.id))
    return found


def lives(live: Live, path: Path, chance: random.Random, count: int, point: str | None) -> None:
    url, published, detections = f"file:{path}", [], 0
    for number in range(count):
        death = live(
            play="detection",
            url=url,
            number=number,
            seed=chance.randrange(2**32),
            lines=NEVER if point else int(chance.expovariate(1 / 60)),
            pause=chance.randrange(4000),
            point=point,
            arm=chance.choice([1, 2, 7, 30]),
        )
        assert death["signal"] == signal.SIGKILL, death["said"][-1:]
        published += [id for verb, *words in death["said"] if verb == "published" for id in words[0]]
        if chance.random() < 0.5:  # else one crash follows another
            detections = check(url, published)
    assert max(detections, check(url, published)) > 0


@pytest.mark.parametrize("point", POINTS)
def test_a25_killed_between_append_detect_tell_and_checkpoint(live: Live, tmp_path: Path, point: str) -> None:
    lives(live, tmp_path / "plant.db", random.Random(point), 5, point)


@pytest.mark.parametrize("share", range(4))
def test_a25_killed_at_a_random_moment(live: Live, tmp_path: Path, pytestconfig: pytest.Config, share: int) -> None:
    runs = max(8, int(pytestconfig.getoption("--crash-runs")) // 10)
    for journal in range(runs // 8):
        lives(live, tmp_path / f"plant-{journal}.db", random.Random(f"{share}-{journal}"), 8, None)

"""Processes killed with SIGKILL, at random moments and at named points; then the journal is opened and questioned.

Nothing answered is lost, nothing is stored twice, nothing settled is delivered again, order is kept. `--crash-runs N`
says how many processes die at random; `make crash` kills thousands.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.story import Story
from tests.helpers import testing

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SHARES = 8
"""The random runs are divided so that test processes can work side by side."""
POINTS = sorted(getattr(testing, "crash_points", ()))
NEVER = 10**9


def lives_until(story: Story, live: Callable[..., dict[str, Any]], chance: random.Random, count: int) -> int:
    """Live `count` lives in a row on one journal, each killed; returns how many were."""
    killed = 0
    for number in range(count):
        death = live(
            url=story.url,
            number=number,
            seed=chance.randrange(2**32),
            retry=story.unanswered(),
            lines=int(chance.expovariate(1 / 80)),
            pause=chance.randrange(4000),
            point=None,
            arm=0,
        )
        story.hear(death["said"])
        killed += death["signal"] == signal.SIGKILL
    return killed


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_a_random_moment(
    live: Callable[..., dict[str, Any]], tmp_path: Path, pytestconfig: pytest.Config, share: int
) -> None:
    chance = random.Random(share)
    runs = -(-int(pytestconfig.getoption("--crash-runs")) // SHARES)
    journals = 0
    while runs > 0:
        journals += 1
        story = Story(f"file:{tmp_path / f'plant-{journals}.db'}")
        for _ in range(chance.randint(1, 3)):  # each check closes cleanly; between checks one crash follows another
            lives = chance.randint(1, 3)
            assert lives_until(story, live, chance, lives) == lives
            runs -= lives
            story.check()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(live: Callable[..., dict[str, Any]], tmp_path: Path, point: str) -> None:
    chance = random.Random(point)
    story = Story(f"file:{tmp_path / 'plant.db'}")
    for number in range(4):
        death = live(
            url=story.url,
            number=number,
            seed=chance.randrange(2**32),
            retry=story.unanswered(),
            lines=NEVER,
            pause=0,
            point=point,
            arm=chance.choice([0, 1, 5, 25]),
        )
        story.hear(death["said"])
        assert death["signal"] == signal.SIGKILL, f"a whole life never came to {point}"
        story.check()

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
POINTS = sorted(point for point in testing.crash_points if not point.startswith(("archive-", "detect-")))
"""Where a node can die; `tests/unit/test_lake.py` kills archivers, `test_detection.py` those who detect."""
NEVER = 10**9


class Killer:
    """Lives lives on one journal, and remembers what was said in all of them."""

    def __init__(self, live: Callable[..., dict[str, Any]], path: Path, chance: random.Random) -> None:
        self.live, self.chance = live, chance
        self.story, self.lives = Story(f"file:{path}"), 0

    def kill(self, lines: int = NEVER, point: str | None = None) -> None:
        """One more life, ended after so many lines, or at a named point."""
        death = self.live(
            url=self.story.url,
            number=self.lives,
            seed=self.chance.randrange(2**32),
            retry=self.story.unanswered(),
            lines=lines,
            pause=self.chance.randrange(4000),
            point=point,
            arm=self.chance.choice([0, 1, 5, 25]),
        )
        self.lives += 1
        self.story.hear(death["said"])
        assert death["signal"] == signal.SIGKILL, f"a whole life was lived, and never came to {point or lines}"


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_a_random_moment(
    live: Callable[..., dict[str, Any]], tmp_path: Path, pytestconfig: pytest.Config, share: int
) -> None:
    chance = random.Random(share)
    runs = -(-int(pytestconfig.getoption("--crash-runs")) // SHARES)
    journals = 0
    while runs > 0:
        journals += 1
        killer = Killer(live, tmp_path / f"plant-{journals}.db", chance)
        for _ in range(chance.randint(1, 3)):  # each check closes cleanly; between checks one crash follows another
            for _ in range(chance.randint(1, 3)):
                killer.kill(lines=int(chance.expovariate(1 / 80)))
                runs -= 1
            killer.story.check()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(live: Callable[..., dict[str, Any]], tmp_path: Path, point: str) -> None:
    killer = Killer(live, tmp_path / "plant.db", random.Random(point))
    for _ in range(4):
        killer.kill(point=point)
        killer.story.check()

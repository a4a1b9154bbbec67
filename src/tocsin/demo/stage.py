"""What everybody in the demo has in hand: a bus, somebody to tell, what is promised, and chance with a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tocsin.client import Bus
from tocsin.demo.promises import Promises
from tocsin.demo.story import Story

__all__ = ["Stage"]


@dataclass(frozen=True)
class Stage:
    """The demo's node as its people and programs see it."""

    url: str
    bus: Bus
    """Somebody's face of the node is `bus.as_user(name)`, a connection of its own."""
    story: Story
    promises: Promises
    chance: random.Random
    command: str
    """How `tocsin` is typed here, for what people are told to try."""

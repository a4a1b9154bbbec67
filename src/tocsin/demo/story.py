"""What is told while the demo runs: what happens, and why. How it looks is `screen`'s business.

The reason of a thing is told when it happens first, and again after a minute; in between a line without a reason is
enough, and easier to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

__all__ = ["Line", "Story", "Tone"]

Tone = Literal["plain", "good", "warning", "alert", "spark", "node"]
_AGAIN: Final = 60.0


class Line(NamedTuple):
    """Something that happened."""

    at: float
    what: str
    why: str
    tone: Tone


class Story:
    """Everything told so far goes to whoever shows it."""

    def __init__(self, clock: Callable[[], float], show: Callable[[Line], None]) -> None:
        """Begin.

        Args:
            clock: seconds since the beginning.
            show: gets each line.
        """
        self._clock, self._show = clock, show
        self._explained: dict[str, float] = {}

    def tell(self, what: str, why: str = "", *, tone: Tone = "plain", topic: str = "", once: bool = False) -> None:
        """Tell something.

        Args:
            what: what happens.
            why: the reason, or what it shows.
            tone: how it looks.
            topic: whose reason it is; lines of one topic share it. Empty: the reason is always told.
            once: leave out the whole line, not only its reason, where that was told lately.
        """
        now = self._clock()
        if topic and now - self._explained.get(topic, -_AGAIN) < _AGAIN:
            if once:
                return
            why = ""
        elif topic:
            self._explained[topic] = now
        self._show(Line(now, what, why, tone))

"""Waits for what is due: a thread, for agents on the machine's clock. With another clock, call `advance` yourself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tocsin.clock import SECOND, Clock

__all__ = ["Timer"]

_LONGEST: Final = 60.0
_log = logging.getLogger("tocsin")


class Timer:
    """Calls `fire` when something is due."""

    def __init__(self, clock: Clock, due: Callable[[], int | None], fire: Callable[[], None]) -> None:
        """Say what is due next, in microseconds, and what to do then."""
        self._clock, self._due, self._fire = clock, due, fire
        self._wake = threading.Event()
        self._planned: int | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="tocsin-led-timer", daemon=True)
        self._thread.start()

    def look(self, due: int) -> None:
        """Something is due then, perhaps sooner than what was."""
        if self._planned is None or due < self._planned:
            self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            self._planned = None  # so that whoever comes from here on wakes us, or is seen below
            self._wake.clear()
            self._planned = due = self._due()
            left = _LONGEST if due is None else (due - self._clock.now()) / SECOND
            if left > 0:
                self._wake.wait(min(left, _LONGEST))
                continue
            try:
                self._fire()
            except BaseException as error:  # sys.exit() in a rule, say: other timers have nobody else
                _log.error("a rule that a timer has triggered raised %r", error)

    def end(self) -> None:
        """End the thread. What it does at this moment is not waited for."""
        self._ended = True
        self._wake.set()

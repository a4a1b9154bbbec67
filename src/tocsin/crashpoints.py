"""Named places where a test may end the process, as a power cut would. Nothing happens unless one is armed.

A place is passed by `reach("after-commit")`; `arm("after-commit", 3)` kills the process (SIGKILL) when it is reached
for the third time. Used through `tocsin.testing`.
"""

from __future__ import annotations

import os
import signal

__all__ = ["POINTS", "arm", "reach"]

POINTS = (
    "before-commit",  # a transaction is complete but for its commit
    "after-commit",  # committed; nobody has heard of it
    "before-answer",  # matched; publishers have not been answered
    "before-save",  # a delivery is settled in memory, its place is not stored
    "before-merge",  # a merge is complete but for its commit
    "after-merge",
    "before-trim",
    "after-trim",
    "detect-before",  # events are committed, and not looked at for composite ones
    "detect-after",  # looked at; what was detected is not stored
    "detect-checkpoint",  # a snapshot is made, and not stored
    "detect-stored",  # what was detected is stored, with the position
    "archive-staged",  # chunks are written, but not in their place
    "archive-moved",  # they are in their place, but no manifest lists them
    "archive-committed",  # the manifest is there, and files it does not list any more are too
)

_armed: dict[str, int] = {}


def arm(point: str, times: int = 1) -> None:
    """End this process when `point` is reached for the so-many-th time from now."""
    if point not in POINTS:
        raise ValueError(f"there is no point {point!r}; there are {', '.join(POINTS)}")
    _armed[point] = times


def reach(point: str) -> None:
    """Pass a point."""
    if _armed and point in _armed:
        _armed[point] -= 1
        if _armed[point] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

"""A process that is a server and nothing else: its event loop, and how often it looks for garbage.

Nothing here changes what a server does. A program that serves beside other work (`serve`) keeps its own loop and its
own habits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

__all__ = ["as_process"]

# A node keeps some ten thousand events in memory, none of them in a cycle, and looking through them every 700 new
# objects took a fifth of its time. What is in a cycle is found a little later.
_THRESHOLDS = (20_000, 20, 100)


def as_process(work: Coroutine[Any, Any, None]) -> None:
    """Run until it ends; on uvloop if it is installed."""
    with _calm(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""A process that is a server and nothing else: its event loop, its threads' turns, its memory, its garbage.

Nothing here changes what a server does. A program that serves beside other work (`serve`) keeps its own loop and its
own habits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pyarrow as pa

__all__ = ["as_process"]

# A node keeps some ten thousand events in memory, none of them in a cycle, and looking through them every 700 new
# objects took a fifth of its time. What is in a cycle is found a little later.
_THRESHOLDS = (20_000, 20, 100)
# Seconds after which a busy thread lets another have the interpreter. While the loop reads the next batch, the thread
# that commits the last one should not wait for all of it (Python's own 5 ms): then the two would be stored, and their
# publisher answered, together, and while that one makes the next two there would be nothing to do here.
_TURN = 0.0005


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


def _use_steady_memory() -> None:
    """Have Arrow take memory from where it need not be cleared each time, unless somebody has chosen.

    Its usual pool gives memory back at once, and takes it again in pages of 2 MiB: of 200 ms that the first merge of
    1,500 events took, 150 were the kernel's, which clears them, and the loop stood still meanwhile. Here it takes 30.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    before, turn, pool = gc.get_threshold(), sys.getswitchinterval(), pa.default_memory_pool()
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_TURN)
    _use_steady_memory()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(turn)
        pa.set_memory_pool(pool)

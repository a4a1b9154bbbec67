"""Done whole, or once: waiting for what must not be left half done, and numbers for what must not be done again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

__all__ = ["Batch", "seen_through"]

T = TypeVar("T")


class Batch(NamedTuple):
    """The number of a publication: what a writer has stored under one number is not stored again."""

    writer: str
    position: int


async def seen_through(work: Coroutine[Any, Any, T]) -> T:
    """Wait for what must not be left half done: to its end, also if who waits is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise

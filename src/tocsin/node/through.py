"""Waiting for what must not be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["seen_through"]

T = TypeVar("T")


async def seen_through(work: Coroutine[Any, Any, T]) -> T:
    """Wait for what must not be left half done: to its end, also if who waits is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise

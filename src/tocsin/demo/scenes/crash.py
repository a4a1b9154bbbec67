"""A consumer crashes: a real process that holds events is killed, and the next one of its name gets them again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tocsin.demo.scenes import worker
from tocsin.demo.stage import Stage
from tocsin.model import Event

__all__ = ["crash"]

_ORDERS: Final = 3
_PATIENCE: Final = 60.0


async def crash(stage: Stage) -> None:
    """Let a worker take orders, kill it, and see what the next one gets."""
    foreman = stage.bus.as_user("foreman")
    # The consumer exists before the orders do; the processes only go on with it.
    await (await foreman.subscribe(worker.FILTER, consumer=worker.CONSUMER)).close()
    await foreman.publish_many([Event("work.order", "foreman", data={"order": n + 1}) for n in range(_ORDERS)])
    async with asyncio.timeout(_PATIENCE):
        async with _process(stage.url, settles=False) as (first, held):
            taken = [await anext(held) for _ in range(_ORDERS)]
            stage.story.tell(f"a worker, process {first.pid}, holds {_ORDERS} work orders, and is killed (kill -9)")
            first.kill()
        async with _process(stage.url, settles=True) as (second, got):
            again = [await anext(got) for _ in range(_ORDERS)]
            await second.wait()
    offsets = [offset for offset, _ in taken]
    if [offset for offset, _ in again] == offsets and all(attempt == 2 for _, attempt in again):
        for _ in again:
            stage.promises.saw("again")
        stage.story.tell(
            f"the next worker, process {second.pid}, gets the same {_ORDERS} again, as attempt 2, and settles them",
            "What was handed out and not settled comes again, whoever died. What is settled never does.",
            tone="good",
            topic="again",
        )


@asynccontextmanager
async def _process(
    url: str, *, settles: bool
) -> AsyncIterator[tuple[asyncio.subprocess.Process, AsyncIterator[tuple[int, int]]]]:
    """A worker at work, and the offset and attempt of what it takes; it is killed at the end if it has not ended."""
    words = ("-m", worker.__name__, url, "settle" if settles else "hold", str(_ORDERS))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends it
    )
    try:
        yield process, _lines(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[tuple[int, int]]:
    assert process.stdout is not None
    async for line in process.stdout:
        offset, attempt = line.split()
        yield int(offset), int(attempt)

"""Places in order of priority."""

from __future__ import annotations

import asyncio

from tocsin.rules.gate import Gate


async def test_the_highest_priority_goes_first_and_equal_ones_as_they_came() -> None:
    gate, story, go = Gate(1), [], asyncio.Event()

    async def pass_through(name: str, priority: int) -> None:
        async with gate.place(priority):
            story.append(name)
            await go.wait()

    tasks = []
    for name, priority in (("first", 1), ("a", 5), ("b", 9), ("c", 5)):
        tasks.append(asyncio.create_task(pass_through(name, priority)))
        await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*tasks)
    assert story == ["first", "b", "a", "c"]


async def test_who_gives_up_waiting_takes_no_place_with_him() -> None:
    gate, go = Gate(1), asyncio.Event()

    async def hold() -> None:
        async with gate.place(5):
            await go.wait()
        late.cancel()  # it has its place now, and has not gone on

    async def wait() -> str:
        async with gate.place(5):
            return "through"

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    early, late, last = (asyncio.create_task(wait()) for _ in range(3))
    await asyncio.sleep(0)
    early.cancel()  # while it waits
    go.set()
    await holder
    assert await asyncio.wait_for(last, 10) == "through"
    assert (early.cancelled(), late.cancelled()) == (True, True)
    assert await asyncio.wait_for(wait(), 10) == "through"

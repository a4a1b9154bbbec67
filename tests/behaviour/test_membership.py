"""Groups on a bus: views and messages in one order for all members, whoever comes, goes or is lost meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import full_disk, slow_disk
from tests.helpers import briefly, event, life, node_of, soon, take, testing
from tocsin.peers.groups import Message, View


async def test_views_and_messages_in_one_order(bus: Any) -> None:
    ann, bob = bus.as_user("ann"), bus.as_user("bob")
    async with ann.join("g") as a:
        await a.cast(1)
        async with bob.join("g") as b:
            await b.cast(2)
            await a.cast(3)
            assert briefly(await take(bus, b)) == ["ann+bob", 2, 3]
            assert a.view == b.view and a.view.members == ("ann", "bob") and a.view.joined == ("bob",)
        await a.cast(4)
        items = await take(bus, a)
    assert briefly(items) == ["ann", 1, "ann+bob", 2, 3, "ann", 4]
    assert [each.sender for each in items if isinstance(each, Message)] == ["ann", "bob", "ann", "ann"]
    assert [each.view.members for each in items if isinstance(each, Message)] == [
        ("ann",),
        ("ann", "bob"),
        ("ann", "bob"),
        ("ann",),
    ]
    assert [each.offset for each in items] == sorted(each.offset for each in items)
    assert items[5].left == ("bob",)


async def test_iterating_ends_when_one_leaves(bus: Any) -> None:
    group = bus.join("g")
    async with group:
        await group.cast(1)
        found = []
        async for item in group:
            found.append(item)
            if isinstance(item, Message):
                waiting = asyncio.ensure_future(group.next())
                await asyncio.sleep(0)
                await group.leave()
    assert briefly(found) == ["test", 1]
    with pytest.raises(tocsin.GroupError):
        await soon(waiting)
    assert group.view.members == ("test",)  # the last it was in
    with pytest.raises(tocsin.GroupError, match="not in group"):
        await group.cast(2)
    await group.leave()


async def test_a_lost_member_is_seen_to_be_gone(bus: Any) -> None:
    ann, bob = bus.as_user("ann"), bus.as_user("bob")
    b = bob.join("g")
    async with ann.join("g") as a:
        await b.__aenter__()
        await b.cast("last words")
        await testing.lose(bob)
        assert briefly(await take(bus, a)) == ["ann", "ann+bob", "last words", "ann"]
        with pytest.raises(tocsin.GroupError):
            await b.cast("from beyond")
        assert [item async for item in b] == []
        async with bus.as_user("bob").join("g") as again:  # a new session of the same name
            assert again.view.members == ("ann", "bob")


async def test_groups_are_apart(bus: Any) -> None:
    async with bus.join("g") as g, bus.join("h") as h:
        await g.cast("to g")
        await h.cast("to h")
        assert briefly(await take(bus, g)) == ["test", "to g"] and briefly(await take(bus, h)) == ["test", "to h"]


async def test_misuse(bus: Any) -> None:
    before = bus.join("g")
    for wrong in (before.cast(1), before.next(), before.leave()):
        with pytest.raises(tocsin.GroupError) as error:
            await wrong
        assert error.value.help
    with pytest.raises(tocsin.GroupError):
        before.poll()
    with pytest.raises(tocsin.GroupError):
        _ = before.view
    racing = [asyncio.ensure_future(before.__aenter__()) for _ in range(2)]
    assert await racing[0] is before
    with pytest.raises(tocsin.GroupError):
        await racing[1]
    await before.leave()
    before = bus.join("g")
    async with before:
        for again in (before, bus.join("g"), bus.as_user("test").join("g")):
            with pytest.raises(tocsin.GroupError, match="already"):
                await again.__aenter__()
        with pytest.raises(tocsin.EventError):
            await before.cast(object())
        with pytest.raises(tocsin.EventError):
            await before.cast("x" * 2_000_000)
        assert before.view.members == ("test",) and before.is_member
    for name in ("", "a\nb", 7):
        with pytest.raises(tocsin.PeerError, match="no name for a group"):
            bus.join(name)


async def test_a_slow_member_holds_up_nobody_and_misses_nothing(bus: Any) -> None:
    ann, bob = bus.as_user("ann"), bus.as_user("bob")
    async with ann.join("g") as quick, bob.join("g") as slow:
        for block in range(5):
            await asyncio.gather(*(quick.cast(block * 500 + n) for n in range(500)))
            await take(bus, quick)
        data = [each.data for each in await take(bus, slow) if isinstance(each, Message)]
        assert data == list(range(2500))
    assert all(mailbox.options.durable for mailbox in node_of(bus).mailboxes.values())  # the members' own are gone


@pytest.mark.embedded("messages wait in the client first; tests/net/test_peers.py has it with a raw connection")
async def test_trimmed_before_it_was_taken_is_said(bus: Any, clock: Any) -> None:
    async with bus.join("g") as group:
        for n in range(5):
            await group.cast(n)
        await take(bus, group)
        for n in range(5):
            await group.cast(n)
        clock.advance(100)
        await bus.publish(event("new"))
        await bus.trim(older_than=timedelta(seconds=1), hard=True)
        with pytest.raises(tocsin.TocsinError):
            while True:
                await group.next(timeout=5)


async def test_total_order_whoever_comes_and_goes(bus: Any) -> None:
    """Twelve members that join, cast, leave and crash at random: all that two have seen, they saw in one order; and
    a member saw exactly the messages of the views it was in."""
    chance = random.Random(6)
    seen: dict[str, list[Any]] = {}

    async def live(name: str) -> None:
        face = bus.as_user(name)
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        async with face.join("g") as group:
            for n in range(chance.randrange(1, 15)):
                await group.cast(f"{name}:{n}")
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            seen[name] = await take(bus, group)
            if chance.random() < 0.4:
                await testing.lose(face)

    await asyncio.gather(*(live(f"m{n}") for n in range(12)))
    everything = {each.offset: each for items in seen.values() for each in items}
    for name, items in seen.items():
        offsets = [each.offset for each in items]
        assert offsets == sorted(offsets)
        assert isinstance(items[0], View) and items[0].joined == (name,)
        assert offsets == [offset for offset in sorted(everything) if offsets[0] <= offset <= offsets[-1]]
        view = None
        for each in items:
            if isinstance(each, View):
                assert name in each.members
                view = each
            else:
                assert each.view == view and each.sender in each.view.members
    for one, other in itertools.combinations(seen.values(), 2):
        common = {each.offset for each in one} & {each.offset for each in other}
        assert [each for each in one if each.offset in common] == [each for each in other if each.offset in common]


async def test_nobody_hears_from_who_is_gone(file_url: str, clock: Any) -> None:
    """A member is lost while its casts are on their way: they lie before the view without it, or nowhere."""
    async with life(file_url, clock) as bus:
        bob = bus.as_user("bob")
        async with bus.as_user("ann").join("g") as a:
            b = bob.join("g")
            await b.__aenter__()
            with slow_disk(bus) as begun:
                first = asyncio.ensure_future(b.cast("on its way"))
                await soon(begun.wait())
                second = asyncio.ensure_future(b.cast("behind it"))
                await asyncio.sleep(0)
                gone = asyncio.ensure_future(testing.lose(bob))
                await asyncio.sleep(0)
                with pytest.raises(tocsin.GroupError):
                    await b.cast("too late")
            await asyncio.gather(first, second, gone)
            assert briefly(await take(bus, a)) == ["ann", "ann+bob", "on its way", "behind it", "ann"]


async def test_a_join_that_is_cancelled_is_undone(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus, bus.as_user("ann").join("g") as a:
        with slow_disk(bus) as begun:
            joining = asyncio.ensure_future(bus.join("g").__aenter__())
            await soon(begun.wait())
            joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert briefly(await take(bus, a)) == ["ann", "ann+test", "ann"]
        async with bus.join("g") as group:
            assert group.view.members == ("ann", "test")


async def test_leaving_that_cannot_be_stored_can_be_repeated(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus, bus.as_user("ann").join("g") as a:
        group = bus.join("g")
        await group.__aenter__()
        with full_disk(bus):
            with pytest.raises(tocsin.JournalFullError):
                await group.leave()
            with pytest.raises(tocsin.GroupError):
                await group.cast(1)
        await group.leave()
        assert briefly(await take(bus, a)) == ["ann", "ann+test", "ann"]


async def test_casts_have_room_like_events(url: str, clock: Any) -> None:
    async with testing.node(url, clock, max_waiting=10) as bus, AsyncExitStack() as stack:
        groups = [await stack.enter_async_context(bus.as_user(f"m{n}").join("g")) for n in range(3)]
        await asyncio.gather(*(group.cast(n) for n in range(50) for group in groups))
        assert len([each for each in await take(bus, groups[0]) if isinstance(each, Message)]) == 150

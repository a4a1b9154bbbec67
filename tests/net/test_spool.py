"""Store and forward: what a client publishes while the node is away waits in its spool, in order and once."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import tocsin
from tests.helpers import event, ids, numbered, soon
from tests.proxy import proxy
from tocsin.net import serve
from tocsin.net.events import from_packed, to_packed
from tocsin.remote.spool import Row, Spool

NOWHERE = "ws://127.0.0.1:9"
"""Nobody listens there."""


@asynccontextmanager
async def plant(**options: Any) -> AsyncIterator[tuple[Any, str]]:
    async with tocsin.connect("memory:", name="node") as node, serve(node, **options) as server:
        yield node, server.url


async def stored(node: Any) -> list[str]:
    """Ids in the journal, in its order."""
    await tocsin.testing.settled(node)
    return [each.id for block in node._node.journal.blocks() for each in block.events()]


async def sent(node: Any, count: int) -> list[str]:
    """Ids of events as they come, the first so many ever stored; waits for them."""
    sub = await node.subscribe("TRUE", past=tocsin.retained(), order="journal")
    got = [(await soon(sub.next())) for _ in range(count)]
    await sub.close()
    return ids(got)


def packed(row: Row) -> list[str]:
    return [from_packed(bytes(part), None, None).id for part in msgspec.msgpack.decode(row.events, type=list[Raw])]


async def test_direct_while_the_node_is_there(tmp_path: Path) -> None:
    async with plant() as (node, url), tocsin.connect(url, name="line-7", spool=tmp_path / "spool") as bus:
        published = await bus.publish(event("a"))
        assert (published.offset, bus.spooled) == (1, 0)
        assert [each.offset for each in await bus.publish_many(numbered(2))] == [2, 3]
        assert await stored(node) == ["a", "1", "2"]


async def test_connects_while_nobody_is_there_and_sends_in_a_later_life(tmp_path: Path) -> None:
    async with tocsin.connect(NOWHERE, name="line-7", spool=tmp_path) as bus:
        assert bus.name == "line-7"
        for each in numbered(3):
            assert (await bus.publish(each)).offset is None
        assert [(each.id, each.offset) for each in await bus.publish_many(numbered(2, first=4))] == [
            ("4", None),
            ("5", None),
        ]
        assert bus.spooled == 5
    async with plant() as (node, url), tocsin.connect(url, name="line-7", spool=tmp_path) as bus:
        assert await sent(node, 5) == ["1", "2", "3", "4", "5"]
        assert (await bus.status("5")).state == "live"
        assert (await bus.publish(event("6"))).offset in (None, 6)
        assert await sent(node, 6) == ["1", "2", "3", "4", "5", "6"]


async def test_newer_goes_behind_older_through_outages(tmp_path: Path) -> None:
    """The connection is cut again and again; what is published one after the other is stored so, each once."""
    async with plant() as (node, url), proxy(url) as way:
        async with tocsin.connect(way.url, name="line-7", spool=tmp_path) as bus:
            outages = 0
            for n in range(60):
                if n % 10 == 3:
                    way.cut()
                if n % 10 == 7:
                    way.mend()
                outages += (await bus.publish(event(str(n)))).offset is None
                if n % 20 == 19:
                    await sent(node, n + 1)
            assert await sent(node, 60) == [str(n) for n in range(60)]
            assert 60 > outages >= 4 * 3
        assert await stored(node) == [str(n) for n in range(60)]


async def test_full_spool_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    async with tocsin.connect(NOWHERE, spool=tmp_path, spool_bytes=1000) as bus:
        count = 0
        with pytest.raises(tocsin.OverloadError, match="is full"):
            for count in range(100):
                await bus.publish(event(str(count)))
        assert bus.spooled == count > 1
    async with plant() as (node, url), tocsin.connect(url, spool=tmp_path):
        assert await sent(node, count) == [str(n) for n in range(count)]


async def test_one_at_a_time(tmp_path: Path) -> None:
    async with tocsin.connect(NOWHERE, spool=tmp_path):
        with pytest.raises(tocsin.JournalLockedError, match="a directory of its own"):
            async with tocsin.connect(NOWHERE, spool=tmp_path):
                pass
    async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
        assert bus.spooled == 0


async def test_bad_event_is_refused_before_it_is_spooled(tmp_path: Path) -> None:
    async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
        for bad in (event("a", data="x" * 2_000_000), event("b", type="tocsin.mine")):
            with pytest.raises(tocsin.EventError):
                await bus.publish(bad)
        assert bus.spooled == 0


async def test_what_the_node_refuses_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
        await bus.publish_many([event("1"), event("2")])
        await bus.publish(event("large", data="x" * 1000))
        await bus.publish(event("3"))
    limits = msgspec.structs.replace(tocsin.net.protocol.LIMITS, max_event=100)
    async with plant(limits=limits) as (node, url), tocsin.connect(url, spool=tmp_path) as bus:
        assert await sent(node, 3) == ["1", "2", "3"]
        with pytest.raises(tocsin.EventError, match="100 are allowed"):
            await bus.publish(event("large too", data="x" * 1000))
    spool = Spool(tmp_path)
    [(error, [part])] = spool.refused()
    spool.close()
    assert "100 are allowed" in error
    assert from_packed(bytes(part), None, None).id == "large"


async def test_group_that_was_sent_and_not_answered_is_stored_once_for_ever(tmp_path: Path) -> None:
    """The node has it, the client does not know: neither `(source, id)` nor a clock is needed to find out."""
    async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
        await bus.publish_many(numbered(3))
    spool = Spool(tmp_path)
    group = spool.next_group()
    assert group is not None
    spool.close()  # as if it were killed between the node's commit and the answer
    clock = tocsin.testing.ManualClock()
    async with tocsin.connect("memory:", clock=clock) as node, serve(node) as server:
        first = await node._publish_batch(numbered(3), tocsin.node.pipeline.Batch(f"client/{spool.writer}", 1))
        assert group.position == 1
        clock.advance(10**7)
        await node.publish_many(numbered(10, first=100))
        async with tocsin.connect(server.url, spool=tmp_path) as bus:
            for _ in range(200):
                if not bus.spooled:
                    break
                await asyncio.sleep(0.01)
            assert bus.spooled == 0
            assert (await bus.publish(event("last"))).offset == first[-1].offset + 11


async def test_what_could_never_be_sent_is_refused_not_spooled(tmp_path: Path) -> None:
    large = [event(str(n), data="x" * 1_000_000) for n in range(17)]
    async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
        with pytest.raises(tocsin.ProtocolError, match="one frame"):
            await bus.publish_many(large)
        assert bus.spooled == 0
        await bus.publish_many(large[:16])
        assert bus.spooled == 16


async def test_connecting_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a lock on the spool nor somebody who goes on trying."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        before = asyncio.all_tasks()
        for spool in (None, tmp_path):
            with pytest.raises(TimeoutError):
                async with (
                    asyncio.timeout(0.05),
                    tocsin.connect(f"ws://127.0.0.1:{silent.getsockname()[1]}", spool=spool),
                ):
                    raise AssertionError
        assert asyncio.all_tasks() == before
    Spool(tmp_path).close()


async def test_spool_that_is_damaged_while_in_use_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with plant() as (node, url):
        async with tocsin.connect(NOWHERE, spool=tmp_path) as bus:
            await bus.publish(event("a"))
        with sqlite3.connect(tmp_path / "spool.db") as file:
            file.execute("UPDATE waiting SET events = x'c1'")
        file.close()
        async with tocsin.connect(url, spool=tmp_path) as bus:
            while "damaged" not in caplog.text:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            assert (await bus.publish(event("b"))).offset is None  # behind it
            assert bus.spooled == 2
        assert await stored(node) == []


def test_groups_keep_order_and_bounds(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    rows = [Row.of([Raw(to_packed(event(f"{n}-{m}"))) for m in range(400)]) for n in range(4)]
    spool.add(rows)
    assert (spool.events, spool.bytes) == (1600, sum(len(row.events) for row in rows))
    group = spool.next_group()
    assert group is not None and (group.position, group.rows, len(group.parts)) == (1, 2, 800)
    assert spool.next_group() == group, "it is the same until it is done"
    spool.split(1)
    single = spool.next_group()
    assert single is not None and (single.position, single.rows) == (2, 1)
    spool.close()
    spool = Spool(tmp_path)
    for position, row in zip((2, 3), rows, strict=False):
        again = spool.next_group()
        assert again is not None and again.position == position
        assert [from_packed(bytes(part), None, None).id for part in again.parts] == packed(row)
        spool.done(position)
    last = spool.next_group()
    assert last is not None and (last.position, last.rows) == (4, 2)
    spool.done(4)
    assert spool.next_group() is None
    assert (spool.events, spool.bytes) == (0, 0)
    spool.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"\x00" * 4096])
def test_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spool.db").write_bytes(content)
    with pytest.raises(tocsin.JournalDamagedError, match=r"spool\.db"):
        Spool(tmp_path)


def test_sync(tmp_path: Path) -> None:
    with tocsin.sync.connect(NOWHERE, spool=tmp_path) as bus:
        assert bus.publish(event("a")).offset is None
        assert bus.spooled == 1


@pytest.mark.parametrize("option", ["clock", "lake", "hot_bytes", "max_waiting"])
async def test_what_belongs_to_the_node_is_refused(option: str) -> None:
    given: dict[str, Any] = {option: tocsin.testing.ManualClock() if option == "clock" else 1}
    with pytest.raises(tocsin.OptionError, match="belongs to the node") as caught:
        async with tocsin.connect(NOWHERE, **given):
            pass
    assert caught.value.field == option


async def test_embedded_node_needs_no_spool(tmp_path: Path) -> None:
    with pytest.raises(tocsin.OptionError, match="spool"):
        async with tocsin.connect("memory:", spool=tmp_path):
            pass
    async with tocsin.connect("memory:") as bus:
        assert bus.spooled == 0


async def test_size_that_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(tocsin.OptionError, match="spool_bytes"):
        async with tocsin.connect(NOWHERE, spool=tmp_path, spool_bytes=0):
            pass

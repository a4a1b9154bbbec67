"""The past of a journal whose old part is in a lake alone is that of a journal which was never trimmed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import START, ack_all, event, heard, ids, life, notices, numbered, soon, take, testing
from tocsin.journal import archiver
from tocsin.journal.lake import Lake, remember_lake
from tocsin.journal.reader import open_reader

CHUNK = 7


def archive(place: Path, upto: int | None = None, chunk: int = CHUNK) -> int:
    """What `tocsin.spark.archive` does, without Spark; another process than the node's could be doing it."""
    with open_reader(place / "plant.db") as reader:
        return archiver.archive(reader, str(place / "lake"), upto=upto, chunk=chunk)


def lose_files(place: Path, name: str) -> None:
    for file in place.glob(f"lake/day=*/*/{name}.parquet"):
        file.unlink()


@asynccontextmanager
async def opened(place: Path, clock: Any, **options: Any) -> AsyncIterator[Any]:
    async with testing.node(url=f"file:{place / 'plant.db'}", clock=clock, lake=place / "lake", **options) as bus:
        yield bus


async def story(bus: Any, clock: Any) -> None:
    """Forty events a minute apart, one commit each: some expire, some are cancelled, some are the node's own."""
    ops = await bus.subscribe("n % 10 = 7", consumer="ops", order="journal")
    for n in range(1, 41):
        fields: dict[str, Any] = {"priority": 1 + n % 10, "data": {"n": n}, "attributes": {"line": "abc"[n % 3]}}
        if n % 8 == 0:
            fields["ttl"] = 300 if n % 16 else 3600 * 24 * n
        if n % 10 == 7:
            fields["ack"] = "client"
        await bus.publish(event(f"e{n}", type=f"type-{n % 4}", persistent=n % 9 != 0, **fields))
        clock.advance(60)
        if n % 13 == 0:
            await bus.cancel(f"e{n - 5}")
    await ack_all(await take(bus, ops))
    await ops.close()
    for n in (7, 17, 27, 37):
        await bus.cancel(f"e{n}")
    await testing.settled(bus)


BOUNDS = [
    *(tocsin.last(n) for n in (1, 20, 1000)),
    *(tocsin.within(timedelta(minutes=t)) for t in (5, 25)),
    *(tocsin.last(n, within=timedelta(minutes=t)) for n, t in itertools.product((3, 30), (10, 35))),
    *(tocsin.since(x) for x in (1, 2, 17, 41, 10_000)),
    *(tocsin.since(START + timedelta(minutes=t)) for t in (-5, 11, 30.5, 999)),
    tocsin.retained(),
]
FILTERS = ["TRUE", "n > 5 AND line = 'b' OR type = 'type-2'"]


async def everything(bus: Any, order: str) -> dict[str, Any]:
    """What a new consumer is given, for every bound, and what became of some events."""
    found: dict[str, Any] = {}
    numbers = itertools.count()
    for bound, filter, system in [*itertools.product(BOUNDS, FILTERS, [False]), (tocsin.retained(), "TRUE", True)]:
        options = {"past": bound, "order": order, "system": system, "durable": False}
        sub = await bus.subscribe(filter, consumer=f"c{next(numbers)}", **options)
        found[f"{bound} {filter} {system}"] = [(d.event.type, d.offset, d.replayed) for d in await take(bus, sub)]
        await sub.close()
    for n in (1, 8, 7, 30, 40):
        known = await bus.status(f"e{n}")
        found[f"status {n}"] = (known.offset, known.state)
    return found


@pytest.mark.parametrize("order", ["journal", "priority"])
async def test_past_across_the_border_is_that_of_an_untrimmed_journal(tmp_path: Path, order: str) -> None:
    clock = testing.ManualClock()
    async with opened(tmp_path, clock) as bus:
        await story(bus, clock)
    async with opened(tmp_path, clock) as bus:  # what is not persistent is no part of the past any more
        expected = await everything(bus, order)
        assert sum(len(each) for key, each in expected.items() if "TRUE" in key) > 200
        assert expected["retained TRUE True"] != expected["retained TRUE False"]
        assert {expected[f"status {n}"][1] for n in (1, 8, 7)} == {"live", "expired", "cancelled"}
        archive(tmp_path)
        kept = 1
        for age in (timedelta(minutes=24), None):
            before, kept = kept, await bus.trim(older_than=age, archived=True, hard=True)
            assert before < kept and bus._node.journal.first == 1
            assert await everything(bus, order) == expected
        assert kept == bus._node.head + 1  # all of it is in the lake


async def test_replay_reaches_into_the_lake(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        sub = await bus.subscribe("n > 3", consumer="ops", order="journal")
        for each in numbered(20):
            await bus.publish(each)
        assert len(await heard(bus, sub)) == 17
        archive(tmp_path, 14)
        assert await bus.trim(archived=True) == 15
        again = await bus.subscribe("n > 3", consumer="ops", order="journal", past=tocsin.last(10), replay=True)
        assert await heard(bus, again) == [str(n) for n in range(11, 21)]
        once_more = await bus.subscribe("n > 3", consumer="ops", order="journal", past=tocsin.retained(), replay=True)
        assert await heard(bus, once_more) == [str(n) for n in range(4, 21)]


@pytest.mark.parametrize("order", ["journal", "priority"])
async def test_consumer_that_is_behind_holds_back_nothing_and_loses_nothing(
    tmp_path: Path, clock: Any, order: str
) -> None:
    count = 6_000
    expected = [str(n) for n in range(1, count + 1)]
    if order == "priority":
        expected.sort(key=lambda id: (-(1 + int(id) % 10), int(id)))
    async with opened(tmp_path, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="slow", order=order, max_in_flight=5)
        for first in range(1, count + 1, 100):
            await bus.publish_many(
                [event(str(n), data={"n": n}, priority=1 + n % 10) for n in range(first, first + 100)]
            )
        held = await take(bus, sub, 5)
        assert ids(held) == expected[:5]
        archive(tmp_path, chunk=1_000)
        assert await bus.trim(archived=True) == count + 1
        await held[0].ack()
        assert (await bus.consumers())[0].lag > count - 20
    async with opened(tmp_path, clock) as bus:  # after a restart it all comes from the lake
        sub = await bus.subscribe("TRUE", consumer="slow", order=order, max_in_flight=5)
        got: list[str] = []
        while len(got) < 300:
            batch = await take(bus, sub, 5)
            got += ids(batch)
            await ack_all(batch)
        assert got == expected[1:301]
        assert notices(batch) == []


async def test_no_gap_and_no_double_while_events_pour_in_and_the_journal_is_trimmed(tmp_path: Path, clock: Any) -> None:
    async def pour() -> list[int]:
        return [(await bus.publish(event(str(n), priority=1 + n % 10))).offset for n in range(400)]

    async def move() -> int:
        """Archive and trim, over and over."""
        moved = 0
        while not pouring.done():
            await asyncio.to_thread(archive, tmp_path)
            moved = await bus.trim(archived=True)
        return moved

    async with opened(tmp_path, clock, hot_bytes=1) as bus:
        watch = await bus.subscribe("TRUE", consumer="watch", order="journal", auto_ack=True)
        pouring = asyncio.ensure_future(pour())
        moving = asyncio.ensure_future(move())
        subs = []
        for number in range(1, 12):
            for _ in range(30):
                await soon(watch.next())
            past = tocsin.since(1) if number % 2 else tocsin.last(10)
            subs.append((past, await bus.subscribe("TRUE", consumer=f"late-{number}", past=past, order="journal")))
        places = await soon(pouring)
        assert await soon(moving) > 1
        for past, sub in subs:
            got: list[Any] = []
            while batch := await take(bus, sub):
                got += batch
                await ack_all(batch)
            offsets = [d.offset for d in got if not d.notice]
            assert offsets == (places if past == tocsin.since(1) else places[-len(offsets) :])
            assert len(offsets) >= 10 and not notices(got)


# -- trimming


async def test_only_what_is_archived_is_trimmed(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        for each in numbered(20):
            await bus.publish(each)
        clock.advance(3600)
        assert await bus.trim(older_than=timedelta(0)) == 1  # there is a lake, and it is empty
        archive(tmp_path, 12)
        assert await bus.trim(older_than=timedelta(hours=2)) == 1
        assert await bus.trim(older_than=timedelta(0)) == 13
        archive(tmp_path, 16)
        assert await bus.trim(archived=True, older_than=timedelta(hours=2)) == 13
        assert await bus.trim(archived=True) == 17
        assert bus._node.journal.first == 1
        assert await bus.trim(archived=True, hard=True) == 17


async def test_hard_limit_beyond_the_archive_takes_all_before_it(
    tmp_path: Path, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, clock) as bus:
        slow = await bus.subscribe("TRUE", consumer="slow", order="journal")
        for each in numbered(20):
            await bus.publish(each)
        archive(tmp_path, 12)
        clock.advance(3600)
        with caplog.at_level(logging.WARNING):
            assert await bus.trim(older_than=timedelta(0), hard=True) == 21
            assert bus._node.journal.first == 21
        assert "out of reach" in caplog.text and "12" in caplog.text
        await bus.publish(event("new"))
        got = await take(bus, slow)
        assert ids(got) == ["new"] and [kind for kind, _ in notices(got)] == ["tocsin.gap"]


async def test_hard_limit_within_the_archive_takes_nothing_from_anybody(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        slow = await bus.subscribe("TRUE", consumer="slow", order="journal")
        for each in numbered(20):
            await bus.publish(each)
        archive(tmp_path)
        clock.advance(3600)
        assert await bus.trim(older_than=timedelta(0), hard=True) == 21
        got = await take(bus, slow)
        assert ids(got) == [str(n) for n in range(1, 21)] and not notices(got)


async def test_live_alerts_stay_in_the_journal(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        await bus.publish_many(numbered(3))
        await bus.publish(event("alert", ack="receipt"))
        ops = await bus.subscribe("TRUE", consumer="ops", past=1)
        archive(tmp_path)
        assert await bus.trim(archived=True) == 4
        assert [each.event.id for each in await bus.alerts()] == ["alert"]
        await ack_all(await take(bus, ops))
        assert (await bus.receipts().next(1)).id == "alert"
        await bus.cancel("alert")
        archive(tmp_path)
        assert await bus.trim(archived=True) == bus._node.head + 1
        assert await bus.alerts() == []


async def test_cancelled_events_stay_cancelled_when_only_the_lake_has_them(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        await bus.publish_many(numbered(10))
        await bus.cancel("4")
        archive(tmp_path)
        await bus.trim(archived=True)
        sub = await bus.subscribe("TRUE", consumer="a", past=tocsin.retained(), order="journal")
        assert await heard(bus, sub) == ["1", "2", "3", "5", "6", "7", "8", "9", "10"]
    async with opened(tmp_path, clock) as bus:
        assert (await bus.status("4")).state == "cancelled"
        sub = await bus.subscribe("TRUE", consumer="b", past=8, order="journal")
        assert await heard(bus, sub) == ["2", "3", "5", "6", "7", "8", "9", "10"]
        with pytest.raises(tocsin.CancelError):  # who published it is not archived
            await bus.cancel("5")
        with archiver.Archiver(bus._node.journal.journal, str(tmp_path / "lake")) as archiving:
            archiving.drop_before(2**62)
        await bus.publish(event("more"))
        archive(tmp_path)
        await bus.trim(archived=True)
        await testing.settled(bus)
        assert bus._node.cancelled == set() and bus._node.journal.state("cancelled/") == {}


async def test_what_retention_drops_is_gone(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        for each in numbered(21):
            await bus.publish(each)
            clock.advance(60)
        archive(tmp_path)
        await bus.trim(archived=True)
        with archiver.Archiver(bus._node.journal.journal, str(tmp_path / "lake"), CHUNK) as archiving:
            archiving.drop_before(clock.now() - 10 * 60_000_000)
        await bus.publish(event("new"))
        sub = await bus.subscribe("TRUE", consumer="a", past=tocsin.retained(), order="journal")
        assert await heard(bus, sub) == [*(str(n) for n in range(8, 22)), "new"]
        sub = await bus.subscribe("TRUE", consumer="b", past=tocsin.since(2), order="journal")
        assert await heard(bus, sub) == [*(str(n) for n in range(8, 22)), "new"]
        with pytest.raises(tocsin.UnknownEventError):
            await bus.status("3")


async def test_what_only_the_journal_has_is_kept_for_who_needs_it(tmp_path: Path, clock: Any) -> None:
    """The lake has dropped its old part before the journal did."""
    async with opened(tmp_path, clock) as bus:
        slow = await bus.subscribe("TRUE", consumer="slow", order="journal")
        for each in numbered(21):
            await bus.publish(each)
            clock.advance(60)
        archive(tmp_path)
        with archiver.Archiver(bus._node.journal.journal, str(tmp_path / "lake"), CHUNK) as archiving:
            assert len(archiving.drop_before(clock.now() - 7 * 60_000_000)) == 2
        got = await take(bus, slow)
        await ack_all(got[:5])
        assert await bus.trim(archived=True) == 6
        await ack_all(got[5:14])
        assert await bus.trim(archived=True) == 22
        assert bus._node.journal.first == 15
        await ack_all(got[14:])


async def test_a_lake_that_has_lost_files_is_not_relied_on(tmp_path: Path, clock: Any) -> None:
    async with opened(tmp_path, clock) as bus:
        await bus.publish_many(numbered(20))
        archive(tmp_path)
        lose_files(tmp_path, "8-14")
        with pytest.raises(tocsin.JournalDamagedError, match="8-14"):
            await bus.trim(archived=True)
        assert bus._node.journal.kept == 1
        sub = await bus.subscribe("TRUE", consumer="a", past=tocsin.retained(), order="journal")
        assert len(await heard(bus, sub)) == 20


# -- knowing where it is


async def test_trimming_what_nobody_has_archived(bus: Any) -> None:
    await bus.publish_many(numbered(3))
    with pytest.raises(tocsin.LakeError) as refused:
        await bus.trim(archived=True)
    assert refused.value.help


async def test_remembered_lake_is_found(tmp_path: Path, clock: Any) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    async with life(url, clock) as bus:
        for each in numbered(10):
            await bus.publish(each)
        archive(tmp_path)
        remember_lake(str(tmp_path / "plant.db"), str(tmp_path / "lake"))
        assert await bus.trim(archived=True) == 11  # it came about while the node was open
        sub = await bus.subscribe("TRUE", consumer="a", past=4, order="journal")
        assert await heard(bus, sub) == ["7", "8", "9", "10"]
    async with life(url, clock) as bus:
        sub = await bus.subscribe("TRUE", consumer="b", past=tocsin.retained(), order="journal")
        assert await heard(bus, sub) == [str(n) for n in range(1, 11)]
        assert (await bus.status("3")).offset == 3


async def test_lake_that_went_away(tmp_path: Path, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path, clock) as bus:
        await bus.publish_many(numbered(10))
        archive(tmp_path)
        await bus.trim(archived=True)
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    with caplog.at_level(logging.WARNING):
        async with opened(tmp_path, clock) as bus:
            sub = await bus.subscribe("TRUE", consumer="a", past=tocsin.retained())
            assert await heard(bus, sub) == []
    assert "out of reach" in caplog.text
    async with testing.node(url=f"file:{tmp_path / 'plant.db'}", clock=clock, lake=tmp_path / "elsewhere") as bus:
        sub = await bus.subscribe("TRUE", consumer="a", past=tocsin.retained(), replay=True)
        assert len(await heard(bus, sub)) == 10


async def test_another_journals_lake_is_refused(tmp_path: Path, clock: Any) -> None:
    (tmp_path / "a").mkdir()
    async with opened(tmp_path / "a", clock) as bus:
        await bus.publish_many(numbered(10))
    archive(tmp_path / "a")
    async with testing.node(url=f"file:{tmp_path / 'b.db'}", clock=clock) as bus:
        await bus.publish_many(numbered(20, first=100))
    with pytest.raises(tocsin.LakeError, match="another journal"):
        await testing.node(url=f"file:{tmp_path / 'b.db'}", clock=clock, lake=tmp_path / "a" / "lake").__aenter__()
    async with testing.node(url=f"file:{tmp_path / 'b.db'}", clock=clock) as bus:  # it was closed, and cleanly
        assert not bus._node.journal.crashed
    with pytest.raises(tocsin.LakeError, match="ends at 0"):
        await testing.node(url="memory:", clock=clock, lake=tmp_path / "a" / "lake").__aenter__()


def test_blocking_face_takes_a_lake(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    with tocsin.sync.connect(url, lake=tmp_path / "lake") as bus:
        bus.publish_many(numbered(10))
        archive(tmp_path)
        assert bus.trim(archived=True) == 11
        got = list(bus.subscribe("TRUE", consumer="a", past=3, order="journal", timeout=0.2))
        assert ids(got) == ["8", "9", "10"]
    assert Lake(tmp_path / "lake").last == 10

"""Where a commit is made: on the loop if it is small and the disk is quick, else on the journal's own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, numbered, soon
from tocsin.delivery.keeper import Keeper
from tocsin.delivery.mailbox import Mailbox
from tocsin.delivery.owners import Options
from tocsin.errors import JournalError
from tocsin.journal.contract import Note


@asynccontextmanager
async def watched(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Any, list[bool]]]:
    """A bus on a file, and for each commit with events whether the loop has made it."""
    async with tocsin.connect(f"file:{tmp_path / 'a.db'}", **options) as bus:
        here, loop = [], threading.get_ident()
        bus._node.journal.listeners.append(lambda news: here.append(threading.get_ident() == loop))
        yield bus, here


@contextmanager
def stuck(bus: Any) -> Iterator[threading.Event]:
    """Inside, a commit waits until the event is set."""
    store, go_on = bus._node.journal._store, threading.Event()
    real = store.write

    def write(draft: Any) -> None:
        assert go_on.wait(20)
        real(draft)

    store.write = write
    try:
        yield go_on
    finally:
        go_on.set()
        del store.write


async def test_a_small_commit_is_made_on_the_loop(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        bus._node._promptly._not_before = 0.0
        await bus.publish(event("1"))
        await asyncio.gather(*(bus.publish(each) for each in numbered(5, first=2)))
        assert here[0] and len(here) <= 6, "what comes in one turn shares a commit, unless the first took long"
        assert bus._node.head == 6


@pytest.mark.parametrize(
    "many",
    [
        numbered(65),
        [event(str(n), data="x" * 50_000) for n in range(4)],
        [event("small"), event("large", data="x" * 500_000)],
    ],
    ids=["events", "bytes", "small-first"],
)
async def test_a_large_one_is_the_threads(tmp_path: Path, many: list[Any]) -> None:
    async with watched(tmp_path) as (bus, here):
        await bus.publish_many(many)
        assert here == [False]


async def test_what_comes_with_a_large_one_is_the_threads_too(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        await asyncio.gather(bus.publish(event("small")), bus.publish_many(numbered(5_000)), bus.publish(event("next")))
        assert not any(here), "the loop leaves to the thread what that was woken for"
        assert bus._node.head == 5_002


async def test_what_slow_commits_take_is_owed_and_while_it_is_much_the_thread_commits(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        promptly, store = bus._node._promptly, bus._node.journal._store
        promptly._not_before = promptly._paid_at = 0.0
        real = store.write

        def slow(draft: Any) -> None:
            time.sleep(0.01)  # the disk, of which there is no other
            real(draft)

        store.write = slow
        began = time.perf_counter()
        await bus.publish(event("1"))
        del store.write
        assert here == [True] and promptly._paid_at >= began + 1.0, "a hundred times as long"
        promptly._paid_at = time.perf_counter() + 1.0
        await bus.publish(event("2"))
        assert here[1:] == [True], "10 ms are no reason"
        promptly._paid_at = time.perf_counter() + 100.0
        await bus.publish(event("3"))
        assert here[2:] == [False]


async def test_many_notes_are_the_threads_too(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, _):
        node = bus._node
        node._promptly._not_before = 0.0
        at: list[bool] = []
        real, loop = node.journal._store.write, threading.get_ident()
        node.journal._store.write = lambda draft: (at.append(threading.get_ident() == loop), real(draft))
        await soon(node.store(notes=[Note(1, 1, "published", "me")] * 65))
        del node.journal._store.write
        assert at == [False]


async def test_a_delay_for_company_is_the_threads(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        bus._node.journal._committer._delay = 0.001
        await bus.publish(event("1"))
        assert here == [False]


async def test_what_is_not_persistent_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, _):
        with stuck(bus) as go_on:
            answer = await soon(bus.publish(event("1", persistent=False)))
            assert answer.offset == 1 and not go_on.is_set()


async def test_the_loop_goes_on_while_the_thread_waits_for_the_disk(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, _):
        bus._node._promptly._not_before = float("inf")
        with stuck(bus) as go_on:
            first = asyncio.ensure_future(bus.publish(event("1")))
            second = asyncio.ensure_future(bus.publish(event("2")))
            await asyncio.sleep(0)
            bus._node._promptly._not_before = 0.0
            third = asyncio.ensure_future(bus.publish(event("3")))  # the thread has the pen: it is left to it
            for _ in range(10):
                await asyncio.sleep(0)
            assert not first.done()
            go_on.set()
            answers = await soon(asyncio.gather(first, second, third))
        assert [each.offset for each in answers] == [1, 2, 3]


async def test_a_failed_write_is_told_to_who_came_meanwhile() -> None:
    """Else nobody would write again, and they would wait for ever."""
    answers: list[asyncio.Future[list[int]]] = []

    def store(**_: Any) -> asyncio.Future[list[int]]:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    mailbox = Mailbox("ops", Options())
    keeper = Keeper(store, lambda: 1, {"ops": mailbox}, lambda _: None)
    first = keeper.save(mailbox)
    await asyncio.sleep(0)
    second = keeper.save(mailbox)
    assert first is not second
    answers[0].set_exception(JournalError("the disk is full"))
    for done in (first, second):
        with pytest.raises(JournalError, match="full"):
            await soon(asyncio.shield(done))
    third = keeper.save(mailbox)
    await asyncio.sleep(0)
    answers[1].set_result([])
    await soon(asyncio.shield(third))


# -- which of the two, and when


async def test_small_ones_do_not_make_the_time_longer_in_which_the_thread_commits(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        promptly = bus._node._promptly
        until = promptly._not_before = time.perf_counter() + 100.0
        await bus.publish(event("1"))
        assert promptly._not_before == until and here == [False]


async def test_the_loop_commits_also_while_the_thread_is_awake_and_writes_nothing(tmp_path: Path) -> None:
    async with watched(tmp_path) as (bus, here):
        bus._node._promptly._not_before = 0.0
        bus._node.journal._committer._idle = False
        await soon(bus.publish(event("1")))
        assert here == [True]


async def test_what_holds_no_events_shares_the_next_ones_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.node.promptly._COMPANY", 60.0)
    async with watched(tmp_path) as (bus, here):
        node = bus._node
        for number in range(3):  # now they come often
            node._promptly._not_before = 0.0
            await bus.publish(event(str(number)))
        node._promptly._not_before, before = 0.0, node.journal.stats()["commits"]
        stored = [node.store(state={f"test/{number}": b"1"}) for number in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(each.done() for each in stored) and node.journal.stats()["commits"] == before
        await soon(asyncio.gather(bus.publish(event("next")), *stored))
        assert node.journal.stats()["commits"] == before + 1 and here[-1]
        assert node.journal.state("test/") == {"test/0": b"1", "test/1": b"1"}


async def test_if_no_events_come_nothing_waits_for_them_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path) as (bus, _):
        promptly = bus._node._promptly
        promptly._not_before, promptly._between, promptly._last = 0.0, 0.0, time.perf_counter() + 60.0
        await soon(bus._node.store(state={"test/a": b"1"}))  # they did, but come no more
        monkeypatch.setattr("tocsin.node.promptly._COMPANY", 60.0)
        promptly._not_before, promptly._between, promptly._last = 0.0, 1e9, 0.0
        await soon(bus._node.store(state={"test/b": b"1"}))  # they never did
        promptly._not_before, promptly._between, promptly._last = 0.0, 0.0, time.perf_counter()
        waiting = bus._node.store(state={"test/c": b"1"})
        await soon(bus.publish_many(numbered(100)))  # the thread takes what waits with a large one
        await soon(waiting)
        assert set(bus._node.journal.state("test/")) == {"test/a", "test/b", "test/c"}

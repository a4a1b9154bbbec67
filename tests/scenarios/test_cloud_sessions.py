"""Scenarios 35 to 46 and 48 of the elastic cloud's digest (cloud.md, section 8): sessions, over real sockets.

Its words become ours: subscriber → a connection with a consumer, register → connect, disconnect → close, unregister →
`forget`, unpublish → `cancel`, InitialMatches → `past=retained()`, queue → what waits for a consumer, stats → what
`consumers()` and the matcher tell. Counters are not reset: who wants a span takes the difference. Decided where the
digest has gaps: what a publisher has published outlives its connection (45); a full queue stays in the journal (43).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed

import tocsin
from tests.helpers import ack_all, event, ids, notices, numbered, soon
from tests.proxy import proxy
from tocsin.delivery.lane import CAPACITY
from tocsin.net import serve

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def broker(clock: Any = None) -> AsyncIterator[tuple[Any, str]]:
    """A node behind a socket, and its address."""
    async with tocsin.connect("memory:", name="broker", clock=clock) as node, serve(node) as server:
        yield node, server.url


@contextmanager
def leader(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A broker as a process that leads a session of its own; it says its address."""
    command = [sys.executable, "-m", "tests.crash.network_programs", "server", f"file:{path}", "0"]
    here = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=here, stdout=pipe, text=True, start_new_session=True) as child:
        try:
            yield child
        finally:
            child.kill()


async def received(sub: Any, count: int) -> list[Any]:
    """The next so many, settled; nothing comes after them."""
    got = [await soon(sub.next()) for _ in range(count)]
    await ack_all(got)
    return [*got, *await rest(sub)]


async def rest(sub: Any) -> list[Any]:
    """What else is there, when the node has said all it has to say."""
    await sub.post.link.ping()
    return list(iter(sub.poll, None))


async def known(node: Any, name: str) -> Any:
    return next(each for each in await node.consumers() if each.name == name)


async def until(node: Any, name: str, *, is_open: bool) -> None:
    """Wait until the node knows whether somebody listens."""
    async with asyncio.timeout(20):
        while (await known(node, name)).open is not is_open:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


async def test_scenario_35_a_match_comes_by_the_subscribers_own_connection() -> None:
    async with broker() as (_, url), tocsin.connect(url, name="s1") as one, tocsin.connect(url, name="s2") as two:
        mine = await one.subscribe("n > 1", consumer="s1")
        other = await two.subscribe("n > 5", consumer="s2")
        async with tocsin.connect(url, name="p") as publisher:
            await publisher.publish_many(numbered(2))
        assert ids(await received(mine, 1)) == ["2"]
        assert await rest(other) == []


async def test_scenario_36_what_matched_while_away_comes_after_reconnecting() -> None:
    async with broker() as (node, url):
        async with tocsin.connect(url, name="s1") as subscriber:
            await subscriber.subscribe("n > 0", consumer="s1")
        await node.publish_many(numbered(3))
        assert (await known(node, "s1")).lag == 3, "it matches, though nobody is there"
        async with tocsin.connect(url, name="s1") as subscriber:
            again = await subscriber.subscribe("n > 0", consumer="s1")
            assert ids(await received(again, 3)) == ["1", "2", "3"]


async def test_scenario_37_unregistering_forgets_everything_of_one_and_nothing_of_others() -> None:
    async with broker() as (node, url), tocsin.connect(url, name="s2") as stays:
        other = await stays.subscribe("n > 0", consumer="s2")
        async with tocsin.connect(url, name="s1") as leaves:
            await leaves.subscribe("n > 0", consumer="s1")
            await leaves.subscribe("n > 1", consumer="s1")
            await node.publish_many(numbered(2))
            await leaves.forget("s1")
        assert [each.name for each in await node.consumers()] == ["s2"]
        assert node._node.lanes._matcher.match(numbered(2)[1].replace(offset=9)) != []
        assert len(node._node.lanes._matcher) == 1
        async with tocsin.connect(url, name="s1") as back:
            fresh = await back.subscribe("n > 7", consumer="s1")
            published = await node.publish(event("3", data={"n": 3}))
            assert await rest(fresh) == []
            assert (await node.status(published.id)).matched == ["s2"]
        assert ids(await received(other, 3)) == ["1", "2", "3"]


async def test_scenario_38_unsubscribing_one_of_two_leaves_the_other() -> None:
    async with broker() as (node, url), tocsin.connect(url, name="s1") as subscriber:
        low = await subscriber.subscribe("n < 5", consumer="s1")
        high = await subscriber.subscribe("n >= 5", consumer="s1")
        await subscriber.unsubscribe("s1", low.id)
        await node.publish_many(numbered(9))
        assert ids(await received(high, 5)) == ["5", "6", "7", "8", "9"]
        with pytest.raises(tocsin.DeliveryError, match="closed"):
            await soon(low.next())


async def test_scenario_39_publication_first_and_subscription_later(clock: Any) -> None:
    async with broker(clock) as (node, url), tocsin.connect(url, name="s1") as subscriber:
        await node.publish_many([event("valid", ttl=100), event("expired", ttl=10), event("for ever")])
        clock.advance(11)
        sub = await subscriber.subscribe("TRUE", consumer="s1", past=tocsin.retained())
        got = await received(sub, 2)
        assert [(d.event.id, d.replayed) for d in got] == [("valid", True), ("for ever", True)]


async def test_scenario_40_two_subscriptions_of_one_subscriber_one_notification() -> None:
    async with broker() as (node, url), tocsin.connect(url, name="s1") as subscriber:
        subs = [await subscriber.subscribe(text, consumer="s1") for text in ("n > 0", "n < 9", "TRUE")]
        await node.publish_many(numbered(1))
        assert ids(await received(subs[0], 1)) == ["1"]
        assert [await rest(sub) for sub in subs] == [[], [], []], "not after the first was settled either"


async def test_scenario_41_unpublished_while_queued_and_after_delivery() -> None:
    async with (
        broker() as (_, url),
        tocsin.connect(url, name="p") as publisher,
        tocsin.connect(url, name="s1") as one,
        tocsin.connect(url, name="s2") as two,
    ):
        taker = await one.subscribe("TRUE", consumer="s1")
        sleeper = await two.subscribe("TRUE", consumer="s2")
        await publisher.publish(event("a"))
        assert ids(await received(taker, 1)) == ["a"]
        await publisher.cancel("a")
        assert notices([await soon(taker.next())]) == [("tocsin.cancelled", "a")]
        assert await rest(sleeper) == [], "it lay in its buffer, and was withdrawn"
        late = await two.subscribe("TRUE", consumer="late", past=tocsin.retained())
        assert await rest(late) == []


async def test_scenario_42_a_connection_that_breaks_is_a_disconnection() -> None:
    async with broker() as (node, url), proxy(url) as way, tocsin.connect(way.url, name="s1") as subscriber:
        sub = await subscriber.subscribe("TRUE", consumer="s1")
        await node.publish(event("in hand"))
        in_hand = await soon(sub.next())
        way.cut()
        await until(node, "s1", is_open=False)
        await node.publish_many(numbered(2))
        assert (await known(node, "s1")).lag == 3
        way.mend()
        await until(node, "s1", is_open=True)
        await soon(in_hand.ack())
        assert ids(await received(sub, 2)) == ["1", "2"]


async def test_scenario_43_a_full_queue_stays_in_the_journal_and_others_do_not_notice() -> None:
    count = CAPACITY + 300
    async with broker() as (node, url), tocsin.connect(url, name="s1") as one, tocsin.connect(url, name="s2") as two:
        stopped = await one.subscribe("TRUE", consumer="stopped")
        busy = await two.subscribe("TRUE", consumer="busy")
        got: list[str] = []

        async def consume() -> None:
            async for batch in busy.batches(500):
                await batch.ack()
                got.extend(ids(batch))
                if len(got) >= count:
                    return

        consuming = asyncio.ensure_future(consume())
        for first in range(1, count + 1, 500):
            await node.publish_many(numbered(min(500, count + 1 - first), first=first))
        await soon(consuming)
        assert got == [str(n) for n in range(1, count + 1)]
        about = await known(node, "stopped")
        assert (about.lag, about.in_flight, about.delivered) == (count, 0, 0), "how far it is behind can be seen"
        waiting = node._node.mailboxes["stopped"]
        assert max(len(queue) for lane in waiting.lanes.values() for queue in lane.queues) <= CAPACITY
        first = [await soon(stopped.next()) for _ in range(3)]
        assert ids(first) == ["1", "2", "3"]


@pytest.mark.parametrize("message", [b"\x81\xa2op\xa7publish", b"", b"GET / HTTP/1.1", b"\x00" * 100])
async def test_scenario_44_who_does_not_say_hello_first_is_shown_out(message: bytes) -> None:
    async with broker() as (node, url), tocsin.connect(url, name="s1") as subscriber:
        sub = await subscriber.subscribe("TRUE", consumer="s1")
        async with ws_connect(f"{url}/bus", subprotocols=["tocsin.1.msgpack"]) as stranger:  # type: ignore[list-item]
            await stranger.send(message)
            with pytest.raises(ConnectionClosed):
                while True:
                    await soon(stranger.recv())
            assert stranger.close_code == 4406
        await node.publish(event("a"))
        assert ids(await received(sub, 1)) == ["a"], "the broker lives"


async def test_scenario_45_publications_outlive_their_publisher(clock: Any) -> None:
    async with broker(clock) as (node, url), tocsin.connect(url, name="s1") as subscriber:
        async with tocsin.connect(url, name="p") as publisher:
            await publisher.publish_many(
                [event("short", ttl=10), event("unpublished", ttl=100), event("long", ttl=100)]
            )
        assert (await node.status("short")).state == "live"
        clock.advance(11)
        async with tocsin.connect(url, name="p") as publisher:
            await publisher.cancel("unpublished")
        states = [(await node.status(id)).state for id in ("short", "unpublished", "long")]
        assert states == ["expired", "cancelled", "live"]
        sub = await subscriber.subscribe("TRUE", consumer="s1", past=tocsin.retained())
        assert ids(await received(sub, 1)) == ["long"]


@pytest.mark.crash
async def test_scenario_46_when_the_broker_is_killed_no_process_of_it_stays(tmp_path: Path) -> None:
    with leader(tmp_path / "plant.db") as child:
        assert child.stdout is not None
        url = (await asyncio.to_thread(child.stdout.readline)).strip()
        async with tocsin.connect(url, name="s1", patience=0.2) as subscriber:
            await subscriber.publish(event("a"))
            os.kill(child.pid, signal.SIGKILL)
            await asyncio.to_thread(child.wait, 20)
            with pytest.raises(ProcessLookupError):  # the session it was the leader of is empty
                os.killpg(child.pid, 0)
            with pytest.raises(tocsin.ConnectionLostError):
                await soon(subscriber.publish(event("b")))
    async with tocsin.connect(f"file:{tmp_path / 'plant.db'}") as node:
        assert (await node.status("a")).state == "live", "what was answered is there"


async def test_scenario_48_figures_of_a_span() -> None:
    async with broker() as (node, url), tocsin.connect(url, name="s1") as subscriber:
        sub = await subscriber.subscribe("n > 2 AND n < 1000", consumer="s1")
        await subscriber.subscribe("n > 500", consumer="idle")
        await node.publish_many(numbered(10))
        await received(sub, 8)
        before, figures = await known(subscriber, "s1"), node._node.lanes._matcher.stats()
        await node.publish_many(numbered(4, first=11))
        got = await received(sub, 4)
        after, since = await known(subscriber, "s1"), node._node.lanes._matcher.stats()
        assert (after.delivered - before.delivered, after.settled - before.settled) == (len(got), 4)
        assert (after.lag, after.in_flight, after.redelivered, after.dead) == (0, 0, 0, 0)
        assert (await known(subscriber, "idle")).delivered == 0
        assert since["filters"] == 2
        assert (since["events"] - figures["events"], since["matched"] - figures["matched"]) == (4, 4)

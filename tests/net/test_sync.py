"""`tocsin.sync` with a node elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import tocsin
from tests.helpers import event, ids, numbered
from tocsin.net import serve


@pytest.fixture
def server_url() -> Iterator[str]:
    """A server on another thread's loop."""
    loop, stop, found = asyncio.new_event_loop(), asyncio.Event(), []
    ready = threading.Event()

    async def live() -> None:
        async with tocsin.connect("memory:") as bus, serve(bus) as server:
            found.append(server.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[live()])
    thread.start()
    assert ready.wait(30)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_the_same_verbs(server_url: str) -> None:
    with tocsin.sync.connect(server_url, name="me") as bus:
        assert bus.name == "me"
        receipts = bus.receipts()
        sub = bus.subscribe("n > 1", consumer="ops", order="journal", timeout=0.5)
        first, second, _ = bus.publish_many(numbered(3, ack="receipt"))
        assert second.offset == first.offset + 1
        got = []
        for delivery in sub:
            delivery.ack()
            got.append(delivery)
        assert ids(got) == ["2", "3"]
        assert sorted([receipts.next(5).id, receipts.next(5).id]) == ["2", "3"]
        assert bus.status("2").state == "settled"
        with pytest.raises(tocsin.CancelError):
            bus.as_user("other").cancel("3")
        bus.cancel("3")
        assert bus.publish(event("x")).offset > 3
    with pytest.raises(tocsin.JournalError, match="closed"):
        bus.publish(event("y"))


def test_peers(server_url: str) -> None:
    with tocsin.sync.connect(server_url, name="a") as a, tocsin.sync.connect(server_url, name="b") as b:
        changes = a.resources(timeout=5)
        assert changes.poll() is None
        b.advertise("v > 1")
        assert changes.next(5).kind == "found"
        nobody = b.demand("v > 1")
        assert not nobody
        sub = a.subscribe("v > 2")
        wanted = nobody.changed(5)
        assert wanted and len(wanted.consumers) == 1
        sub.close()
        with b.serve("r", lambda request: {"twice": 2 * b.request("inner", request.data)}) as served:
            assert served.resource == "r"
            with a.serve("inner", lambda request: request.data + 1):
                assert a.request("r", 4, timeout=5) == {"twice": 10}
            with pytest.raises(tocsin.RequestFailed, match="NoServer"):
                a.request("r", 4, timeout=5)
        with a.join("g", timeout=5) as one:
            with b.join("g", timeout=0.2) as two:
                assert two.view.members == ("a", "b")
                two.cast("hi")
                assert [getattr(each, "data", "view") for each in two] == ["view", "hi"]
            seen = [one.next(5) for _ in range(4)]
            assert [getattr(each, "data", "view") for each in seen] == ["view", "view", "hi", "view"]
        with pytest.raises(tocsin.GroupError):
            one.cast("gone")
        changes.close()


def test_batches(server_url: str) -> None:
    with tocsin.sync.connect(server_url) as bus:
        sub = bus.subscribe("TRUE", consumer="ops", timeout=0.5)
        bus.publish_many(numbered(50))
        count = 0
        for batch in sub.batches(20):
            batch.ack()
            count += len(batch)
        assert count == 50

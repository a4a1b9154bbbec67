"""`tocsin.sync`: the same verbs, blocking."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import pytest

import tocsin
from tests.helpers import event, ids, numbered
from tocsin.peers.groups import View


def test_publish_subscribe_settle(url: str) -> None:
    with tocsin.sync.connect(url) as bus:
        sub = bus.subscribe("n > 1", consumer="ops", order="journal")
        first, second, _ = bus.publish_many(numbered(3))
        assert second.offset == first.offset + 1
        d = sub.next(timeout=20)
        assert (d.event.id, d.attempt) == ("2", 1)
        d.ack()
        assert bus.status("2").acked
        assert sub.next(timeout=20).event.id == "3"


def test_waiting_ends_at_its_timeout(url: str) -> None:
    with tocsin.sync.connect(url) as bus:
        sub = bus.subscribe("TRUE", consumer="ops")
        with pytest.raises(TimeoutError):
            sub.next(timeout=0.01)
        bus.publish(event("a"))
        assert sub.next(timeout=20).event.id == "a"


def test_past_and_poll(url: str) -> None:
    with tocsin.sync.connect(url) as bus:
        bus.publish_many(numbered(10))
        sub = bus.subscribe("TRUE", consumer="ops", past=tocsin.last(3), order="journal")
        assert ids(iter(sub.poll, None)) == ["8", "9", "10"]


def test_errors_are_the_same(url: str) -> None:
    with tocsin.sync.connect(url) as bus, pytest.raises(tocsin.UnknownEventError):
        bus.cancel("nothing")


def test_many_threads_share_one_bus(url: str) -> None:
    with tocsin.sync.connect(url) as bus:
        sub = bus.subscribe("TRUE", consumer="ops", max_in_flight=1000)

        def publisher(name: str) -> None:
            for n in range(25):
                bus.publish(event(str(n), source=name))

        threads = [threading.Thread(target=publisher, args=(f"line/{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        got = {(d.event.source, d.event.id) for d in (sub.next(timeout=20) for _ in range(100))}
        for thread in threads:
            thread.join()
        assert len(got) == 100


def test_file_is_free_again_after_the_block(file_url: str) -> None:
    for n in range(3):
        with tocsin.sync.connect(file_url) as bus:
            bus.publish(event(str(n)))
    with tocsin.sync.connect(file_url) as bus:
        sub = bus.subscribe("TRUE", consumer="ops", past=tocsin.retained(), order="journal")
        assert ids(iter(sub.poll, None)) == ["0", "1", "2"]


def test_closed_bus_says_so_and_may_be_closed_again(url: str) -> None:
    with tocsin.sync.connect(url) as bus:
        sub = bus.subscribe("TRUE", consumer="ops")
        bus.publish(event("a"))
        d = sub.next(timeout=20)
    for verb in (lambda: bus.publish(event("b")), lambda: bus.status("a"), sub.poll, sub.next, d.ack):
        with pytest.raises(tocsin.JournalError, match="closed"):
            verb()
    sub.close()
    bus.close()


def test_waiting_threads_end_with_the_bus(url: str) -> None:
    ends: list[str] = []
    with tocsin.sync.connect(url) as bus:
        sub, receipts, ready = bus.subscribe("TRUE", consumer="ops"), bus.receipts(), threading.Barrier(4)

        def wait(for_what: Any) -> None:
            ready.wait()
            try:
                for_what()
            except tocsin.TocsinError as error:
                ends.append(type(error).__name__)

        threads = [threading.Thread(target=wait, args=(each,)) for each in (sub.next, receipts.next, lambda: [*sub])]
        for thread in threads:
            thread.start()
        ready.wait()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert "JournalError" in ends


def test_thread_ends_also_if_closing_fails(file_url: str) -> None:
    def write(_: Any) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with pytest.raises(tocsin.JournalFullError), tocsin.sync.connect(file_url) as bus:
        bus.subscribe("TRUE", consumer="ops")
        bus._inner._node.journal._store.write = write  # type: ignore[attr-defined]
    assert "tocsin-node" not in [thread.name for thread in threading.enumerate()]


def test_who_is_there(url: str) -> None:
    with tocsin.sync.connect(url, name="me") as bus:
        other = bus.as_user("other")
        changes = bus.resources(timeout=0.01)
        other.advertise("v > 1")
        assert not bus.demand("v > 1")
        with bus.subscribe("v > 3", consumer="ops"):
            assert bus.demand("v > 1").consumers == ("ops",)
        other.unadvertise("v > 1")
        assert [change.kind for change in changes] == ["found", "depleted"]
        with pytest.raises(TimeoutError):
            changes.next(timeout=0.01)
        assert changes.poll() is None
        changes.close()
        assert list(changes) == []
        with pytest.raises(TimeoutError):
            bus.demand("v > 99").changed(timeout=0.01)


def test_a_blocking_handler_may_ask_in_its_turn(url: str) -> None:
    with tocsin.sync.connect(url, name="me") as bus:

        def double(request: Any) -> int:
            return 2 * int(request.data)

        def twice(request: Any) -> Any:
            return bus.request("double", bus.request("double", request.data))

        with bus.serve("double", double), bus.serve("twice", twice):
            assert bus.request("twice", 5, timeout=20) == 20
            assert bus.request("double", 1, policy="all") == [2]
        with pytest.raises(tocsin.NoServer):
            bus.request("double", 1)


def test_a_group(url: str) -> None:
    with tocsin.sync.connect(url, name="me") as bus, bus.join("g", timeout=0.1) as group:
        other = bus.as_user("other")
        with other.join("g") as theirs:
            theirs.cast("hello")
            assert group.view.members == ("me", "other")
        got = [item.members if isinstance(item, View) else item.data for item in group]
        assert got == [("me",), ("me", "other"), "hello", ("me",)]
        with pytest.raises(TimeoutError):
            group.next(timeout=0.01)
        other.close()
        group.leave()
        assert list(group) == []
        with pytest.raises(tocsin.GroupError):
            group.cast(1)

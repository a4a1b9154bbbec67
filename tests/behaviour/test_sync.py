"""`tocsin.sync`: the same verbs, blocking."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import pytest

import tocsin
from tests.helpers import event, ids, numbered


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

"""`tocsin.sync`: the same verbs, blocking."""

from __future__ import annotations

import threading

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

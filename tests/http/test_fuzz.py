"""Odd bytes, heads, queries and bodies at every route: never a 500, never a hang, and nothing grows."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.support import Place, served
from tocsin.net.http.table import OPERATIONS

PATIENCE = 0.4
"""Seconds the server waits for the rest of a head or a body."""


class Fuzzed:
    """A server on a thread of its own, and what it complains of."""

    def __init__(self) -> None:
        self.place: Place
        self.ready, self.end = threading.Event(), threading.Event()
        self.complaints: list[str] = []
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        async with served(hello=PATIENCE, stuck=5) as self.place:
            await self.place.bus.publish_many([])
            self._loop = asyncio.get_running_loop()
            self.ready.set()
            await asyncio.to_thread(self.end.wait)

    def looked_at(self) -> tuple[Any, ...]:
        """What must be as it was when nobody is there."""

        async def look() -> tuple[Any, ...]:
            front, node = self.place.server.http, self.place.server.node
            await asyncio.sleep(0)
            own = asyncio.current_task()
            tasks = sorted(str(task.get_coro()) for task in asyncio.all_tasks() if task is not own)
            callers = [each for each in self.place.server.gate._callers if not each.is_gone]
            rooms = (front.bodies.held, front.reads._value, len(front.streams), len(front.requests), len(callers))
            passing = sorted(name for name, each in node.mailboxes.items() if not each.options.durable)
            return rooms, passing, len(tasks)

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(20)

    def is_quiet(self, before: tuple[Any, ...]) -> bool:
        """Wait until everything is as it was."""
        gate = threading.Event()
        for _ in range(200):
            gc.collect()
            if self.looked_at() == before:
                return True
            gate.wait(0.02)
        return False


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    found = Fuzzed()
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.complaints.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    found.thread.start()
    try:
        assert found.ready.wait(20)
        before = found.looked_at()
        yield found
        assert found.is_quiet(before), (before, found.looked_at())
        assert found.complaints == []
    finally:
        found.end.set()
        found.thread.join(20)
        logging.getLogger().removeHandler(handler)


def ask(fuzzed: Fuzzed, raw: bytes, *, half_close: bool = False) -> tuple[int, bytes]:
    """Send bytes; status and what came, as far as there is an answer. 0: the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", fuzzed.place.port), timeout=10) as peer:
        peer.sendall(raw)
        if half_close:
            peer.shutdown(socket.SHUT_WR)
        text = b""
        try:
            while b"\r\n\r\n" not in text and (part := peer.recv(65_536)):
                text += part
            head, _, body = text.partition(b"\r\n\r\n")
            if b"content-type: text/event-stream" not in head and b"content-length: " in head:
                size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
                while len(body) < size and (part := peer.recv(65_536)):
                    body += part
        except ConnectionError:
            return 0, b""
    return (int(head.split()[1]), body) if head.startswith(b"HTTP/1.1 ") else (0, b"")


def check(fuzzed: Fuzzed, raw: bytes, *, half_close: bool = False) -> None:
    status, body = ask(fuzzed, raw, half_close=half_close)
    assert status == 0 or 100 <= status < 500 or status == 504, (status, body)
    if status >= 400 and not raw.startswith(b"HEAD"):
        assert json.loads(body).keys() >= {"error", "message", "field", "position", "help"}


NAMES = sorted({param.name for each in OPERATIONS for param in each.query} | {"token", "x", ""})
VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["0", "1", "-1", "true", "1e9", "9" * 18, "9" * 30, "NaN", "10,5m", "since:1", "since:", "retained", "journal"]
        + [
            "type = 'a'",
            "n > 1 AND",
            "((((",
            "x LIKE '%'",
            "2026-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "all",
            "\x00",
        ]
    ),
    st.integers().map(str),
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ["id", "source", "type", "specversion", "priority", "ttl", "ack", "time", "data", "data_base64", "offset"]
CLOUDS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSONS | st.just("1.0"), max_size=8)
BODIES = st.one_of(
    st.binary(max_size=200),
    (JSONS | CLOUDS | st.lists(CLOUDS, max_size=3)).map(lambda each: json.dumps(each).encode()),
)
KINDS = [
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
    "application/json",
    "text/plain",
    ";",
    "a/b",
]
HEADERS = st.lists(
    st.one_of(
        st.tuples(st.just("content-type"), st.sampled_from(KINDS)),
        st.tuples(st.just("accept"), st.sampled_from(["*/*", "application/vnd.apache.arrow.stream", "x", ",;,", ""])),
        st.tuples(st.sampled_from([f"ce-{name}" for name in FIELDS]), st.text('a%é1.0 "\\', max_size=12)),
        st.tuples(
            st.sampled_from(["last-event-id", "authorization", "tocsin-name", "origin", "host", "expect", "range"]),
            st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
        ),
        st.tuples(
            st.sampled_from(["content-encoding", "transfer-encoding"]), st.sampled_from(["gzip", "identity", "x"])
        ),
    ),
    max_size=6,
)


@st.composite
def questions(draw: st.DrawFn) -> bytes:
    """A request that is well-formed as HTTP, and odd in everything else."""
    operation = draw(st.sampled_from(OPERATIONS))
    name = quote(draw(VALUES), safe=draw(st.sampled_from(["", "/%"]))) or "a"
    path = operation.path.replace(":path", "").format(id=name, name=name, resource=name, path=name)
    query = draw(
        st.lists(st.tuples(st.sampled_from([each.name for each in operation.query] or NAMES), VALUES), max_size=4)
    )
    if draw(st.integers(0, 9)) == 0:
        query.append((draw(st.sampled_from(NAMES)), draw(VALUES)))
    if path.startswith("/requests"):
        query.append(("timeout", "0.01"))
    text = "&".join(f"{quote(key)}={quote(value)}" for key, value in query)
    method = operation.method if draw(st.integers(0, 9)) else draw(st.sampled_from(["PATCH", "OPTIONS", "HEAD", "GET"]))
    body = draw(BODIES)
    host = draw(st.sampled_from(["127.0.0.1"] * 8 + ["[", "a:b:c", ""]))
    lines = [f"{method} {path}?{text} HTTP/1.1", f"host: {host}", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{key}: {value}" for key, value in draw(HEADERS)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


@given(questions())
def test_odd_questions(fuzzed: Fuzzed, raw: bytes) -> None:
    check(fuzzed, raw)


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda each: b"GET /events HTTP/1.1\r\n" + each))
def test_odd_bytes(fuzzed: Fuzzed, raw: bytes) -> None:
    check(fuzzed, raw, half_close=True)


@given(questions(), st.integers(1, 400))
def test_connections_that_break_off(fuzzed: Fuzzed, raw: bytes, place: int) -> None:
    with socket.create_connection(("127.0.0.1", fuzzed.place.port), timeout=10) as peer:
        peer.sendall(raw[:place])


@given(questions(), st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)), min_size=1, max_size=5))
def test_changed_bytes(fuzzed: Fuzzed, raw: bytes, changes: list[tuple[int, bytes]]) -> None:
    for place, change in changes:
        raw = raw[:place] + change + raw[place + len(change) :]
    check(fuzzed, raw, half_close=True)

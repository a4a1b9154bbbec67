"""A node read over a network that breaks: nothing is missing and nothing comes twice. No Spark is needed for this."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import numbered
from tests.http.support import Place, served
from tests.proxy import Proxy, proxy
from tocsin.errors import FilterLimitError, JournalError, NetworkError, OverloadError, TrimmedError
from tocsin.journal import rows
from tocsin.security.limits import Allowance
from tocsin.security.tokens import TokenStore

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.spark.asking import Address, Asker, Lost, Patience
from tocsin.spark.distant import NodeOrigin, Wanted
from tocsin.spark.origin import open_origin

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def keep() -> Iterator[Any]:
    """Makes things that are closed in the end."""
    made: list[Any] = []

    def make(kind: Any, *arguments: Any) -> Any:
        made.append(kind(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def filled(place: Place, count: int, size: int = 0) -> None:
    for first in range(1, count + 1, 500):
        some = numbered(min(500, count + 1 - first), first)
        await place.bus.publish_many([each.replace(data={"n": int(each.id), "x": "x" * size}) for each in some])


def offsets(origin: NodeOrigin, first: int, last: int) -> Iterator[int]:
    """Offsets of the events; on the way it is checked that blocks leave nothing out."""
    expected = first
    for block in origin.blocks(first, last):
        assert block.first == expected
        expected = block.last + 1
        yield from block.batch(("offset",)).column("offset").to_pylist()
    assert expected == last + 1


async def test_answers_that_break_off_are_gone_on_with(file_url: str, keep: Any) -> None:
    chance = random.Random(3)
    async with served(file_url) as place, proxy(place.url) as way:
        await filled(place, 6_000, size=5_000)
        url = way.url.replace("ws:", "http:")
        origin = keep(NodeOrigin, Address(url, patience=20), Wanted(columns=("offset", "data")))

        def read() -> list[int]:
            found = []
            for offset in offsets(origin, 3, 5_990):
                found.append(offset)
                if offset % 700 == 0:
                    time.sleep(0.01)  # so that there is something to break
            return found

        reading = asyncio.ensure_future(asyncio.to_thread(read))
        snaps = await broken(way, reading, chance)
        assert await reading == list(range(3, 5_991))
        assert min(snaps, way.count) > 2, "it was broken, and connected again"
        origin.close()


async def broken(way: Proxy, until: Any, chance: random.Random) -> int:
    """Break connections, again and again, each after some bytes."""
    for snaps in itertools.count():
        passed, size = way.passed, chance.randrange(4_500_000, 7_000_000)  # a batch has 4 MiB
        while way.passed < passed + size and not until.done():  # noqa: ASYNC110 - nobody tells of bytes
            await asyncio.sleep(0.001)
        if until.done():
            return snaps
        if snaps % 3:
            way.snap()
        else:
            way.cut()
            await asyncio.sleep(0.2)
            way.mend()
    raise AssertionError


async def test_what_is_wanted_is_what_comes(url: str, keep: Any) -> None:
    async with served(url) as place:
        await filled(place, 1_000)
        origin = keep(NodeOrigin, Address(place.url), Wanted("n % 10 = 0", columns=("id",)))
        assert await asyncio.to_thread(lambda: list(offsets(origin, 1, 1_000))) == list(range(10, 1_001, 10))
        blocks = await asyncio.to_thread(lambda: list(origin.blocks(500, 520)))
        assert [each for block in blocks for each in block.batch(("id",)).column("id").to_pylist()] == [
            "500",
            "510",
            "520",
        ]
        nothing = keep(NodeOrigin, Address(place.url), Wanted("n < 0"))
        [only] = await asyncio.to_thread(lambda: list(nothing.blocks(5, 7)))
        assert (only.first, only.last, only.events(), only.batch().schema) == (5, 7, [], rows.SCHEMA)
        assert await asyncio.to_thread(lambda: (origin.first, origin.head)) == (1, 1_000)


async def test_a_filter_that_the_token_may_not_ask_is_left_to_the_reader(tmp_path: Path, keep: Any) -> None:
    tokens = TokenStore(tmp_path / "tokens.json")
    token = tokens.add("ann", ["subscribe:*"], limits=Allowance(predicates=2))[0]
    costly = "(n = 1 OR id = 'b') AND (x = 'c' OR type = 'd')"
    async with served(tokens=tokens) as place:
        await filled(place, 20)
        origin = keep(NodeOrigin, Address(place.url, token), Wanted(costly))
        assert await asyncio.to_thread(lambda: list(offsets(origin, 1, 20))) == list(range(1, 21))
        with pytest.raises(FilterLimitError):
            await asyncio.to_thread(keep(Asker, Address(place.url, token)).ask, "GET", "/events", {"filter": costly})


async def test_what_was_trimmed_is_told(file_url: str, keep: Any) -> None:
    async with served(file_url) as place:
        await filled(place, 1_000)
        origin = keep(NodeOrigin, Address(place.url))
        assert await asyncio.to_thread(lambda: origin.first) == 1
        await asyncio.to_thread(place.bus._node.journal.trim, 501)
        with pytest.raises(TrimmedError):
            await asyncio.to_thread(lambda: list(origin.blocks(200, 600)))
        assert await asyncio.to_thread(lambda: origin.first) == 501
        [first, *_] = await asyncio.to_thread(lambda: list(origin.blocks(1, 600)))
        assert first.first == 501, "asked for the first, it begins with what there is"


async def test_times_become_offsets(keep: Any) -> None:
    async with served() as place:
        await filled(place, 1)
        await filled(place, 0)
        origin = keep(NodeOrigin, Address(place.url))
        [block] = place.bus._node.journal.blocks()
        at = block.arrived[0]
        moments = [-(2**63), 0, at, at + 1, 2**63 - 1]
        assert await asyncio.to_thread(lambda: [origin.offset_at(each) for each in moments]) == [1, 1, 1, 2, 2]
        with pytest.raises(JournalError, match="file:plant.db"):
            origin.state()


async def test_a_node_without_room_is_asked_again(tmp_path: Path, keep: Any) -> None:
    tokens = TokenStore(tmp_path / "tokens.json")
    token = tokens.add("ann", ["subscribe:*"], limits=Allowance(calls=3))[0]
    async with served(tokens=tokens) as place:
        asker = keep(Asker, Address(place.url, token))
        for _ in range(5):  # more than it may in a second
            await asyncio.to_thread(asker.ask, "GET", "/events", {"to": "0"})
        hasty = keep(Asker, Address(place.url, token, patience=0))
        with pytest.raises(OverloadError, match="calls a second"):
            for _ in range(5):
                await asyncio.to_thread(hasty.ask, "GET", "/events", {"to": "0"})


async def test_what_is_no_node_is_told() -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        writer.close()

    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 302 Found\r\nlocation: http://evil/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\nno",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ntocsin-first: x\r\ntocsin-head: 1\r\ncontent-length: 0\r\n\r\n",
    ]
    server = await asyncio.start_server(odd, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for words in ("says no offsets", "answers with 302", "answers with 404 no", "no node answers", "says no offsets"):
        with pytest.raises(NetworkError, match=words):
            await asyncio.to_thread(open_origin, url, patience=0)
    server.close()
    await server.wait_closed()


async def test_a_silent_place_is_given_up_in_time() -> None:
    """Refused at once, and asked again until patience is at its end."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    began = time.monotonic()
    with pytest.raises(NetworkError, match="no node answers"):
        await asyncio.to_thread(open_origin, url, patience=0.5)
    assert 0.5 <= time.monotonic() - began < 5


def test_patience_is_renewed_by_success() -> None:
    lost = Lost(NetworkError("away"))
    patience = Patience(0.2)
    for _ in range(3):
        patience.wait(lost)
        patience.renew()
    with pytest.raises(NetworkError, match="away"):
        for _ in range(100):
            patience.wait(lost)


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(Address("http://x", "secret")) + repr(Asker(Address("http://localhost", "secret")))

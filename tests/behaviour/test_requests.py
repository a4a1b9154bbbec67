"""Request and reply on a bus: policies, typed ends, servers that fail, hang or go, and bounds. Nothing is stored."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import slow_disk
from tests.helpers import head, life, node_of, soon, testing
from tocsin.node import requests
from tocsin.peers import servers


class Hands:
    """A handler that answers when told to: `taken` has what it was asked, `answer` lets one go."""

    def __init__(self, name: str = "") -> None:
        self.name, self.taken = name, asyncio.Queue[Any]()
        self.waiting: dict[str, asyncio.Future[Any]] = {}
        self.cancelled = 0

    async def __call__(self, request: Any) -> Any:
        self.waiting[request.id] = asyncio.get_running_loop().create_future()
        self.taken.put_nowait(request)
        try:
            return await self.waiting[request.id]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def take(self) -> Any:
        return await soon(self.taken.get())

    def answer(self, request: Any, data: Any) -> None:
        self.waiting[request.id].set_result(data)


async def echo(request: Any) -> Any:
    return {"data": request.data, "sender": request.sender}


async def depleted(bus: Any) -> None:
    """Wait until a resource is served by nobody."""
    async for change in bus.resources():
        if change.kind == "depleted":
            return


# The ordinary


async def test_a_request_and_its_reply(bus: Any) -> None:
    async with bus.serve("params/m7", echo) as served:
        assert served.resource == "params/m7"
        answer = await bus.as_user("ann").request("params/m7", {"limit": 9.1}, timeout=2, policy="one")
        assert answer == {"data": {"limit": 9.1}, "sender": "ann"}
        assert (await bus.request("params/m7"))["data"] is None
    with pytest.raises(tocsin.NoServer):
        await bus.request("params/m7")


async def test_nothing_of_it_is_stored(bus: Any) -> None:
    async with bus.serve("r", echo):
        before = await head(bus)
        for n in range(10):
            await bus.request("r", n)
        assert await head(bus) == before + 1


async def test_a_plain_function_runs_on_a_thread_and_may_block(bus: Any) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    def handler(request: Any) -> str:
        if request.data == "block":
            blocked.set()
            go_on.wait(20)
        return threading.current_thread().name

    async with bus.serve("r", handler):
        slow = asyncio.ensure_future(bus.request("r", "block"))
        await asyncio.to_thread(blocked.wait, 20)
        assert (await soon(bus.request("r", "quick"))).startswith("tocsin-handler")
        assert not slow.done()
        go_on.set()
        await soon(slow)


async def test_other_kinds_of_handlers(bus: Any) -> None:
    class Async:
        async def __call__(self, request: Any) -> Any:
            return threading.current_thread().name

        async def method(self, request: Any) -> Any:
            return threading.current_thread().name

        def plain(self, request: Any) -> Any:
            return echo(request)  # a function that returns a coroutine

    here = threading.current_thread().name
    async with bus.serve("a", Async()), bus.serve("b", Async().method), bus.serve("c", Async().plain):
        assert [await bus.request(name) for name in "ab"] == [here, here]
        assert (await bus.request("c", 1))["data"] == 1


async def test_data_is_a_copy_on_both_ways(bus: Any) -> None:
    kept: dict[str, list[int]] = {"all": [1]}

    async def handler(request: Any) -> Any:
        request.data.append("handler's")
        return kept

    mine = ["mine"]
    async with bus.serve("r", handler):
        answer = await bus.request("r", mine)
        answer["all"].append(2)
    assert mine == ["mine"] and kept == {"all": [1]}


async def test_a_handler_may_ask_and_publish(bus: Any) -> None:
    async def relay(request: Any) -> Any:
        await bus.publish(tocsin.Event("asked", "relay"))
        return await bus.request("inner", request.data)

    async with bus.serve("inner", echo), bus.serve("outer", relay):
        assert (await soon(bus.request("outer", 5)))["data"] == 5


# Policies and load


async def test_equal_servers_share_the_load(bus: Any) -> None:
    asked: Counter[str] = Counter()

    def count(name: str) -> Any:
        async def handler(request: Any) -> str:
            asked[name] += 1
            return name

        return handler

    async with AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(bus.as_user(name).serve("r", count(name)))
        for _ in range(30):
            await bus.request("r")
        assert asked == {"a": 10, "b": 10, "c": 10}
        await asyncio.gather(*(bus.request("r") for _ in range(30)))
        assert asked == {"a": 20, "b": 20, "c": 20}


async def test_who_has_much_in_hand_gets_less(bus: Any) -> None:
    hands = Hands()
    async with bus.as_user("slow").serve("r", hands), bus.as_user("quick").serve("r", echo):
        asking = asyncio.ensure_future(bus.request("r"))
        taken = await hands.take()
        for n in range(5):
            assert (await soon(bus.request("r", n)))["data"] == n
        hands.answer(taken, "at last")
        assert await soon(asking) == "at last"


async def test_first_and_all(bus: Any) -> None:
    a, b = Hands("a"), Hands("b")
    async with bus.as_user("a").serve("r", a), bus.as_user("b").serve("r", b):
        first = asyncio.ensure_future(bus.request("r", policy="first"))
        slow, quick = await a.take(), await b.take()
        assert slow.id == quick.id
        b.answer(quick, "b")
        assert await soon(first) == "b"
        a.answer(slow, "dropped")
        everybody = asyncio.ensure_future(bus.request("r", policy="all"))
        for hands in (b, a):
            hands.answer(await hands.take(), hands.name)
        assert await soon(everybody) == ["a", "b"]


# What goes wrong


async def test_what_a_handler_raises_reaches_who_asked(bus: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Any) -> Any:
        raise ValueError(f"no machine {request.data}")

    async with bus.as_user("plant").serve("r", handler):
        with pytest.raises(tocsin.RequestFailed) as error:
            await bus.request("r", "m9")
    assert error.value.message == "'plant' failed to answer for 'r': ValueError: no machine m9"
    assert error.value.__cause__ is None and "Traceback" not in str(error.value)
    assert "the handler of 'r' failed" in caplog.text


async def test_a_handler_that_cancels_itself_is_a_failure(bus: Any) -> None:
    async def handler(request: Any) -> Any:
        raise asyncio.CancelledError

    async with bus.serve("r", handler):
        with pytest.raises(tocsin.RequestFailed, match="cancelled"):
            await soon(bus.request("r"))


async def test_a_server_lost_while_it_ends_is_replaced(bus: Any) -> None:
    hands, dying = Hands(), bus.as_user("dying")
    serving_ = await dying.serve("r", hands).__aenter__()
    asking = asyncio.ensure_future(bus.request("r", 1))
    await hands.take()
    ending = asyncio.ensure_future(serving_.__aexit__(None, None, None))
    await depleted(bus)
    async with bus.serve("r", echo):
        await testing.lose(dying)
        assert (await soon(asking))["data"] == 1
    await soon(ending)


async def test_a_reply_that_is_no_data_is_a_failure(bus: Any) -> None:
    async with bus.serve("r", lambda request: object()):
        with pytest.raises(tocsin.RequestFailed, match="not a JSON value"):
            await bus.request("r")


async def test_no_answer_in_time(bus: Any, clock: Any) -> None:
    hands = Hands()
    async with bus.serve("r", hands):
        asking = asyncio.ensure_future(bus.request("r", timeout=2))
        taken = await hands.take()
        clock.advance(1.9)
        await testing.settled(bus)
        assert not asking.done()
        clock.advance(0.1)
        with pytest.raises(tocsin.RequestTimeout, match="within 2 s") as error:
            await soon(asking)
        assert isinstance(error.value, TimeoutError) and error.value.help
        hands.answer(taken, "too late")
        again = asyncio.ensure_future(bus.request("r"))
        hands.answer(await hands.take(), "this one")
        assert await soon(again) == "this one"
        exchange = node_of(bus).peers.exchange
        assert exchange._open == {} and exchange._counts == {}


async def test_all_in_time_but_one(bus: Any, clock: Any) -> None:
    hands = Hands()
    b = bus.as_user("b")
    await b.serve("r", hands).__aenter__()
    async with bus.as_user("a").serve("r", echo):
        asking = asyncio.ensure_future(bus.request("r", 1, timeout=2, policy="all"))
        await hands.take()
        clock.advance(2)
        with pytest.raises(tocsin.RequestTimeout) as error:
            await soon(asking)
        assert [each["data"] for each in error.value.replies] == [1]


async def test_who_does_not_wait_any_more(bus: Any) -> None:
    hands = Hands()
    async with bus.serve("r", hands):
        asking = asyncio.ensure_future(bus.request("r"))
        taken = await hands.take()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await testing.settled(bus)
        assert node_of(bus).peers.exchange._open == {}
        hands.answer(taken, None)


# Servers that go


@pytest.mark.parametrize("policy", ["one", "first"])
async def test_a_lost_server_is_replaced(bus: Any, policy: str) -> None:
    dying, hands = bus.as_user("dying"), Hands()
    await dying.serve("r", hands).__aenter__()
    asking = asyncio.ensure_future(bus.request("r", 1, policy=policy))
    taken = await hands.take()
    seen: list[Any] = []

    async def other(request: Any) -> Any:
        seen.append(request)
        return "other"

    async with bus.as_user("other").serve("r", other):
        await testing.lose(dying)
        assert await soon(asking) == "other"
    assert (seen[0].id, seen[0].attempt, taken.attempt) == (taken.id, 2, 1)
    assert hands.cancelled == 1


async def test_a_lost_server_and_no_other(bus: Any) -> None:
    dying, hands = bus.as_user("dying"), Hands()
    await dying.serve("r", hands).__aenter__()
    asking = asyncio.ensure_future(bus.request("r"))
    await hands.take()
    await testing.lose(dying)
    with pytest.raises(tocsin.ServerLost, match="'dying' was lost"):
        await soon(asking)
    with pytest.raises(tocsin.NoServer):
        await bus.request("r")


async def test_a_session_does_not_take_over_from_itself(bus: Any) -> None:
    """All servers of a lost session are gone together."""
    dying, hands = bus.as_user("dying"), Hands()
    await dying.serve("r", hands).__aenter__()
    await dying.serve("s", hands).__aenter__()
    asking = [asyncio.ensure_future(bus.request(name)) for name in "rs"]
    await hands.take(), await hands.take()
    await testing.lose(dying)
    for each in asking:
        with pytest.raises(tocsin.ServerLost):
            await soon(each)


async def test_a_clean_end_finishes_what_is_in_hand(bus: Any) -> None:
    hands = Hands()
    serving_ = bus.serve("r", hands)
    await serving_.__aenter__()
    asking = asyncio.ensure_future(bus.request("r"))
    taken = await hands.take()
    ending = asyncio.ensure_future(serving_.__aexit__(None, None, None))
    await depleted(bus)
    with pytest.raises(tocsin.NoServer):
        await bus.request("r")
    hands.answer(taken, "finished")
    assert await soon(asking) == "finished"
    await soon(ending)


async def test_a_clean_end_does_not_wait_for_ever(bus: Any, clock: Any) -> None:
    hands = Hands()
    serving_ = bus.serve("r", hands)
    await serving_.__aenter__()
    asking = asyncio.ensure_future(bus.request("r", timeout=100))
    await hands.take()
    ending = asyncio.ensure_future(serving_.__aexit__(None, None, None))
    await depleted(bus)
    await testing.settled(bus)
    clock.advance(requests.DRAIN)
    with pytest.raises(tocsin.ServerLost):
        await soon(asking)
    await soon(ending)
    assert hands.cancelled == 1


async def test_an_error_in_the_block_hands_over_at_once(bus: Any) -> None:
    hands = Hands()
    with pytest.raises(ZeroDivisionError):
        async with bus.serve("r", hands):
            asking = asyncio.ensure_future(bus.request("r"))
            await hands.take()
            raise ZeroDivisionError
    with pytest.raises(tocsin.ServerLost):
        await soon(asking)


@pytest.mark.parametrize("end", ["close", "crash"])
async def test_the_end_of_the_node_ends_all_waiting(url: str, end: str) -> None:
    hands = Hands()
    async with testing.node(url) as bus:
        await bus.serve("r", hands).__aenter__()
        asking = asyncio.ensure_future(bus.as_user("a").request("r"))
        await hands.take()
        if end == "crash":
            await testing.crash(bus)
    with pytest.raises(tocsin.TocsinError):
        await soon(asking)
    assert hands.cancelled == 1


async def test_a_session_that_ends_waits_for_nothing(bus: Any) -> None:
    hands, face = Hands(), bus.as_user("a")
    async with bus.serve("r", hands):
        asking = asyncio.ensure_future(face.request("r"))
        taken = await hands.take()
        await testing.lose(face)
        with pytest.raises(tocsin.JournalError, match="closed before the answer"):
            await soon(asking)
        hands.answer(taken, None)


async def test_serving_that_is_cancelled_is_undone(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        serving_, changes = bus.serve("r", echo), bus.resources()
        with slow_disk(bus) as begun:
            entering = asyncio.ensure_future(serving_.__aenter__())
            await soon(begun.wait())
            entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert [each.kind for each in iter(changes.poll, None)] == ["found", "depleted"]
        with pytest.raises(tocsin.NoServer):
            await bus.request("r")
        async with serving_:
            assert (await bus.request("r", 1))["data"] == 1


async def test_serving_again_waits_for_the_end_of_before(file_url: str, clock: Any) -> None:
    """Else the end of the first would withdraw the second."""
    async with life(file_url, clock) as bus:
        first = await bus.serve("r", echo).__aenter__()
        with slow_disk(bus) as begun:
            await asyncio.sleep(0)
            busy = asyncio.ensure_future(bus.advertise("v > 1"))
            await soon(begun.wait())
            second = asyncio.ensure_future(bus.serve("r", echo).__aenter__())
            await asyncio.sleep(0)
            ending = asyncio.ensure_future(first.__aexit__(None, None, None))
            await asyncio.sleep(0)
        with pytest.raises(tocsin.PeerError, match="already"):
            await second
        await asyncio.gather(busy, ending)
        async with bus.serve("r", echo):
            assert (await bus.request("r", 1))["data"] == 1
            assert [each.resource for each in iter(bus.resources().poll, None)] == ["v > 1", "r"]


async def test_a_handler_that_will_not_stop_stops_nobody(bus: Any) -> None:
    stubborn, face, go_on = asyncio.Event(), bus.as_user("stubborn"), asyncio.Event()

    async def handler(request: Any) -> None:
        stubborn.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on.wait()

    await face.serve("r", handler).__aenter__()
    asking = asyncio.ensure_future(bus.request("r"))
    await soon(stubborn.wait())
    await soon(testing.lose(face))
    with pytest.raises(tocsin.ServerLost):
        await soon(asking)
    go_on.set()


# Bounds and misuse


async def test_requests_are_bounded(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_CALLS", 2)
    monkeypatch.setattr(servers, "MAX_IN_HAND", 3)
    hands, other = Hands(), bus.as_user("other")
    async with bus.serve("r", hands):
        asking = [asyncio.ensure_future(bus.request("r")) for _ in range(2)]
        taken = [await hands.take() for _ in asking]
        with pytest.raises(tocsin.OverloadError, match="2 requests of this session"):
            await bus.request("r")
        asking.append(asyncio.ensure_future(other.request("r")))
        taken.append(await hands.take())
        with pytest.raises(tocsin.OverloadError, match="no room"):
            await other.request("r")
        for each in taken:
            hands.answer(each, "done")
        assert [await soon(each) for each in asking] == ["done"] * 3


async def test_a_thousand_at_once(bus: Any) -> None:
    async with bus.serve("r", echo):
        answers = await asyncio.gather(*(bus.request("r", n) for n in range(1000)))
    assert [each["data"] for each in answers] == list(range(1000))


@pytest.mark.embedded("it makes a server by hand, as the network does")
async def test_what_cannot_be_delivered_goes_to_another(bus: Any) -> None:
    """What a network server does when a connection is clogged: it raises."""

    def clogged(request: Any) -> None:
        raise tocsin.OverloadError("the connection is clogged")

    face = bus.as_user("remote")
    server = servers.Server("r", face._session.id, face.name, clogged)
    await requests.serve(face._session, server)
    async with bus.serve("r", echo):
        for n in range(4):
            assert (await bus.request("r", n))["data"] == n
    with pytest.raises(tocsin.ServerLost):
        await bus.request("r")
    assert not server.in_hand


@pytest.mark.embedded("it makes a server by hand, as the network does")
async def test_a_server_without_a_function(bus: Any) -> None:
    """What a network server does: it is handed requests, and brings the answers later; strange ones do no harm."""
    handed: list[Any] = []
    face, exchange = bus.as_user("remote"), bus._node.peers.exchange
    server = servers.Server("r", face._session.id, face.name, handed.append)
    await requests.serve(face._session, server)
    asking = [asyncio.ensure_future(bus.request("r", n)) for n in range(2)]
    await asyncio.sleep(0)
    exchange.reply(server, "nobody asked this", b"\x01")
    exchange.reply(server, handed[0].id, b"\x01")
    exchange.reply(server, handed[0].id, b"\x02")
    exchange.fail(server, handed[1].id, "no")
    assert await soon(asking[0]) == 1
    with pytest.raises(tocsin.RequestFailed, match="no"):
        await soon(asking[1])
    await requests.withdraw(face._session, server)
    exchange.drop(server)
    with pytest.raises(tocsin.NoServer):
        await bus.request("r")


async def test_misuse(bus: Any) -> None:
    async with bus.serve("r", echo) as served:
        for wrong in (
            bus.request("r", timeout=0),
            bus.request("r", timeout="1"),
            bus.request("r", policy="some"),
            bus.request(""),
            bus.request(7),
            bus.serve("r", echo).__aenter__(),
            served.__aenter__(),
        ):
            with pytest.raises(tocsin.PeerError) as error:
                await wrong
            assert error.value.help
        with pytest.raises(tocsin.EventError):
            await bus.request("r", object())
        with pytest.raises(tocsin.PeerError):
            bus.serve("r", "no function")
        assert (await bus.request("r", 1))["data"] == 1


@pytest.mark.parametrize("seed", range(4))
async def test_every_request_ends_whatever_servers_do(bus: Any, clock: Any, seed: int) -> None:
    """Servers come, fail, hang, end and are lost at random; each of 160 requests ends with a reply or a typed error."""
    chance = random.Random(seed)
    faces: list[Any] = []
    hung: list[asyncio.Future[Any]] = []

    async def handler(request: Any) -> Any:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        what = chance.random()
        if what < 0.2:
            raise ValueError("no")
        if what < 0.4:
            hung.append(asyncio.get_running_loop().create_future())
            await hung[-1]
        return request.data

    async def ask(n: int) -> str:
        policy = chance.choice(["one", "first", "all"])
        try:
            answer = await bus.request("r", n, timeout=10, policy=policy)
        except tocsin.RequestError as error:
            assert all(reply == n for reply in error.replies)
            return type(error).__name__
        assert set(answer) == {n} if policy == "all" else answer == n
        return "replied"

    asking: list[Any] = []
    for step in range(40):
        if not faces or (len(faces) < 5 and chance.random() < 0.6):
            face = bus.as_user(f"s{step}")
            await face.serve("r", handler).__aenter__()
            faces.append(face)
        else:
            face = faces.pop(chance.randrange(len(faces)))
            await (testing.lose(face) if chance.random() < 0.6 else face.close())
        asking += [asyncio.ensure_future(ask(len(asking) + n)) for n in range(4)]
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
    await testing.settled(bus)
    clock.advance(10)
    ends = Counter(await soon(asyncio.gather(*asking)))
    assert set(ends) <= {"replied", "RequestFailed", "RequestTimeout", "ServerLost", "NoServer"} and ends["replied"]
    for face in faces:
        await face.close()
    exchange = node_of(bus).peers.exchange
    assert exchange._open == {} and exchange._counts == {} and exchange.servers.of("r") == []

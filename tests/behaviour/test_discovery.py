"""Discovery: advertise and watch, strict publishers, demand; and what is left of a session when it is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tocsin
from tests.behaviour.test_full_disk import full_disk, slow_disk
from tests.helpers import event, life, node_of, soon, take, testing
from tocsin.node import discovery

either = pytest.mark.parametrize("end", ["close", "crash"])
PEERS = "type LIKE 'tocsin.%'"


async def said(bus: Any, changes: Any) -> list[tuple[str, str, str]]:
    await testing.settled(bus)
    return [(each.kind, each.resource, each.by) for each in iter(changes.poll, None)]


async def records(bus: Any) -> list[tuple[str, Any]]:
    """All system records so far."""
    sub = await bus.subscribe(PEERS, past=tocsin.since(1), order="journal", system=True, auto_ack=True)
    found = [(d.event.type.removeprefix("tocsin."), d.event.data) for d in await take(bus, sub)]
    await sub.close()
    return found


# Advertising and watching


async def test_resources_begin_with_what_is_there_and_go_on_in_order(bus: Any) -> None:
    a, b = bus.as_user("a"), bus.as_user("b")
    await a.advertise("v > 1 and type='x'")
    await b.advertise("v > 1 AND type = 'x'")
    changes = bus.resources()
    await testing.settled(bus)
    await a.advertise("w > 1")
    await a.unadvertise("v > 1 AND type = 'x'")
    await b.unadvertise("v > 1 AND type = 'x'")
    v = "v > 1 AND type = 'x'"
    assert await said(bus, changes) == [
        ("found", v, "a"),
        ("advertised", v, "b"),
        ("found", "w > 1", "a"),
        ("unadvertised", v, "a"),
        ("depleted", v, "b"),
    ]


async def test_only_resources_that_a_filter_may_match(bus: Any) -> None:
    await bus.advertise("v > 10")
    changes = bus.resources("v < 5")
    await testing.settled(bus)
    await bus.advertise("v > 3")
    await bus.advertise("v > 20 AND type = 'x'")
    await bus.advertise("name RLIKE 'a+' AND v = w + 1")  # cannot be compared
    async with bus.serve("served", lambda request: None):
        assert [each[1] for each in await said(bus, changes)] == ["v > 3", "name RLIKE 'a+' AND v = w + 1"]
        everything = bus.resources()
        await testing.settled(bus)
        assert [each.resource for each in iter(everything.poll, None) if each.served] == ["served"]


async def test_waiting_for_changes(bus: Any) -> None:
    changes = bus.resources()
    with pytest.raises(TimeoutError):
        await changes.next(timeout=0.01)
    waiting = asyncio.ensure_future(changes.next())
    await bus.advertise("v > 1")
    assert (await soon(waiting)).kind == "found"
    changes.close()
    assert [change async for change in changes] == []
    with pytest.raises(tocsin.PeerError, match="closed"):
        await changes.next()


async def test_iteration_ends_with_the_bus(url: str) -> None:
    async with testing.node(url) as bus:
        other = bus.as_user("other")
        await other.advertise("v > 1")
        changes = bus.resources()
        await testing.settled(bus)
    # What ends with the node is told to who is in it; from afar, the connection ends first.
    assert [change.kind async for change in changes] == (["found"] if url == "ws:" else ["found", "depleted"])


@pytest.mark.embedded("changes wait in the client first; tests/net/test_peers.py has the bound at the node")
async def test_who_does_not_take_changes_must_begin_anew(bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_CHANGES", 3)
    await bus.advertise("v > 0")
    lazy, other = bus.resources(), bus.resources()
    for n in range(1, 5):
        await bus.advertise(f"v > {n}")
        if n < 4:
            assert other.poll() is not None
    with pytest.raises(tocsin.OverloadError) as error:
        await lazy.next()
    assert "resources() again" in str(error.value)
    assert len(await said(bus, other)) == 2
    assert len(await said(bus, bus.resources())) == 5


async def test_advertisements_are_in_the_journals_order_with_messages(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", order="journal", system=True)
    await bus.publish(event("1"))
    await bus.advertise("v > 1")
    await bus.publish(event("2"))
    await bus.unadvertise("v > 1")
    got = [d.event for d in await take(bus, sub)]
    assert [e.id if e.type == "alarm" else e.type for e in got] == [
        "1",
        "tocsin.session",
        "tocsin.advertised",
        "2",
        "tocsin.unadvertised",
    ]
    assert got[2].data["resource"] == "v > 1" and got[2].data["name"] == "test"


async def test_hidden_from_who_did_not_ask(bus: Any) -> None:
    sub = await bus.subscribe("TRUE", past=tocsin.retained())
    await bus.advertise("v > 1")
    async with bus.join("g") as group:
        await group.cast(1)
        assert await take(bus, sub) == []


async def test_withdrawing_what_is_not_there_does_nothing(bus: Any) -> None:
    await bus.unadvertise("v > 1")
    await bus.advertise("v > 2")
    await bus.as_user("other").unadvertise("v > 2")
    assert [kind for kind, _ in await records(bus)] == ["session", "advertised"]


async def test_a_bad_filter_is_refused(bus: Any) -> None:
    for verb in (bus.advertise, bus.unadvertise, bus.demand):
        with pytest.raises(tocsin.FilterError) as error:
            await verb("v > > 1")
        assert error.value.position is not None
    with pytest.raises(tocsin.FilterError):
        bus.resources("v >")


async def test_many_at_once(bus: Any) -> None:
    faces = [bus.as_user(f"u{n}") for n in range(20)]
    changes = bus.resources()
    await testing.settled(bus)
    await asyncio.gather(*(face.advertise("v > 1") for face in faces))
    await asyncio.gather(*(testing.lose(face) if n % 2 else face.close() for n, face in enumerate(faces)))
    kinds = [kind for kind, _, _ in await said(bus, changes)]
    assert kinds == ["found", *["advertised"] * 19, *["unadvertised"] * 19, "depleted"]
    assert node_of(bus).journal.state("peers/") == {}


# Sessions


async def test_presence(bus: Any) -> None:
    a, b = bus.as_user("a"), bus.as_user("b")
    await a.publish(event("1"))  # says nothing of who is there
    await a.advertise("v > 1")
    await a.advertise("v > 2")
    await b.advertise("v > 1")
    await a.close()
    await a.close()
    await testing.lose(b)
    states = [(data["name"], data["state"]) for kind, data in await records(bus) if kind == "session"]
    assert states == [("a", "began"), ("b", "began"), ("a", "ended"), ("b", "crashed")]


async def test_a_closed_face_is_closed_and_others_go_on(bus: Any) -> None:
    face = bus.as_user("a")
    await face.close()
    for work in (
        face.publish(event("1")),
        face.advertise("v > 1"),
        face.request("x"),
        face.serve("x", print).__aenter__(),
        face.join("g").__aenter__(),
    ):
        with pytest.raises(tocsin.JournalError, match="closed"):
            await work
    await bus.publish(event("2"))


async def test_subscriptions_end_with_their_session(bus: Any) -> None:
    face = bus.as_user("a")
    durable, passing = await face.subscribe("n > 0", consumer="kept"), await face.subscribe("n > 0")
    await bus.publish(event("1", data={"n": 1}))
    [held] = await take(bus, durable)
    assert held.attempt == 1
    await testing.lose(face)
    assert durable.closed and passing.closed
    [info] = await bus.consumers()
    assert (info.name, info.open) == ("kept", False)
    await bus.publish(event("2", data={"n": 2}))
    again = await bus.as_user("b").subscribe("n > 0", consumer="kept")  # elsewhere, under the same name
    got = await take(bus, again)
    assert [(d.event.id, d.attempt) for d in got] == [("1", 2), ("2", 1)]


async def test_a_subscription_made_while_its_session_ends(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        face = bus.as_user("a")
        with slow_disk(bus) as begun:
            work = asyncio.ensure_future(face.subscribe("TRUE", consumer="ops"))
            await soon(begun.wait())
            await testing.lose(face)
        with pytest.raises(tocsin.JournalError, match="closed"):
            await work
        [info] = await bus.consumers()
        assert not info.open


@either
async def test_what_sessions_had_is_withdrawn_when_the_node_is_gone(file_url: str, clock: Any, end: str) -> None:
    async with life(file_url, clock, end=end) as bus:
        other = bus.as_user("other")
        await other.advertise("v > 1")
        serving, group = bus.serve("params/m7", lambda request: 1), other.join("line/7")
        await serving.__aenter__()
        await group.__aenter__()
        assert len(bus._node.journal.state("peers/")) == 5
    async with life(file_url, clock) as bus:
        assert await said(bus, bus.resources()) == []
        with pytest.raises(tocsin.NoServer):
            await bus.request("params/m7")
        found = await records(bus)
        gone = sorted(data["resource"] for kind, data in found if kind == "unadvertised")
        assert gone == ["params/m7", "v > 1"]
        last = next(data for kind, data in reversed(found) if kind == "view")
        assert last == {"members": [], "joined": [], "left": ["other"]}
        states = sorted((data["name"], data["state"]) for kind, data in found if kind == "session")
        word = "crashed" if end == "crash" else "ended"
        assert states == [("other", "began"), ("other", word), ("test", "began"), ("test", word)]
        assert bus._node.journal.state("peers/") == {}
        async with bus.as_user("other").join("line/7") as group:
            assert group.view.members == ("other",)


async def test_nobody_there_leaves_no_trace(file_url: str, clock: Any) -> None:
    for offset in (1, 2):
        async with life(file_url, clock, end="crash") as bus:
            assert (await bus.publish(event(str(offset)))).offset == offset


async def test_an_end_that_cannot_be_stored_is_stored_later(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        face = bus.as_user("a")
        await face.advertise("v > 1")
        async with face.serve("r", lambda request: 1), bus.serve("r", lambda request: 2):
            changes = bus.resources()
            await said(bus, changes)
            with full_disk(bus) as refused:
                await testing.lose(face)
                await soon(refused.wait())
                assert await said(bus, changes) == []
                assert await bus.request("r", policy="all") == [2]  # servers are gone at once
            clock.advance(5)
            heard = [await soon(changes.next()) for _ in range(2)]
            assert [(each.kind, each.resource) for each in heard] == [("depleted", "v > 1"), ("unadvertised", "r")]


async def test_what_cannot_be_stored_does_not_hold(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        changes = bus.resources()
        with full_disk(bus):
            with pytest.raises(tocsin.JournalFullError):
                await bus.advertise("v > 1")
            with pytest.raises(tocsin.JournalFullError):
                await bus.join("g").__aenter__()
            with pytest.raises(tocsin.JournalFullError):
                await bus.serve("r", print).__aenter__()
        assert await said(bus, changes) == [] and bus._node.journal.state("peers/") == {}
        await bus.advertise("v > 1")
        assert await said(bus, changes) == [("found", "v > 1", "test")]


async def test_a_cancelled_advertise_is_there_or_not_but_never_half(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        face, changes = bus.as_user("a"), bus.resources()
        with slow_disk(bus) as begun:
            work = asyncio.ensure_future(face.advertise("v > 1"))
            await soon(begun.wait())
            work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await face.close()
        assert [each[0] for each in await said(bus, changes)] == ["found", "depleted"]


async def test_an_end_in_the_middle_of_an_advertise_withdraws_it(file_url: str, clock: Any) -> None:
    async with life(file_url, clock) as bus:
        face, changes = bus.as_user("a"), bus.resources()
        with slow_disk(bus) as begun:
            work = asyncio.ensure_future(face.advertise("v > 1"))
            await soon(begun.wait())
            late = asyncio.ensure_future(face.advertise("v > 2"))
            ending = asyncio.ensure_future(testing.lose(face))
            await asyncio.sleep(0)
        await work
        await ending
        with pytest.raises(tocsin.JournalError):
            await late
        assert [each[0] for each in await said(bus, changes)] == ["found", "depleted"]


# Strict publishers


async def test_strict_publishers_publish_what_they_advertise(url: str, clock: Any) -> None:
    async with testing.node(url, clock, strict_advertise=True) as bus:
        sub = await bus.subscribe("TRUE")
        good, bad = event("1", data={"v": 5}), event("2", data={"v": 1})
        with pytest.raises(tocsin.NotAdvertisedError, match="not advertised"):
            await bus.publish(good)
        await bus.advertise("v > 3")
        await bus.publish(good)
        with pytest.raises(tocsin.EventError) as error:
            await bus.publish_many([event("3", data={"v": 9}), bad])
        assert "advertise" in (error.value.help or "")
        with pytest.raises(tocsin.NotAdvertisedError):  # another face has not said it
            await bus.as_user("other").publish(good)
        await bus.unadvertise("v > 3")
        with pytest.raises(tocsin.NotAdvertisedError):
            await bus.publish(event("4", data={"v": 5}))
        assert [d.event.id for d in await take(bus, sub)] == ["1"]


# Demand


async def test_demand(bus: Any) -> None:
    assert not await bus.demand("v > 3")
    ops = await bus.subscribe("v > 5", consumer="ops")
    quiet = await bus.subscribe("v < 2", consumer="quiet", durable=False)
    found = await bus.demand("v > 3")
    assert found and found.consumers == ("ops",) and "ops" in repr(found)
    await ops.close()  # it is durable, and will be back
    assert (await bus.demand("v > 3")).consumers == ("ops",)
    await bus.forget("ops")
    assert not await bus.demand("v > 3")
    assert (await bus.demand("TRUE")).consumers == ("quiet",)
    await quiet.close()
    assert not await bus.demand("TRUE")


async def test_demand_of_definitions_and_not_of_groups(bus: Any) -> None:
    await bus.define("pair", "SEQ([type = 'a'], [type = 'b'])")
    await bus.define("twice", "SEQ(pair, pair)")
    async with bus.join("g"):
        found = await bus.demand("type = 'a' AND v > 3")
        assert found and (found.consumers, found.definitions) == ((), ("pair",))
        assert not await bus.demand("type = 'c'")


async def test_waiting_for_demand(bus: Any) -> None:
    nobody = await bus.demand("v > 3")
    waiting = asyncio.ensure_future(nobody.changed())
    await bus.subscribe("v < 2", consumer="other")
    await asyncio.sleep(0)
    assert not waiting.done()
    sub = await bus.subscribe("v > 5", consumer="ops", durable=False)
    somebody = await soon(waiting)
    assert somebody.consumers == ("ops",)
    waiting = asyncio.ensure_future(somebody.changed())
    await sub.close()
    assert not await soon(waiting)
    with pytest.raises(TimeoutError):
        await nobody.changed(timeout=0.01)


async def test_waiting_for_demand_ends_with_the_bus(url: str) -> None:
    async with testing.node(url) as bus:
        waiting = asyncio.ensure_future((await bus.demand("v > 3")).changed())
        await asyncio.sleep(0)
    with pytest.raises(tocsin.JournalError, match="closed"):
        await soon(waiting)

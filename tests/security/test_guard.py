"""The face of the bus for somebody with a token: every verb, with the right and without it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, soon, take, testing
from tests.security.keys import guarded
from tocsin.client import Bus
from tocsin.errors import (
    ConsumerError,
    EventError,
    FilterLimitError,
    ForbiddenError,
    OverloadError,
    UnknownEventError,
)
from tocsin.net.guard import Guard
from tocsin.node.pipeline import Batch
from tocsin.security.limits import Allowance
from tocsin.security.rights import PREFIXED

VERBS = sorted(name for name in vars(Bus) if not name.startswith("_") and callable(getattr(Bus, name)))
SCOPED = ("advertise", "demand", "forget", "unsubscribe")
"""Verbs with which it depends on more than a name."""
SEEN = event("seen", type="machine.value", ack="client")
OTHER = event("other", type="door.open", ack="client")
SECRET = event("secret", type="machine.value", ack="client", classification="secret")


def test_every_verb_of_the_bus_was_thought_of() -> None:
    assert len(VERBS) > 20
    missing = [name for name in vars(Bus) if not name.startswith("_") and name not in vars(Guard)]
    assert not missing, f"what may a token do with {missing}? say it in net/guard.py"
    extra = [name for name in vars(Guard) if not name.startswith("_") and name not in vars(Bus)]
    assert not extra, f"{extra} are no verbs of the bus"


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_what_it_takes_on_the_bus(verb: str) -> None:
    theirs, mine = inspect.signature(getattr(Bus, verb)), inspect.signature(getattr(Guard, verb))
    named = {name: object() for name in theirs.parameters}
    mine.bind(**named)
    places = [each for each in theirs.parameters.values() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    mine.bind(*(object() for _ in places))


async def test_a_verb_that_is_not_known_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        face = node.caller("boss", "admin", clearance="top-secret").bus
        with pytest.raises(ForbiddenError, match="conquer"):
            face.conquer()
        with pytest.raises(AttributeError):
            face._conquer  # noqa: B018  (else copying and the like would fail strangely)


async def _entered(opening: Any) -> None:
    async with opening:
        pass


CASES: list[tuple[str, str, Callable[[Any], Awaitable[Any]]]] = [
    ("publish", "publish:machine.", lambda bus: bus.publish(event("1", type="machine.x"))),
    ("publish_many", "publish:machine.", lambda bus: bus.publish_many([event("1", type="machine.x")])),
    ("subscribe", "subscribe:machine.", lambda bus: bus.subscribe("TRUE")),
    ("subscribe system", "subscribe:tocsin.", lambda bus: bus.subscribe("TRUE", system=True)),
    ("define", "define:plant.", lambda bus: bus.define("plant.x", "[type = 'machine.value']")),
    ("undefine", "define:plant.", lambda bus: bus.undefine("plant.known")),
    ("advertise", "publish:machine.", lambda bus: bus.advertise("type = 'machine.x' AND value > 9")),
    ("demand", "publish:machine.", lambda bus: bus.demand("startswith(type, 'machine.')")),
    ("serve", "serve:params/", lambda bus: _entered(bus.serve("params/m7", print))),
    ("join", "join:line-", lambda bus: _entered(bus.join("line-7"))),
    ("trim", "admin", lambda bus: bus.trim(larger_than=10**9)),
    ("forget", "subscribe:machine.", lambda bus: bus.forget("mine")),
    ("unsubscribe", "subscribe:machine.", lambda bus: bus.unsubscribe("mine", "…")),
    ("cancel", "publish:machine.", lambda bus: bus.cancel("any")),
]


@pytest.mark.parametrize(("verb", "right", "use"), CASES, ids=[verb for verb, _, _ in CASES])
async def test_a_verb_needs_its_right(
    tmp_path: Path, verb: str, right: str, use: Callable[[Any], Awaitable[Any]]
) -> None:
    others = [f"{each}:door." for each in PREFIXED if (verb, each) != ("subscribe", "subscribe")]
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.define("plant.known", "[type = 'machine.value']")
        await node.bus.publish(event("any", type="machine.value", cancel="any"))
        mine = await node.bus.subscribe("type = 'machine.value'", "mine")
        with pytest.raises(UnknownEventError if verb == "cancel" else ForbiddenError):
            await use(node.caller("weak", *others, "metrics").bus)
        try:
            await use(node.caller("strong", *{right, "subscribe:machine."}, clearance="top-secret").bus)
        except ConsumerError as error:  # it got so far that the subscription is looked for
            assert verb == "unsubscribe" and error.field == "subscription"
        written = [(each["name"], each["why"]) for each in await node.refused()]
        assert written == ([] if verb == "cancel" else [("weak", "scope" if verb in SCOPED else "right")])
        await mine.close()


async def test_asking_needs_its_right(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:

        async def answer(request: Any) -> Any:
            return {"for": request.sender}

        async with node.caller("server", "serve:params/").bus.serve("params/m7", answer):
            asks = node.caller("asks", "request:params/").bus
            assert await soon(asks.request("params/m7", timeout=5)) == {"for": "asks"}
            with pytest.raises(ForbiddenError):
                await asks.request("other", timeout=5)


async def test_only_a_definer_of_what_it_may_hear(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        bus = node.caller("a", "define:plant.", "subscribe:machine.", "subscribe:plant.").bus
        await bus.define("plant.one", "SEQ([type = 'machine.a'], [startswith(type, 'machine.b') AND value > 1])")
        await bus.define("plant.two", "OR(plant.one, [type = 'machine.c'])")
        for text in ("[value > 9]", "SEQ([type = 'machine.a'], [type = 'door.open'])", "NOT([type = 'machine.a'], [x = 1], [type = 'machine.b'])"):  # fmt: skip  # noqa: E501
            with pytest.raises(ForbiddenError, match="may not subscribe"):
                await bus.define("plant.three", text)
        await node.bus.define("door.known", "[type = 'door.open']")
        with pytest.raises(ForbiddenError, match="door.known"):
            await bus.define("plant.three", "OR(door.known, [type = 'machine.c'])")
        assert [each.name for each in await bus.definitions()] == ["plant.one", "plant.two"]
        assert len(await node.caller("boss", "admin").bus.definitions()) == 3


async def test_what_is_made_of_secrets_is_secret(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.define("pair", "SEQ([type = 'machine.a'] AS a, [type = 'machine.b'] AS b)", context="chronicle")
        high = await node.caller("high", "subscribe:*", clearance="secret").bus.subscribe("type = 'pair'")
        low = await node.caller("low", "subscribe:*").bus.subscribe("type = 'pair'")
        for number, secrecy in enumerate(("unclassified", "secret", "confidential")):
            await node.bus.publish(event(f"a{number}", type="machine.a", classification=secrecy))
            await node.bus.publish(event(f"b{number}", type="machine.b"))
        got = [each.event.classification for each in await take(node.bus, high)]
        assert sorted(got) == ["confidential", "secret", "unclassified"]
        assert [each.event.classification for each in await take(node.bus, low)] == ["unclassified"]


async def test_an_explanation_shows_no_more_than_may_be_seen(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.define("pair", "SEQ([type = 'machine.a'] AS a, [type = 'door.b'] AS b)")
        everything = await node.bus.subscribe("type = 'pair'")
        await node.bus.publish(event("a", type="machine.a"))
        await node.bus.publish(event("b", type="door.b"))
        [made] = await take(node.bus, everything)
        id = made.event.id
        assert (await node.caller("all", "subscribe:*").bus.explain(id)).parts[1].id == "b"
        with pytest.raises(ForbiddenError, match="made of events"):
            await node.caller("half", "subscribe:pair", "subscribe:machine.").bus.explain(id)
        with pytest.raises(UnknownEventError):
            await node.caller("none", "subscribe:machine.").bus.explain(id)


async def test_of_what_it_may_not_see_it_hears_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.publish_many([SEEN, OTHER, SECRET])
        bus = node.caller("a", "subscribe:machine.", "publish:*", clearance="confidential").bus
        assert [alert.event.id for alert in await bus.alerts()] == ["seen"]
        assert (await bus.status("seen")).state == "live" and (await bus.audit("seen"))[0].who == "node"
        for hidden in ("other", "secret", "never"):
            for verb in (bus.status, bus.audit, bus.cancel):
                with pytest.raises(UnknownEventError) as raised:
                    await verb(hidden)
                assert str(raised.value) == str(_unknown(hidden)), "it must not tell that it is there"


def _unknown(id: str) -> UnknownEventError:
    return UnknownEventError(f"there is no event {id!r}", field="id", help="it was never published, or is trimmed")


async def test_sources_that_may_not_be_seen_are_not_named(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.publish(event("x", type="machine.a", source="open", ack="client"))
        await node.bus.publish(event("x", type="machine.a", source="hush", ack="client", classification="secret"))
        bus = node.caller("a", "subscribe:*").bus
        assert (await bus.status("x")).source == "open"
        with pytest.raises(UnknownEventError, match="several sources"):
            await node.caller("b", "subscribe:*", clearance="secret").bus.status("x")


async def test_its_own_it_may_follow_and_withdraw(tmp_path: Path) -> None:
    """A publisher need not be cleared for what it says."""
    async with guarded(tmp_path, listens=False) as node:
        mine = node.caller("sensor", "publish:machine.").bus
        await mine.publish(SECRET)
        assert (await mine.status("secret")).state == "live"
        assert [alert.event.id for alert in await mine.alerts()] == ["secret"]
        high = node.caller("ops", "subscribe:*", "publish:*", clearance="secret").bus
        with pytest.raises(tocsin.CancelError):
            await high.cancel("secret")
        await mine.cancel("secret")
        assert (await mine.status("secret")).state == "cancelled"


async def test_a_consumer_that_hears_more_is_not_taken_over(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        wide = await node.bus.subscribe("type = 'machine.value'", "ops", past=tocsin.retained())
        team = await node.bus.subscribe("TRUE", "one", group="team")
        await node.bus.publish_many([SEEN, SECRET])
        bus = node.caller("low", "subscribe:machine.").bus
        for how in ({"consumer": "ops"}, {"consumer": "one", "group": "team"}, {"group": "team"}, {"consumer": "two", "group": "team"}):  # fmt: skip  # noqa: E501
            with pytest.raises(ForbiddenError, match="more than you may see"):
                await bus.subscribe("type = 'machine.value'", **how)
        for use in (bus.forget("ops"), bus.forget("team"), bus.unsubscribe("ops", wide.id)):
            with pytest.raises(ForbiddenError):
                await use
        assert await bus.consumers() == []
        assert [each.name for each in await node.caller("boss", "admin").bus.consumers()] == ["one", "ops"]
        assert sorted(await heard(node.bus, wide)) == ["secret", "seen"], "nothing happened to it"
        await team.close()


async def test_it_resumes_its_own_consumer(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        token = node.token("low", "subscribe:machine.", "subscribe:plant.")
        gate = node.server.gate
        first = await gate.admit(token, None, "", "").bus.subscribe("value > 1 OR TAG = 'x'", "ops")
        await node.bus.publish(event("1", type="machine.a", data={"value": 2}))
        await first.close()
        await node.bus.publish(event("2", type="plant.a", data={"value": 2}))
        await node.bus.publish(event("no", type="plant.a", data={"value": 2}, classification="secret"))
        again = gate.admit(token, "low/other", "", "").bus
        second = await again.subscribe("value > 1 OR TAG = 'x'", "ops")
        assert second.id == first.id
        assert await heard(node.bus, second) == ["1", "2"]
        [about] = await again.consumers()
        assert about.name == "ops" and len(about.subscriptions) == 1
        wider = node.caller("high", "subscribe:*", clearance="secret").bus
        third = await wider.subscribe("value > 1", "ops")  # what it hears is within what this one may see
        assert third.id != first.id


async def test_resources_of_others(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.advertise("type = 'machine.a'")
        await node.bus.advertise("type = 'door.a'")
        await node.bus.advertise("value > 1")
        async with node.bus.serve("params/m7", print), node.bus.serve("hidden", print):
            changes = node.caller("low", "subscribe:machine.", "request:params/").bus.resources()
            await node.bus.advertise("type = 'door.b'")
            await node.bus.advertise("type = 'machine.b'")
            found = [change.resource for change in iter(changes.poll, None)]
        assert found == ["type = 'machine.a'", "value > 1", "params/m7", "type = 'machine.b'"]


async def test_limits_of_a_token(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        limits = Allowance(calls=3, subscriptions=2, event_size=100, predicates=2, connections=2)
        token = node.token("small", "subscribe:*", "publish:*", limits=limits)
        gate = node.server.gate
        one, two = (gate.admit(token, None, "", "") for _ in range(2))
        with pytest.raises(OverloadError, match="2 connections"):
            gate.admit(token, None, "", "")
        await one.bus.close()
        one = gate.admit(token, None, "", "")
        with pytest.raises(EventError, match="100"):
            await one.bus.publish(event("1", data={"x": "y" * 200}))
        await one.bus.publish(event("1", data={"x": "y" * 50}))
        with pytest.raises(FilterLimitError):
            await one.bus.subscribe("a = 1 OR b = 2 OR c = 3")
        first = await one.bus.subscribe("a = 1 OR b = 2")
        await two.bus.subscribe("a = 1")
        with pytest.raises(OverloadError, match="3 calls"):
            await one.bus.alerts()
        node.clock.advance(2)
        with pytest.raises(OverloadError, match="2 subscriptions"):
            await one.bus.subscribe("a = 3")
        await first.close()
        await one.bus.subscribe("a = 3")
        reasons = {each["why"] for each in await node.refused()}
        assert reasons == {"limit", "rate"}


async def test_subscriptions_that_are_being_opened_count(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        token = node.token("small", "subscribe:*", limits=Allowance(subscriptions=3))
        faces = [node.server.gate.admit(token, None, "", "").bus for _ in range(3)]
        asked = [face.subscribe("a = 1", past=tocsin.last(1)) for face in faces * 5]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, OverloadError) for each in answers) == 12
        assert sum(hasattr(each, "mailbox") for each in answers) == 3


async def test_names_of_a_token(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        token = node.token("proxy", "publish:*", "subscribe:*")
        gate = node.server.gate
        assert gate.admit(token, None, "", "x").name == "proxy"
        assert gate.admit(token, "proxy", "", "x").bus.name == "proxy"
        ann = gate.admit(token, "proxy/ann", "", "x")
        assert ann.bus.as_user("proxy/ben").name == "proxy/ben"
        for name in ("ann", "prox", "proxy2", "Proxy", "proxy\\x", "node"):
            with pytest.raises(ForbiddenError, match="not that of"):
                gate.admit(token, name, "", "x")
            with pytest.raises(ForbiddenError):
                ann.bus.as_user(name)
        await ann.bus.publish(event("1", ack="receipt"))
        assert (await node.bus.audit("1"))[0].who == "proxy/ann"


async def test_numbers_of_publications_are_ones_own(tmp_path: Path) -> None:
    """Nobody can make the node believe that another has published already, or later."""
    async with guarded(tmp_path, listens=False) as node:
        one, two = (node.caller(name, "publish:*").bus for name in ("one", "two"))
        await one._publish_batch([event("1")], Batch("client/w", 7))
        [published] = await two._publish_batch([event("2")], Batch("client/w", 7))
        assert published.offset == 2
        await two._publish_batch([event("3")], Batch("client/w", 9))
        assert (await one._publish_batch([event("4")], Batch("client/w", 8)))[0].offset == 4
        assert (await one._publish_batch([event("5")], Batch("client/w", 8)))[0].offset == 4  # stored before


async def test_hard_arguments_are_refused_as_embedded(tmp_path: Path) -> None:
    """From the wire anything may come; nothing of it is a defect."""
    async with guarded(tmp_path, listens=False) as node:
        bus = node.caller("boss", "admin", "subscribe:*").bus
        for bad in (None, 5, ["x"], {"a": 1}, b"x", ""):
            with pytest.raises(tocsin.TocsinError):
                await bus.subscribe(bad)
            if bad is not None:
                with pytest.raises(tocsin.TocsinError):
                    await bus.subscribe("a = 1", bad)
                with pytest.raises(tocsin.TocsinError):
                    await bus.subscribe("a = 1", "c", group=bad)
            with pytest.raises(tocsin.TocsinError):
                await bus.forget(bad)
            with pytest.raises(tocsin.TocsinError):
                await bus.advertise(bad)
        with pytest.raises(EventError):
            await bus.publish("x")
        await testing.settled(node.bus)


def test_nothing_here_is_vacuous() -> None:
    """Every verb is in the table, or has a test of its own above, or is open to all."""
    checked = {verb.split()[0] for verb, _, _ in CASES} | {"request"}
    open_to_all = {"as_user", "close", "receipts", "unadvertise", "resources"}
    narrowed = {"consumers", "definitions", "explain", "alerts", "status", "audit"}
    assert checked | open_to_all | narrowed == set(VERBS)


async def test_two_programs_may_share_a_token_and_cancel_what_either_published(tmp_path: Path) -> None:
    async with guarded(tmp_path) as node:
        token = node.token("ops", "publish:*", "subscribe:*")
        async with node.connect(token) as one, node.connect(token) as two:
            assert one.name != two.name and one.name.startswith("ops/") and two.name.startswith("ops/")
            first = await one.publish(event("first", ttl=60))
            await two.cancel(first.id)
            assert (await one.status(first.id)).state == "cancelled"
            second = await one.publish(event("second", ttl=60))
            async with node.connect(node.token("others", "publish:*", "subscribe:*")) as other:
                with pytest.raises(tocsin.CancelError):
                    await other.cancel(second.id)


async def test_definitions_made_of_what_may_not_be_heard_are_neither_shown_nor_touched(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        await node.bus.define("plant.alarm", "SEQ([type = 'secret.code'], [type = 'machine.value'])")
        await node.bus.define("plant.stop", "SEQ([type = 'machine.value'], [type = 'machine.end'])")
        caller = node.caller("ops", "define:plant.", "subscribe:plant.", "subscribe:machine.")
        assert [each.name for each in await caller.bus.definitions()] == ["plant.stop"]
        with pytest.raises(ForbiddenError):
            await caller.bus.undefine("plant.alarm")
        with pytest.raises(ForbiddenError):
            await caller.bus.define("plant.alarm", "[type = 'machine.value']", replace=True)
        await caller.bus.undefine("plant.stop")
        assert [each.name for each in await node.bus.definitions()] == ["plant.alarm"]

"""What is known of one journal from the outside, over all lives lived on it, and what must then be true of the file."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import tocsin
from tests.crash.workload import CONSUMERS, make, subscribe
from tests.helpers import take


def settler(name: str) -> str:
    """Whose settling counts: the consumer's own, or its group's."""
    return str(CONSUMERS[name].get("group", name))


class Story:
    """Begun and answered, by verb. Between the two anything may be true; after the answer only one thing may."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.begun: list[list[str]] = []
        self.answered: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.acking: dict[str, set[str]] = defaultdict(set)
        self.acked: dict[str, set[str]] = defaultdict(set)
        self.cancelling: set[str] = set()
        self.cancelled: set[str] = set()
        self.trimmed = False

    def unanswered(self) -> list[list[str]]:
        """Publishes to be repeated by the next life; what is not persistent is not."""
        return [ids for ids in self.begun if ids[0] not in self.answered and make(ids[0]).persistent]

    def hear(self, said: list[list[Any]]) -> None:
        """Believe a child, line by line; some faults show at once."""
        gone = set(self.cancelled)  # by an earlier life: in this one a delivery may have been on its way
        for verb, *words in said:
            if verb == "publish":
                if words[0] not in self.begun:
                    self.begun.append(words[0])
            elif verb == "published":
                for id, offset in words[0]:
                    assert self.answered.setdefault(id, offset) == offset, f"{id} has two places"
            elif verb == "delivered":
                name, id, offset = words
                assert id not in self.acked[settler(name)], f"{id} was settled by {settler(name)}, and came again"
                assert self.answered.get(id, offset) == offset, f"{id} came from another place"
                assert id not in gone, f"{id} was cancelled, and came"
                self.seen[id] = offset
            elif verb == "ack":
                self.acking[settler(words[0])] |= set(words[1])
            elif verb == "acked":
                self.acked[settler(words[0])] |= set(words[1])
            elif verb == "cancel":
                self.cancelling.add(words[0])
            elif verb == "cancelled":
                self.cancelled.add(words[0])
            elif verb == "trim":
                self.trimmed = True
            else:
                assert verb in ("open", "closed"), f"the child failed: {words}"

    def may_be_gone(self, id: str) -> bool:
        """Cancelled; or trimmed, because nobody needs it any more: everyone has settled it and it is no live alert."""
        made = make(id)
        wanting = {settler(name) for name, each in CONSUMERS.items() if tocsin.Filter(each["filter"]).matches(made)}
        settled = all(id in self.acking[group] for group in wanting)
        return id in self.cancelling or (self.trimmed and settled and made.ack == "none")

    def check(self) -> None:
        """Open the journal and compare."""
        asyncio.run(self._check())

    async def _check(self) -> None:
        async with tocsin.connect(self.url, name="checker") as bus:
            options = {"past": tocsin.retained(), "order": "journal", "durable": False, "max_in_flight": 100_000}
            sub = await bus.subscribe("TRUE", consumer="checker", **options)
            stored = [d.event for d in await take(bus, sub)]
            await sub.close()
            self._check_stored(stored)
            for id in sorted(self.cancelled):
                assert await self._state(bus, id) == "cancelled", f"{id} was cancelled"
            for group in sorted({settler(name) for name in CONSUMERS}):
                await self._check_consumer(bus, group, stored)

    async def _state(self, bus: Any, id: str) -> str:
        try:
            return str((await bus.status(id)).state)
        except tocsin.UnknownEventError:
            return "cancelled" if self.trimmed else "unknown"

    def _check_stored(self, stored: list[Any]) -> None:
        places = {each.id: each.offset for each in stored}
        assert len(places) == len(stored), "stored twice"
        assert [each.offset for each in stored] == sorted(places.values()), "not in the order of offsets"
        assert places.keys().isdisjoint(self.cancelled), "cancelled, and still delivered"
        for what, known in (("answered", self.answered), ("delivered", self.seen)):
            for id, offset in known.items():
                if make(id).persistent and not (id not in places and self.may_be_gone(id)):
                    assert places.get(id) == offset, f"{id} was {what} with place {offset}, and has {places.get(id)}"
        assert all(make(id).persistent for id in places), "not persistent, and delivered after a restart"
        for each in stored:
            assert each.data == make(each.id).data and each.priority == make(each.id).priority, f"{each.id} has changed"
        latest: dict[str, int] = {}
        for each in stored:
            number = each.data["n"]
            assert number > latest.get(each.data["publisher"], -1), "a publisher's order is lost"
            latest[each.data["publisher"]] = number
        for ids in self.begun:
            present = {id in places for id in ids if not self.may_be_gone(id)}
            assert not make(ids[0]).persistent or len(present) <= 1, f"half a batch: {ids}"

    async def _check_consumer(self, bus: Any, group: str, stored: list[Any]) -> None:
        name = next(name for name in CONSUMERS if settler(name) == group)
        sub = await subscribe(bus, name)
        got = [d for d in await take(bus, sub) if not d.notice]
        received = {d.event.id for d in got}
        wanted = {each.id for each in stored if tocsin.Filter(CONSUMERS[name]["filter"]).matches(each)}
        assert len(received) == len(got), f"{group} got something twice"
        assert received.isdisjoint(self.acked[group]), f"{group} got again what it had settled"
        assert received <= wanted, f"{group} got what it did not want"
        assert wanted - self.acking[group] <= received, f"{group} misses {wanted - self.acking[group] - received}"
        by_urgency = CONSUMERS[name].get("order") != "journal"
        assert got == sorted(got, key=lambda d: (-d.event.priority if by_urgency else 0, d.offset)), f"{group}: order"
        await sub.close()

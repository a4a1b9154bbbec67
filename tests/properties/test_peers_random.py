"""Random lives of sessions: what the journal's records say, what is kept as state, and what is known in memory agree.

Sessions advertise, serve, join, leave, close and are lost, several at a time; the node is closed or dies, and is opened
again. Records are folded by the plainest code there is, and compared with everything else after each step.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import tocsin
from tests.helpers import life, take, testing

NAMES = ("ann", "bob", "cyd")
FILTERS = ("v > 1", "v > 2", "w = 'x/y'")
GROUPS = ("g", "line/7")


class Books:
    """The truth, by records alone."""

    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}
        self.advertised: set[tuple[str, str, bool]] = set()
        self.groups: dict[str, list[str]] = {}
        self.told: list[tuple[str, str, str]] = []
        """What somebody who watches should have heard since it was last asked."""

    def _tell(self, first: str, other: str, data: Any) -> None:
        rest = [each for each in self.advertised if each[1:] == (data["resource"], data["served"])]
        self.told.append((other if rest else first, data["resource"], data["name"]))

    def read(self, event: tocsin.Event) -> None:
        kind, data = event.type.removeprefix("tocsin."), event.data
        if kind == "session" and data["state"] == "began":
            assert data["session"] not in self.sessions
            self.sessions[data["session"]] = data["name"]
        elif kind == "session":
            del self.sessions[data["session"]]
            assert not [each for each in self.advertised if each[0] == data["session"]]
        elif kind == "advertised":
            self._tell("found", "advertised", data)
            self.advertised.add((data["session"], data["resource"], data["served"]))
        elif kind == "unadvertised":
            self.advertised.remove((data["session"], data["resource"], data["served"]))
            self._tell("depleted", "unadvertised", data)
        elif kind == "view":
            before = self.groups.get(event.subject or "", [])
            after = [name for name in before if name not in data["left"]] + data["joined"]
            assert data["members"] == after, "a view is the one before, with who joined and without who left"
            self.groups[event.subject or ""] = after


async def compare(bus: Any, since: int, books: Books, changes: Any) -> int:
    sub = await bus.subscribe("type LIKE 'tocsin.%'", past=tocsin.since(since), order="journal", system=True)
    for d in await take(bus, sub):
        books.read(d.event)
        since = d.offset + 1
        await d.ack()
    await sub.close()
    if changes is not None:
        assert [(each.kind, each.resource, each.by) for each in iter(changes.poll, None)] == books.told
    books.told.clear()
    peers = bus._node.peers
    assert {id: session.name for id, session in peers.sessions.items()} == books.sessions
    known = {(id, each.text, each.served) for id in books.sessions for each in peers.advertisements.of(id)}
    assert known == books.advertised
    views = {group: peers.groups.view(group) for group in GROUPS}
    members = {group: list(view.members) for group, view in views.items() if view}
    assert members == {group: names for group, names in books.groups.items() if names}
    state = {each.split("/", 3)[1] for each in bus._node.journal.state("peers/")}
    assert state == set(books.sessions)
    kept = len(bus._node.journal.state("peers/"))
    assert kept == len(books.sessions) + len(books.advertised) + sum(map(len, members.values()))
    seen = {(change.resource, change.served) for change in iter(bus.resources().poll, None)}
    assert seen == {(text, served) for _, text, served in books.advertised}
    return since


class Person:
    """A session and what it holds, driven at random."""

    def __init__(self, bus: Any, chance: random.Random) -> None:
        self.chance = chance
        self.face = bus.as_user(chance.choice(NAMES))
        self.groups: list[Any] = []
        self.served: list[Any] = []

    async def act(self) -> None:
        chance = self.chance
        what = chance.choice(["advertise", "unadvertise", "serve", "unserve", "join", "leave", "close", "lose"])
        try:
            if what == "advertise":
                await self.face.advertise(chance.choice(FILTERS))
            elif what == "unadvertise":
                await self.face.unadvertise(chance.choice(FILTERS))
            elif what == "serve":
                self.served.append(await self.face.serve(chance.choice("pq"), repr).__aenter__())
            elif what == "unserve" and self.served:
                await self.served.pop().__aexit__(None, None, None)
            elif what == "join":
                self.groups.append(await self.face.join(chance.choice(GROUPS)).__aenter__())
            elif what == "leave" and self.groups:
                await self.groups.pop().leave()
            elif what == "close" and chance.random() < 0.3:
                await self.face.close()
            elif what == "lose" and chance.random() < 0.3:
                await testing.lose(self.face)
        except (tocsin.PeerError, tocsin.JournalError):
            pass  # a member already, served already, or closed meanwhile


@pytest.mark.parametrize("seed", range(6))
async def test_records_state_and_memory_agree(file_url: str, clock: Any, seed: int) -> None:
    chance, books, since = random.Random(seed), Books(), 1
    for _ in range(4):
        async with life(file_url, clock, end=chance.choice(["close", "crash"])) as bus:
            people, changes = [Person(bus, chance) for _ in range(5)], bus.resources()
            since = await compare(bus, since, books, None)  # what an earlier life has left is withdrawn
            for _ in range(12):
                since = await compare(bus, since, books, changes)
                busy = [asyncio.ensure_future(chance.choice(people).act()) for _ in range(chance.randrange(1, 8))]
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(0)
                if chance.random() < 0.3:
                    chance.choice(busy).cancel()
                await asyncio.gather(*busy, return_exceptions=True)
    async with life(file_url, clock) as bus:
        await compare(bus, since, books, None)
        assert not books.sessions and not books.advertised and not any(books.groups.values())

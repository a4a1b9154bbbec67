"""`GET /sessions` and `GET /resources`: who is there, and what they offer.

A session is shown with what belongs to it: what it advertises and serves, its groups, its subscriptions. Requests come
and go; one of them is shown only while it listens (`GET /subscribe`).

Promised: with a token one sees the sessions of that token, or all if one may hear of them (`subscribe:tocsin.session`);
of what they offer and where they are members, what one may use oneself; addresses are for administrators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from starlette.responses import Response

from tocsin.clock import as_datetime
from tocsin.model import time_text
from tocsin.net.access import WS
from tocsin.net.http.answers import reply
from tocsin.net.http.contract import Ask
from tocsin.node.sessions import Session
from tocsin.peers.advertisements import Change
from tocsin.peers.records import SESSION

__all__ = ["resources", "sessions"]

MOST: Final = 1_000
"""Sessions and resources that are shown."""


async def sessions(ask: Ask) -> Response:
    """Who is there, the newest first."""
    offers = defaultdict[str, list[Change]](list)
    for change in _offered(ask):
        offers[change.session].append(change)
    caller, peers = ask.caller, ask.front.server.node.peers
    sees_all = caller.may("subscribe", SESSION)
    present = [each for each in _present(ask) if sees_all or caller.is_own(each[0].name)]
    present.sort(key=lambda each: each[0].since, reverse=True)
    found = []
    for session, kind, address in present[:MOST]:
        mine = offers[session.id]
        found.append(
            {
                "name": session.name,
                "kind": kind,
                "since": time_text(as_datetime(session.since)),
                "address": address if caller.may("admin") else None,
                "advertises": [each.resource for each in mine if not each.served],
                "serves": [each.resource for each in mine if each.served],
                "groups": [group for group in peers.groups.of(session.id) if caller.may("join", group)],
                "subscriptions": sum(not each.closed for each in session.subscriptions),
            }
        )
    return reply(found)


def _present(ask: Ask) -> Iterator[tuple[Session, str, str | None]]:
    """Everybody: those who came in by the gate, and those who live in the node's process and have announced it."""
    server, known = ask.front.server, set[str]()
    for caller in server.gate.callers():
        session: Session = caller.bus._session
        known.add(session.id)
        if caller is not ask.caller and (caller.kind == WS or session.subscriptions):
            yield session, caller.kind, caller.where
    for session in list(server.node.peers.sessions.values()):
        if session.id not in known:
            yield session, "node", None


async def resources(ask: Ask) -> Response:
    """What is advertised and served, and by whom."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for change in _offered(ask):
        what = {"resource": change.resource, "served": change.served, "by": []}
        found.setdefault((change.resource, change.served), what)["by"].append(change.by)
    return reply(list(found.values())[:MOST])


def _offered(ask: Ask) -> Iterator[Change]:
    """What is there now, of what the caller may know."""
    watch = ask.bus.resources()
    try:
        while (change := watch.poll()) is not None:
            yield change
    finally:
        watch.close()

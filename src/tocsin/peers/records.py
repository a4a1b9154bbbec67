"""What the journal holds of sessions: system records that everybody may read, and state that outlives a crash.

    tocsin.session       a session began, ended or crashed        data: session, name, state
    tocsin.advertised    it advertises or serves something        data: session, name, resource, served
    tocsin.unadvertised  it does not any more, or is gone         the same
    tocsin.view          who is in a group from here on           subject: the group; data: members, joined, left
    tocsin.cast          a message to a group                     subject: the group; attribute: sender

Beside them, each in the commit of its record, state under `peers/`: what a session has at this moment. A session does
not outlive its process, so whoever opens the journal next finds there what is to be withdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tocsin.filters.printer import print_scalar
from tocsin.model import Event, new_id
from tocsin.peers.advertisements import Resource
from tocsin.peers.groups import Plan

__all__ = [
    "CAST",
    "PREFIX",
    "VIEW",
    "advertised",
    "cast",
    "filter_of_group",
    "group_key",
    "key",
    "resource_key",
    "session",
    "unadvertised",
    "view",
    "withdrawals",
]

SESSION: Final = "tocsin.session"
ADVERTISED: Final = "tocsin.advertised"
UNADVERTISED: Final = "tocsin.unadvertised"
VIEW: Final = "tocsin.view"
CAST: Final = "tocsin.cast"
PREFIX: Final = "peers/"
_SOURCE: Final = "tocsin"
_EVENTS, _REQUESTS, _GROUP = "events", "requests", "group"


def session(id: str, name: str, state: str) -> Event:
    """A session `began`, `ended` or `crashed`."""
    return Event(SESSION, _SOURCE, data={"session": id, "name": name, "state": state})


def advertised(id: str, name: str, resource: Resource) -> Event:
    """A session advertises."""
    return Event(ADVERTISED, _SOURCE, data=_about(id, name, resource))


def unadvertised(id: str, name: str, resource: Resource) -> Event:
    """A session does not advertise any more."""
    return Event(UNADVERTISED, _SOURCE, data=_about(id, name, resource))


def _about(id: str, name: str, resource: Resource) -> dict[str, Any]:
    return {"session": id, "name": name, "resource": resource.text, "served": resource.served}


def view(plan: Plan) -> Event:
    """The next view of a group."""
    data = {"members": list(plan.members.values()), "joined": list(plan.joined), "left": list(plan.left)}
    return Event(VIEW, _SOURCE, subject=plan.group, data=data)


def cast(group: str, sender: str, data: Any, id: str | None = None) -> Event:
    """A message to a group. One with an id of its sender's choice is stored once; ids of others are apart."""
    own = new_id() if id is None else f"cast/{group}/{sender}/{id}"
    return Event(CAST, _SOURCE, own, subject=group, data=data, attributes={"sender": sender})


def filter_of_group(group: str) -> str:
    """The filter for what members of a group get."""
    return f"type IN ({print_scalar(VIEW)}, {print_scalar(CAST)}) AND subject = {print_scalar(group)}"


# -- state


def key(id: str) -> str:
    """Under this, the name of a session."""
    return PREFIX + id


def resource_key(id: str, resource: Resource) -> str:
    """There while a session advertises this."""
    return f"{PREFIX}{id}/{_REQUESTS if resource.served else _EVENTS}/{resource.text}"


def group_key(id: str, group: str) -> str:
    """There while a session is in this group."""
    return f"{PREFIX}{id}/{_GROUP}/{group}"


def withdrawals(state: Mapping[str, bytes]) -> list[Event]:
    """The records that withdraw all that sessions of an earlier life have left behind."""
    names = {each.removeprefix(PREFIX): name.decode() for each, name in state.items() if each.count("/") == 1}
    found: list[Event] = []
    groups: dict[str, list[str]] = {}
    for each in state:
        if each.count("/") == 1:
            continue
        _, id, kind, text = each.split("/", 3)
        if kind == _GROUP:
            groups.setdefault(text, []).append(names[id])
        else:
            found.append(unadvertised(id, names[id], Resource(text, kind == _REQUESTS)))
    found += [view(Plan(group, {}, left=tuple(left))) for group, left in groups.items()]
    found += [session(id, name, "crashed") for id, name in names.items()]
    return found

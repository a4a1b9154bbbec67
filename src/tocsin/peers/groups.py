"""Groups: who is in them, and views, which say so at one place in the journal.

A view and a message are both records with an offset. So all members see both in one order, and a message lies in the
same view for everybody: the last one before it. That is virtual synchrony; causal and total order follow.

`join` and `leave` only say what the next view would be; it holds when it is stored, which `install` is told.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tocsin.errors import GroupError
from tocsin.model import Event

__all__ = ["MAX_GROUPS", "MAX_MEMBERS", "Groups", "Message", "Plan", "View", "no_member"]

MAX_MEMBERS: Final = 1_000
"""Members of one group."""
MAX_GROUPS: Final = 100
"""Groups that one session may be in."""


def no_member(name: str | None, group: str) -> GroupError:
    """Somebody speaks, or listens, to a group that it is not in."""
    return GroupError(
        f"{name!r} is not in group {group!r}",
        field="group",
        help="async with bus.join(…) as group: you are in it until the end of the block",
    )


class View(msgspec.Struct, frozen=True):
    """Who is in a group, from an offset on, until the next view."""

    group: str
    members: tuple[str, ...]
    """Names, the longest there first."""
    joined: tuple[str, ...]
    """Who is new in it."""
    left: tuple[str, ...]
    """Who was in the view before and is not in this; a crash looks the same as leaving."""
    offset: int
    """Its place in the journal. It tells views apart."""

    @classmethod
    def of(cls, record: Event) -> View:
        """The view that a record tells."""
        data = record.data
        return cls(
            record.subject or "", tuple(data["members"]), tuple(data["joined"]), tuple(data["left"]), record.offset or 0
        )


class Message(msgspec.Struct, frozen=True):
    """What a member has cast to its group."""

    data: Any
    sender: str
    """The name of the member."""
    view: View
    """The view it lies in: who gets it."""
    offset: int

    @classmethod
    def of(cls, record: Event, view: View) -> Message:
        """The message that a record holds."""
        return cls(record.data, str(record.attributes["sender"]), view, record.offset or 0)


class Plan(msgspec.Struct, frozen=True):
    """The next view of a group, not stored yet."""

    group: str
    members: dict[str, str]
    """Session → name."""
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Groups:
    """The members of all groups. A group is there while somebody is in it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._members: dict[str, dict[str, str]] = {}
        self._views: dict[str, View] = {}

    def join(self, group: str, session: str, name: str) -> Plan:
        """The view in which a session is a member.

        Raises:
            GroupError: the session, or another of this name, is one already; or there is no room.
        """
        members = self._members.get(group, {})
        if session in members or name in members.values():
            raise GroupError(
                f"{name!r} is in group {group!r} already", field="group", help="leave first, or join under another name"
            )
        if len(members) >= MAX_MEMBERS:
            raise GroupError(
                f"group {group!r} has {MAX_MEMBERS:,} members, the most there may be", field="group", help="make two"
            )
        if len(self.of(session)) >= MAX_GROUPS:
            raise GroupError(f"a session is in at most {MAX_GROUPS} groups", field="group", help="leave another first")
        return Plan(group, {**members, session: name}, joined=(name,))

    def leave(self, group: str, session: str) -> Plan:
        """The view in which a member is none any more."""
        members = dict(self._members[group])
        name = members.pop(session)
        return Plan(group, members, left=(name,))

    def install(self, plan: Plan, offset: int) -> None:
        """A planned view is stored at an offset: it holds."""
        if plan.members:
            self._members[plan.group] = plan.members
            self._views[plan.group] = View(plan.group, tuple(plan.members.values()), plan.joined, plan.left, offset)
        else:
            self._members.pop(plan.group, None)
            self._views.pop(plan.group, None)

    def view(self, group: str) -> View | None:
        """The view that holds; None: nobody is in the group."""
        return self._views.get(group)

    def of(self, session: str) -> list[str]:
        """The groups a session is in."""
        return [group for group, members in self._members.items() if session in members]

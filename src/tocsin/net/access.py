"""Who is let in, and what they may: the one door of WebSocket sessions and HTTP requests.

A `Gate` turns what a stranger says of itself into a `Caller`. A caller has a face of the bus on which every verb is
limited to its rights already; what has no verb there is asked of the caller by name.

Without tokens everybody is let in, under the name they give: `serve` allows that on loopback, or if it is told to. As
soon as there is a token, one is needed, and who came without is shown out. Whose token is revoked, expires or changes
is told so within a second (`Caller.watch`).
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from tocsin.errors import ForbiddenError, OverloadError, ProtocolError, TocsinError, UnauthorizedError
from tocsin.filters.filter import Filter
from tocsin.filters.limits import DEFAULT
from tocsin.model import Event
from tocsin.net.guard import Guard
from tocsin.net.refusals import Refusals
from tocsin.node.pipeline import Node
from tocsin.security.principal import Principal
from tocsin.security.tokens import LOOK, Denied, TokenStore, refusal

__all__ = ["Caller", "Gate", "GuardedCaller"]

E = TypeVar("E", bound=TocsinError)
LONGEST_NAME = 256
WS, HTTP = "ws", "http"
"""How somebody comes."""
_log = logging.getLogger("tocsin.net")


class Caller:
    """Somebody who was let in. This one may do everything."""

    def __init__(self, name: str, bus: Any, where: str = "", kind: str = HTTP) -> None:
        """Let in under a name, with a face of the bus. Closing the face is going out."""
        self.name, self.bus = name, bus
        self.where, self.kind = where, kind
        """The address it comes from, and how: `ws` or `http`."""
        self.scope: Filter | None = None
        """All that it may see; None: everything. What `sees` says, for whoever asks a journal rather than an event."""
        self.filter_limits = DEFAULT
        """What its filters may cost."""
        self.who = ""
        """The name of its token, before which no other's names of writers and batches are its own; empty: none."""
        self.event_size: int | None = None
        """The most bytes of a payload, if its token says so."""
        self._watchers: list[Callable[[UnauthorizedError], object]] = []
        self._end: UnauthorizedError | None = None

    def check(self, right: str, subject: str = "") -> None:
        """May it do this?

        Args:
            right: `publish`, `subscribe`, `define`, `serve`, `request`, `join`, `metrics` or `admin`.
            subject: with what: a type of events, a resource, a group.

        Raises:
            ForbiddenError: no.
        """

    def check_any(self, right: str) -> None:
        """May it do this with anything at all? To be asked before anything is read of who may not.

        Raises:
            ForbiddenError: no.
        """

    def may(self, right: str, subject: str = "") -> bool:
        """As `check`, for what is then left out rather than refused."""
        return True

    def sees(self, event: Event) -> bool:
        """May it know of an event?"""
        return True

    def is_own(self, name: str) -> bool:
        """Is this a name of its own?"""
        return True

    def spend(self, events: int, size: int) -> None:
        """Count what it sends: so many events, so many bytes.

        Raises:
            OverloadError: that is more than it may in a time.
        """

    def spend_call(self) -> None:
        """Count a verb, if the face of the bus does not do so.

        Raises:
            OverloadError: that is more than it may in a time.
        """

    def refused(self, error: E, why: str) -> E:
        """Write down that it was refused something for which there is no `check`; returns the error to raise."""
        return error

    def watch(self, callback: Callable[[UnauthorizedError], object]) -> None:
        """Have a function called when it is not welcome any more: its token was revoked, or has expired.

        Whatever goes on for longer than one request must end then. Called at once if that is so already.
        """
        if self._end is not None:
            callback(self._end)
        else:
            self._watchers.append(callback)

    def check_welcome(self) -> None:
        """Is it still welcome? To be asked after a wait for what a stranger can draw out.

        Raises:
            UnauthorizedError: no.
        """
        if self._end is not None:
            raise self._end

    @property
    def is_gone(self) -> bool:
        """Has it gone out?"""
        return bool(self.bus._session.ended)

    def show_out(self, error: UnauthorizedError) -> None:
        """It is not welcome any more."""
        if self._end is None:
            self._end = error
            for callback in self._watchers:
                callback(error)


class GuardedCaller(Caller):
    """Somebody with a token."""

    def __init__(self, name: str, principal: Principal, bus: Any, gate: Gate, where: str, kind: str) -> None:
        """Let in under a name that is the token's."""
        self.principal, self._gate = principal, gate
        super().__init__(name, bus, where, kind)
        self.bus = Guard(bus, self)
        self.scope = principal.scope.filter(system=True)
        self.filter_limits = principal.filter_limits
        self.who = principal.name
        self.event_size = principal.token.limits.event_size

    def check(self, right: str, subject: str = "") -> None:
        """See `Caller.check`."""
        try:
            self.principal.rights.check(right, str(subject))
        except ForbiddenError as error:
            raise self.refused(error, "right") from None

    def check_any(self, right: str) -> None:
        """See `Caller.check_any`."""
        if not self.principal.rights.prefixes(right):
            self.check(right)

    def may(self, right: str, subject: str = "") -> bool:
        """See `Caller.may`."""
        return self.principal.rights.allow(right, subject)

    def sees(self, event: Event) -> bool:
        """See `Caller.sees`."""
        return self.principal.scope.sees(event)

    def is_own(self, name: str) -> bool:
        """See `Caller.is_own`."""
        return self.principal.may_be(name)

    def spend(self, events: int, size: int) -> None:
        """See `Caller.spend`."""
        self._spend(events=events, bytes=size)

    def spend_call(self) -> None:
        """See `Caller.spend_call`."""
        self._spend(calls=1)

    def _spend(self, **amounts: float) -> None:
        try:
            self.principal.meter.spend(self._gate.now(), **amounts)
        except OverloadError as error:
            raise self.refused(error, "rate") from None

    def check_subscriptions(self) -> None:
        """Is there room for another subscription?

        Raises:
            OverloadError: no.
        """
        most = self.principal.token.limits.subscriptions
        callers = self._gate.callers_of(self.principal)
        is_open = sum(not each.closed for caller in callers for each in caller.bus._session.subscriptions)
        if is_open + self.principal.opening >= most:
            error = OverloadError(f"your token has {most:,} subscriptions open", help="close some first")
            raise self.refused(error, "limit")

    def refused(self, error: E, why: str) -> E:
        """See `Caller.refused`."""
        self._gate.refusals.note(why, error.message, name=self.name, token=self.principal.token, where=self.where)
        return error

    def again(self, name: str) -> GuardedCaller:
        """The same under another name of its own.

        Raises:
            ForbiddenError: it is another's.
        """
        return self._gate.enter(self.principal, name, self.where, self.kind)


class Gate:
    """Who is let in, and who is in."""

    def __init__(self, node: Node, face: Callable[[str], Any], tokens: TokenStore | None = None) -> None:
        """Guard a node.

        Args:
            node: the node.
            face: gives the bus of a name.
            tokens: whom to let in; None: everybody.
        """
        self._node, self._face, self._tokens = node, face, tokens
        self.refusals = Refusals(node)
        """`refusals.counts` has how many there were, by reason."""
        self._principals: dict[str, Principal] = {}
        self._callers: weakref.WeakSet[Caller] = weakref.WeakSet()
        self._by_token: dict[str, weakref.WeakSet[GuardedCaller]] = {}
        self._told: str | None = None

    def now(self) -> int:
        """The moment, in microseconds."""
        return self._node.clock.now()

    @property
    def is_guarded(self) -> bool:
        """Is a token needed?"""
        return self._tokens is not None and self._tokens.is_used

    def admit(
        self, token: str | None, name: str | None, where: str, default: str, behind: str = "", kind: str = HTTP
    ) -> Caller:
        """Let somebody in.

        Args:
            token: what it shows.
            name: who it says it is.
            where: the address it comes from.
            default: its name if neither it nor its token says one.
            behind: added to the token's name if it says none, so that two who share a token are not taken for one.
            kind: how it comes.

        Raises:
            UnauthorizedError: the token is missing, wrong, expired or revoked.
            ForbiddenError: it may not use this name.
            OverloadError: its token has too many connections open.
            ProtocolError: the name is none.
        """
        if name is not None:
            check_name(name)
        if self._tokens is not None:
            self._tokens.look()
        if self._tokens is None or not self._tokens.is_used:
            known = name if name is not None else default
            caller = Caller(known, self._face(known), where, kind)
            self._callers.add(caller)
            return caller
        try:
            found = self._tokens.find(token, self.now())
        except Denied as denied:
            self.refusals.note(denied.why, "to be let in", name=name or "", token=denied.token, where=where)
            raise denied.error from None
        principal = self._principals.get(found.id)
        if principal is None or principal.token != found:
            principal = self._principals[found.id] = Principal(found, self.now())
        own = f"{principal.name}/{behind}" if behind else principal.name
        return self.enter(principal, name if name is not None else own, where, kind)

    def enter(self, principal: Principal, name: str, where: str, kind: str) -> GuardedCaller:
        """Let in who has shown a token, under a name.

        Raises:
            ForbiddenError: the name is another's.
            OverloadError: it has too many connections open.
        """
        most = principal.token.limits.connections
        why = "name"
        try:
            principal.check_name(name)
            why = "limit"
            if len(self.callers_of(principal)) >= most:
                raise OverloadError(f"your token has {most:,} connections open", help="close some first")
        except (ForbiddenError, OverloadError) as error:
            self.refusals.note(why, error.message, name=name, token=principal.token, where=where)
            raise
        caller = GuardedCaller(name, principal, self._face(name), self, where, kind)
        self._callers.add(caller)
        self._by_token.setdefault(principal.token.id, weakref.WeakSet()).add(caller)
        return caller

    def callers(self) -> list[Caller]:
        """Who is in."""
        return [each for each in list(self._callers) if not each.is_gone]

    def callers_of(self, principal: Principal) -> list[GuardedCaller]:
        """Who is in with the token of a principal."""
        return [each for each in list(self._by_token.get(principal.token.id, ())) if not each.is_gone]

    # -- who is not welcome any more

    async def keep(self) -> None:
        """Look after tokens for ever: whose token does not hold any more is shown out."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                self.look()
            except Exception:  # a defect of ours: revoking must go on working
                _log.exception("tokens could not be looked after")

    def look(self) -> None:
        """Look once."""
        if self._tokens is None:
            return
        self._tokens.look(now=True)
        problem = str(self._tokens.problem) if self._tokens.problem is not None else None
        if problem != self._told and problem is not None:  # who is in may stay: a slip of an editor stops no plant
            _log.error("nobody is let in: %s", problem)
        self._told = problem
        if not self._tokens.is_used:
            return
        for caller in list(self._callers):
            if (error := self._against(caller)) is not None:
                self._callers.discard(caller)
                if not caller.is_gone:
                    token = caller.principal.token if isinstance(caller, GuardedCaller) else None
                    self.refusals.note("ended", error.message, name=caller.name, token=token)
                caller.show_out(error)

    def _against(self, caller: Caller) -> UnauthorizedError | None:
        """Why a caller is not welcome any more; None: it is."""
        assert self._tokens is not None
        if not isinstance(caller, GuardedCaller):
            return refusal("missing")
        had = caller.principal.token
        found = self._tokens.get(had.id)
        if found is None:
            return refusal("revoked")
        state = found.state(self.now())
        if state != "valid":
            return refusal(state)
        if found != had:
            return UnauthorizedError("what your token may has changed", field="token", help="connect again")
        return None


def check_name(name: str) -> str:
    """A name that somebody gives.

    Raises:
        ProtocolError: it is none.
    """
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ProtocolError("the name is none", field="name", help=f"use 1 to {LONGEST_NAME} printable characters")
    return name

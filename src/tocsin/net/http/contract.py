"""What a route is: a line of the table from which both the routes and the published description are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tocsin.net.access import Caller

if TYPE_CHECKING:
    from tocsin.net.http.front import Front

__all__ = ["ARROW", "JSON", "LINES", "ROWS", "SSE", "Ask", "Operation", "Param"]

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
SSE: Final = "text/event-stream"
ROWS: Final = "application/octet-stream"
"""A list of packed rows (MessagePack), which has no name of its own."""


class Param(msgspec.Struct, frozen=True):
    """Something that may be said in the query."""

    name: str
    about: str
    kind: str = "string"
    """As in JSON Schema: string, integer, number or boolean."""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    needed: bool = False


class Ask:
    """A request that was let in, with what its query says."""

    __slots__ = ("caller", "front", "held", "query", "request")

    def __init__(self, front: Front, request: Request, caller: Caller, query: Mapping[str, Any]) -> None:
        """Put together what a handler needs."""
        self.front, self.request, self.caller, self.query = front, request, caller, query
        self.held = 0

    @property
    def bus(self) -> Any:
        """The caller's face of the node."""
        return self.caller.bus

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    async def body(self, largest: int) -> bytes:
        """The whole body; see `bodies.read`."""
        content = await self.front.bodies.read(self.request, largest)
        self.held += len(content)
        self.caller.check_welcome()  # it may have dripped in for minutes
        return content

    def close(self) -> None:
        """It is answered."""
        self.front.bodies.release(self.held)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    """As Starlette has it; `{id:path}` may hold slashes."""
    handle: Callable[[Ask], Awaitable[Response]]
    about: str
    query: tuple[Param, ...] = ()
    headers: tuple[Param, ...] = ()
    takes: Mapping[str, Any] = {}
    """Content types of the body, and the schema of each."""
    needs_body: bool = True
    gives: Mapping[int, Mapping[str, Any]] = {}
    """Statuses of success; for each, content types and their schemas."""
    is_open: bool = False
    """Is it answered to everybody, also while the node drains?"""
    tells_token: bool = False
    """May the token be in the query? Browsers cannot give EventSource a header."""

"""The way in: every request comes through here, so none is forgotten.

    route ─▶ method ─▶ draining? ─▶ who is it? ─▶ query ─▶ handler ─▶ answer, in time ─▶ counted, closed

Promised: an answer is JSON with a status that follows from the error; what is no error of ours is logged and answered
500. Whoever does not take the answer is shown out after `stuck` seconds. The caller's face of the bus is closed
whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tocsin.errors import ProtocolError, TocsinError
from tocsin.net.access import Caller
from tocsin.net.http.answers import Refused, draining, refusal
from tocsin.net.http.bodies import Gone
from tocsin.net.http.contract import Ask, Operation
from tocsin.net.http.queries import TOKEN, parse
from tocsin.net.http.wire import wire_of

if TYPE_CHECKING:
    from tocsin.net.http.front import Front

__all__ = ["Endpoint", "Missing"]

NAME = "http"
"""Who asks, if nobody says."""
_log = logging.getLogger("tocsin.net")


class _Stuck(Exception):
    """The client takes nothing."""


class Endpoint:
    """All methods of one path; an ASGI application."""

    def __init__(self, front: Front, path: str, operations: Iterable[Operation]) -> None:
        """Serve these."""
        self._front, self._path = front, path
        self._operations = {each.method: each for each in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Answering(self._front, self._path, scope, receive, send).run(self._operations)


class Missing:
    """Every path that is none of ours."""

    def __init__(self, front: Front) -> None:
        """Refuse all."""
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Answering(self._front, "", scope, receive, send).run({})


class _Answering:
    """One request on its way."""

    def __init__(self, front: Front, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._front, self._path, self._scope, self._receive, self._send = front, path, scope, receive, send
        self._request = Request(scope, receive, send)
        self._caller: Caller | None = None
        self._ask: Ask | None = None
        self._status = 0

    async def run(self, operations: dict[str, Operation]) -> None:
        front, task = self._front, asyncio.current_task()
        assert task is not None
        front.requests[task] = False
        try:
            response = await self._response(operations)
            await response(self._scope, self._receive, self._sent)
        except (_Stuck, Gone):
            self._status = self._status or 499  # it left before the answer: nobody is told
        except asyncio.CancelledError:
            if not front.requests.get(task):
                raise
            task.uncancel()
            wire_of(self._scope).abort()  # the client must see that this was not all
        except Exception:
            _log.exception("%s %s has failed", self._request.method, self._path)
            wire_of(self._scope).abort()
        finally:
            front.requests.pop(task, None)
            front.count(self._path, self._request.method, self._status)
            if self._ask is not None:
                self._ask.close()
            if self._caller is not None:
                with contextlib.suppress(TocsinError):  # what it had in the journal is withdrawn later
                    await self._caller.bus.close()

    async def _response(self, operations: dict[str, Operation]) -> Response:
        try:
            operation = self._chosen(operations)
            return await operation.handle(self._admitted(operation))
        except (Refused, TocsinError) as error:
            return refusal(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not self._front.requests.get(task):
                raise
            task.uncancel()  # it took too long for a node that is leaving
            return refusal(draining())
        except Gone:
            raise
        except Exception as error:
            _log.exception("%s %s has failed", self._request.method, self._path)
            return refusal(error)

    def _chosen(self, operations: dict[str, Operation]) -> Operation:
        method = self._request.method
        if not operations:
            path = self._scope["path"][:100]
            raise Refused(404, ProtocolError(f"there is no {path!r} here", help="see /openapi.json"))
        operation = operations.get(method)
        if operation is None:
            allowed = ", ".join(sorted(operations))
            path = self._path.replace(":path", "")
            error = ProtocolError(f"{method[:32]} is not for {path}", help=f"use {allowed}")
            raise Refused(405, error, {"Allow": allowed})
        if self._front.server.draining and not operation.is_open:
            raise draining()
        return operation

    def _admitted(self, operation: Operation) -> Ask:
        request, front = self._request, self._front
        if operation.is_open:
            caller = Caller(NAME, None)
        else:
            where = request.client.host if request.client is not None else ""
            caller = front.server.gate.admit(_token(request, operation), _name(request), where, NAME)
            self._caller = caller
        self._ask = Ask(front, request, caller, parse(request, operation.query, token=operation.tells_token))
        return self._ask

    async def _sent(self, message: Message) -> None:
        """Send, as long as the client takes it."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        try:
            async with asyncio.timeout(self._front.limits.stuck):
                await self._send(message)
        except TimeoutError:
            wire_of(self._scope).abort()
            raise _Stuck from None


def _name(request: Request) -> str | None:
    """Who it says it is. Headers are bytes; what they mean is UTF-8, or else Latin-1, as HTTP has it."""
    said = request.headers.get("tocsin-name")
    try:
        return None if said is None else said.encode("latin-1").decode()
    except UnicodeDecodeError:
        return said


def _token(request: Request, operation: Operation) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return request.query_params.get(TOKEN) if operation.tells_token else None

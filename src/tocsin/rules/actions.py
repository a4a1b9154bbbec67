"""Actions for operators who write no Python: call a URL, run a program.

Both take an event, or what an agent's rule gets, and raise `RuleError` if it did not work; the host tries again or
reports it. Neither says that the other side does it once: it may get the same event again, with the same id and source.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from tocsin import cloudevents
from tocsin.errors import RuleError
from tocsin.model import Event, time_text

__all__ = ["Command", "Webhook", "command", "webhook"]

_SHOWN: Final = 500
"""Bytes of an answer or of a program's complaints that an error quotes."""
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Webhook:
    """POST the event to a URL, as a structured CloudEvent. An answer of 2xx is success; redirects are not followed."""

    def __init__(self, url: str, *, timeout: float = 10.0, headers: Mapping[str, str] | None = None) -> None:
        """Say where to.

        Raises:
            RuleError: that is no http or https address, no header, or no time.
        """
        try:
            parts = urlsplit(url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # its port is no number
            is_good = False
        if not is_good or re.fullmatch(r"[!-~]+", url) is None:
            help = "give http://… or https://…, other characters than ASCII as %…"
            raise RuleError(f"{url!r} is no address to post to", field="url", help=help)
        if parts.username is not None or parts.password is not None:
            raise RuleError("the address holds a user or password", field="url", help="send it in a header")
        for name, value in (headers or {}).items():
            _check_header(name, value)
        _check_timeout(timeout)
        self.url, self.timeout = url, timeout
        self._shown = f"{parts.scheme}://{parts.netloc}"  # addresses of webhooks are often secret from there on
        self._parts = parts
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", **(headers or {})}
        self.__name__ = "webhook"

    def __repr__(self) -> str:
        """Show the server; the rest of the address, and headers, may be secret."""
        return f"webhook {self._shown}"

    async def __call__(self, what: Any) -> None:
        """Post it; the answer is waited for at most `timeout` seconds.

        Raises:
            RuleError: no answer, or another than 2xx.
        """
        body = cloudevents.to_json(_event(what))
        host, port = self._parts.hostname or "", self._parts.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=self.timeout, context=ssl.create_default_context())
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=self.timeout)
        )
        try:
            async with asyncio.timeout(self.timeout):
                await self._posted(connection, body)
        except (OSError, http.client.HTTPException) as error:  # a TimeoutError is an OSError
            said = str(error) or type(error).__name__
            raise RuleError(f"{self._shown} did not take it: {said}", help="is it up, and quick enough?") from error

    async def _posted(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        """Post it in a thread of its own: a server that never ends its answer must not hold one that others need."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(error: Exception | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def work() -> None:
            error = None
            try:
                self._post(connection, body)
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(tell, error)

        threading.Thread(target=work, name="tocsin-webhook", daemon=True).start()
        try:
            await done
        finally:
            if (sock := connection.sock) is not None:  # wakes the thread, if it still reads
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _post(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        with contextlib.closing(connection):
            connection.request("POST", self._target, body, self._headers)
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                said = answer.read(_SHOWN).decode("utf-8", "replace").strip()
                about = f"{self._shown} answered {answer.status} {answer.reason}"
                raise RuleError(about + (f": {said}" if said else ""))


class Command:
    """Run a program, never through a shell: the event is its standard input, as JSON, and in `TOCSIN_…` variables."""

    def __init__(self, arguments: Sequence[str], *, timeout: float = 60.0) -> None:
        """Say which program, with which arguments.

        Raises:
            RuleError: that is no list of texts, or no time.
        """
        given: Any = arguments
        is_list = isinstance(given, list | tuple) and bool(given)
        if not is_list or not all(isinstance(each, str) and "\0" not in each for each in given):
            raise RuleError(
                f"{given!r} is no program with arguments",
                field="command",
                help='give a list, such as ["notify", "--urgent"]; no shell reads it',
            )
        _check_timeout(timeout)
        self.arguments, self.timeout = list(arguments), timeout
        self.__name__ = "command"

    def __repr__(self) -> str:
        """Show the program; its arguments may be secret."""
        return f"command {self.arguments[0]}"

    async def __call__(self, what: Any) -> None:
        """Run it; after `timeout` seconds it is killed, with the programs it has started.

        Raises:
            RuleError: it could not be started, took too long, or ended with another code than 0.
        """
        event = _event(what)
        program = self.arguments[0]
        with tempfile.TemporaryFile() as complaints:  # a file takes any amount; a pipe would have to be read
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=complaints,
                    env={**os.environ, **_variables(event)},
                    start_new_session=True,
                )
            except OSError as error:
                raise RuleError(f"{program} cannot be started: {error.strerror}", field="command") from error
            try:
                async with asyncio.timeout(self.timeout):
                    await process.communicate(cloudevents.to_json(event))
            except TimeoutError:
                raise RuleError(f"{program} was not done in {self.timeout:g} seconds and was killed") from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            if process.returncode:
                size = complaints.seek(0, os.SEEK_END)
                complaints.seek(max(0, size - _SHOWN))
                said = complaints.read().decode("utf-8", "replace").strip()
                raise RuleError(f"{program} ended with {process.returncode}" + (f": {said}" if said else ""))


def webhook(url: str, *, timeout: float = 10.0, headers: Mapping[str, str] | None = None) -> Webhook:
    """An action that posts the event to a URL; see `Webhook`."""
    return Webhook(url, timeout=timeout, headers=headers)


def command(arguments: Sequence[str], *, timeout: float = 60.0) -> Command:
    """An action that runs a program; see `Command`."""
    return Command(arguments, timeout=timeout)


def _event(what: Any) -> Event:
    event = what if isinstance(what, Event) else what.event
    assert isinstance(event, Event)
    return event


def _variables(event: Event) -> dict[str, str]:
    shown = {
        "TOCSIN_TYPE": event.type,
        "TOCSIN_SOURCE": event.source,
        "TOCSIN_ID": event.id,
        "TOCSIN_PRIORITY": str(event.priority),
        "TOCSIN_SUBJECT": event.subject,
        "TOCSIN_TIME": None if event.time is None else time_text(event.time),
        "TOCSIN_OFFSET": None if event.offset is None else str(event.offset),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _check_header(name: object, value: object) -> None:
    """Refuse a header that could not be sent, without showing its value, which may be secret."""
    is_name = isinstance(name, str) and _HEADER.fullmatch(name) is not None
    if not is_name or not isinstance(value, str) or re.fullmatch(r"[\t -~\xa0-\xff]*", value) is None:
        raise RuleError(
            f"the header {name!r} cannot be sent", field="headers", help="give one line of Latin-1 characters"
        )


def _check_timeout(timeout: object) -> None:
    if type(timeout) not in (int, float) or not 0 < timeout < 1e9:  # type: ignore[operator]
        raise RuleError(f"timeout is {timeout!r}", field="timeout", help="give seconds, more than 0")

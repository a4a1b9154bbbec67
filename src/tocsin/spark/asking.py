"""Questions to a node from Spark's processes: HTTP with the standard library, a token, and patience.

A node may be restarted under a query that runs for weeks. So a question that got no answer, or that the node had no
room for, is asked again, more and more seldom, for as long as the option `patience` says; then there is an error that
says what to do. All questions that are asked here may be repeated.

Promised: what a node refuses is the same error as embedded, at once: a wrong token is not tried twice. A token goes to
the host of the url and nowhere else; redirections are not followed.
Not promised: an answer in time. A node that takes a question and stays silent is waited for two minutes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tocsin.errors import (
    ForbiddenError,
    JournalError,
    NetworkError,
    OverloadError,
    ProtocolError,
    TocsinError,
    UnauthorizedError,
    from_dict,
)

__all__ = ["PATIENCE", "Address", "Answer", "Asker", "Lost", "Patience", "is_address"]

PATIENCE: Final = 60.0
"""Seconds a node may be away, if nobody says otherwise."""
_SILENCE: Final = 120.0  # seconds without a byte after which a connection is given up
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SHOWN: Final = 200  # characters of what is no answer of a node
_log = logging.getLogger(__name__)


def is_address(url: str) -> bool:
    """Is it the address of a node?"""
    return url.partition(":")[0] in ("http", "https")


class Address(msgspec.Struct, frozen=True):
    """Where a node is, and how to be let in."""

    url: str
    """`http://host:port` or `https://…`, without a path."""
    token: str | None = None
    ca: str | None = None
    """Certificates to trust instead of the system's; a file (PEM)."""
    patience: float = PATIENCE

    def __repr__(self) -> str:
        """Show where, and not what is shown there."""
        return f"Address({self.url!r})"


class Lost(Exception):
    """No answer, or half of one, or not now: it may be asked again. Holds what the user is told if that is the end."""

    def __init__(self, error: TocsinError, after: float = 0.0) -> None:
        """Ask again not before `after` seconds."""
        super().__init__(str(error))
        self.error, self.after = error, after


class Patience:
    """How long to go on asking: counted from the first failure after something went well."""

    def __init__(self, seconds: float) -> None:
        """Begin with all of it."""
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Something went well."""
        self._until: float | None = None
        self._pause = _FIRST_PAUSE

    def wait(self, lost: Lost) -> None:
        """Wait before it is asked again.

        Raises:
            TocsinError: it was asked often enough.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
            _log.warning("%s; trying again for %g s", lost.error.message, self._seconds)
        if now >= self._until:
            raise lost.error from None
        pause = max(lost.after, self._pause * random.uniform(0.5, 1.0))  # not all executors at one moment
        time.sleep(min(pause, max(0.0, self._until - now)))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Answer(NamedTuple):
    """What a node has said."""

    headers: http.client.HTTPMessage
    body: bytes


class Asker:
    """A connection to a node, made when it is needed, and anew when it is lost. For one thread."""

    def __init__(self, address: Address, name: str | None = None) -> None:
        """Ask a node; `name` is who asks, if no token says it."""
        self.address = address
        self._headers = {"authorization": f"Bearer {address.token}"} if address.token is not None else {}
        if name is not None and address.token is None:
            self._headers["tocsin-name"] = name.encode().decode("latin-1")
        self._connection: http.client.HTTPConnection | None = None
        parts = urlsplit(address.url)
        if address.token is not None and parts.scheme == "http" and parts.hostname not in _LOCAL:
            _log.warning("the token goes to %s without TLS: whoever listens has it; use https://", address.url)

    def ask(self, method: str, path: str, query: Mapping[str, str] | None = None, **how: object) -> Answer:
        """Ask, with patience, until there is an answer.

        Args:
            method: of HTTP.
            path: its parts, with slashes.
            query: what stands behind the `?`.
            how: `body` and `kind`, its content type.

        Raises:
            TocsinError: the node has refused, or does not answer.
        """
        patience = Patience(self.address.patience)
        while True:
            try:
                with self.begun(method, path, query, **how) as response:
                    return Answer(response.headers, response.read())
            except Lost as lost:
                patience.wait(lost)

    @contextmanager
    def begun(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = b"", kind: object = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask once; the answer's body is there to be read in the context.

        Raises:
            Lost: there is no answer; it may be asked again.
            TocsinError: the node has refused.
        """
        target = quote(path) + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        headers = {**self._headers, **({"content-type": str(kind)} if kind is not None else {})}
        if path == "/events":
            headers["accept"] = "application/vnd.apache.arrow.stream"
        try:
            response = self._response(method, target, body, headers)
            if response.status >= 300:
                raise self._refusal(response)
            yield response
            if not response.isclosed():  # not read to its end: what is left would be taken for the next answer
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._lost(error) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def _response(self, method: str, target: str, body: object, headers: dict[str, str]) -> http.client.HTTPResponse:
        is_used = self._connection is not None
        while True:
            try:
                connection = self._connected()
                connection.request(method, target, body=body, headers=headers)  # type: ignore[arg-type]
                return connection.getresponse()
            except (OSError, http.client.HTTPException):
                if not is_used:
                    raise
                is_used = False  # a node closes connections on which nothing is said
                self.close()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self.address.url)
            host = parts.hostname or ""
            if parts.scheme == "https":
                self._connection = http.client.HTTPSConnection(
                    host, parts.port, timeout=_SILENCE, context=_trust(self.address.ca)
                )
            else:
                self._connection = http.client.HTTPConnection(host, parts.port, timeout=_SILENCE)
        return self._connection

    # -- what is no answer

    def _lost(self, error: Exception) -> Lost | NetworkError:
        url = self.address.url
        if isinstance(error, ssl.SSLCertVerificationError):
            return NetworkError(
                f"the certificate of {url} cannot be verified: {error.verify_message}",
                field="ca",
                help="check the url; if the node has a certificate of its own, name it: option ca",
            )
        broke_off = isinstance(error, http.client.IncompleteRead)
        why = "the answer broke off" if broke_off else str(error) or type(error).__name__
        return Lost(
            NetworkError(
                f"no node answers at {url}: {why}",
                field="url",
                help="start it (tocsin up), or check the url and what lies between; the option patience says for how "
                "long to try",
            )
        )

    def _refusal(self, response: http.client.HTTPResponse) -> Lost | TocsinError:
        """An answer other than success, as an error; some of them may be asked again."""
        status, url = response.status, self.address.url
        body = response.read(1 << 20)
        try:
            said = json.loads(body)
            error = from_dict(said) if isinstance(said, dict) and "error" in said else None
        except ValueError:
            error = None
        after = response.headers.get("retry-after", "")
        pause = float(after) if after.isdigit() else 0.0
        if error is None:
            shown = body[:_SHOWN].decode(errors="replace").strip()
            error = NetworkError(
                f"{url} answers with {status} {shown}".rstrip(), field="url", help="is this the address of a node?"
            )
            return Lost(error, pause) if status in (408, 429, 502, 503, 504) else error
        if isinstance(error, UnauthorizedError):
            help = (
                "give the option token; `tocsin token add` makes one where the node runs, `tocsin token list` shows all"
            )
            return UnauthorizedError(f"{url}: {error.message}", field="token", help=help)
        if isinstance(error, ForbiddenError):
            return ForbiddenError(f"{url}: {error.message}", field="token", help=error.help)
        if isinstance(error, JournalError):
            error.path = url
        is_for_now = isinstance(error, OverloadError) or (
            status in (408, 503) and isinstance(error, NetworkError | ProtocolError)
        )
        return Lost(error, pause) if is_for_now else error


def _trust(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        message = f"the certificates in {ca!r} cannot be read: {error.strerror or error}"
        raise NetworkError(message, field="ca", help="give the path of a PEM file that every executor sees") from None

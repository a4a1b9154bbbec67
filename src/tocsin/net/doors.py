"""Where a server may listen, behind which certificate, and which web pages may talk to it.

Off loopback, everybody on the network is a stranger: without TLS and tokens a server does not listen there, unless it
is told that this is meant (`insecure`).

On loopback without tokens every program of this machine is let in, and a browser is one: any web page could talk to the
node through it. So the page must be the node's own (`Origin`, where a browser says it, equals `Host`, and what it loads
is not for a page of another site), and the node must be called by a name of this machine: a foreign name that points
here (DNS rebinding) would make a foreign page the node's own. With tokens neither is asked: a page has no token unless
somebody gives it one.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.errors import ForbiddenError, NetworkError
from tocsin.net.access import Gate

__all__ = ["Doorkeeper", "Tls", "check_listening", "is_loopback", "tls_context"]

Tls = tuple[str | os.PathLike[str], str | os.PathLike[str]]
"""The paths of a certificate, with what it is signed by, and of its key; both PEM."""
_LOCAL: Final = "localhost"
_SITE: Final = "sec-fetch-site"
_FOREIGN: Final = ("cross-site", "same-site")


def is_loopback(host: str) -> bool:
    """Is this address one that only this machine can reach?"""
    if host == _LOCAL or host.endswith(f".{_LOCAL}"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_listening(host: str, *, has_tls: bool, has_tokens: bool, insecure: bool) -> None:
    """May a server listen there?

    Raises:
        NetworkError: it would be open to strangers.
    """
    if insecure or is_loopback(host) or (has_tls and has_tokens):
        return
    lacking = [
        *(() if has_tls else ("TLS (tls=(certificate, key), --tls-cert and --tls-key)",)),
        *(() if has_tokens else ("tokens (tocsin token add NAME --right …)",)),
    ]
    raise NetworkError(
        f"{host} can be reached from elsewhere, and this needs {' and '.join(lacking)}",
        field="host",
        help="set them up (docs/SECURITY.md), listen on 127.0.0.1, or say that you mean it: insecure=True, --insecure",
    )


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What a server needs to speak TLS, 1.2 or newer.

    Raises:
        NetworkError: certificate or key cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(os.fspath(tls[0]), os.fspath(tls[1]), _no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        names = " and ".join(repr(os.fspath(each)) for each in tls)
        raise NetworkError(
            f"the certificate and key in {names} cannot be used: {getattr(error, 'strerror', None) or error}",
            field="tls",
            help="give the paths of two PEM files; the key must not have a password",
        ) from None
    return context


def _no_password() -> str:
    """Else OpenSSL would ask on the terminal, and a server would wait for ever."""
    raise ValueError("the key has a password")


class Doorkeeper:
    """Turns away pages that are not the node's own; an ASGI application around another."""

    def __init__(self, app: ASGIApp, *, gate: Gate, hosts: frozenset[str] | None) -> None:
        """Stand before an application.

        Args:
            app: the application.
            gate: knows whether tokens are needed; then everything is let through to it.
            hosts: by which names the node may be called, beside those of loopback; None: by any.
        """
        self._app, self._gate, self._hosts = app, gate, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it through, or refuse."""
        if scope["type"] in ("http", "websocket") and not self._gate.is_guarded:
            headers = Headers(scope=scope)
            why = self._against(headers, scope["path"])
            if why is not None:
                await self._refuse(why, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _against(self, headers: Headers, path: str) -> str | None:
        """Why somebody is turned away: the name of a header; or None."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            called = urlsplit(f"//{host}").hostname or ""
            page = urlsplit(origin).netloc if origin is not None else host
        except ValueError:  # an address that is none
            return "host"
        if host and self._hosts is not None and called not in self._hosts and not is_loopback(called):
            return "host"
        if page.lower() != host.lower():
            return "origin"
        # An image or a link of a foreign page has no Origin, and yet a GET may settle events; a browser says so here.
        return _SITE if headers.get(_SITE) in _FOREIGN and path != "/" else None

    async def _refuse(self, why: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        said = headers.get(why, "")
        client: Any = scope.get("client")
        self._gate.refusals.note(why, said, where=client[0] if client else "")
        error = ForbiddenError(
            "this node is not known by that name" if why == "host" else "pages of others may not talk to this node",
            field=why,
            help="call it by 127.0.0.1 or localhost, or set up tokens (docs/SECURITY.md)",
        )
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        else:
            await JSONResponse(error.as_dict(), status_code=403)(scope, receive, send)

"""`GET /` and `GET /page/…`: the page for people. Its files hold no data, so they need no token; what it asks for does.

A server that was given no files (`serve(…, page=…)`) has a plain page of links instead.

Promised: a browser asks whether a file has changed each time it wants it (ETag, 304), so that a node of a newer release
is never met with an older page; and the page runs no script but its own, and is in no frame of another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import HTMLResponse, Response

from tocsin.errors import ProtocolError
from tocsin.net.http.answers import Refused
from tocsin.net.http.contract import Ask

__all__ = ["Files", "file", "front_page"]

Files = Mapping[str, tuple[bytes, str, str]]
"""Path → content, media type, ETag. `tocsin.web.page()` gives one."""
_INDEX: Final = "index.html"
_SAFE: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_LINKS: Final = """<!doctype html>
<meta charset="utf-8"><title>Tocsin</title>
<h1>Tocsin</h1>
<p>An event notification node.</p>
<ul>
<li><a href="/openapi.json">/openapi.json</a> every route, for programs
<li><a href="/events?limit=20">/events</a> what has happened
<li><a href="/alerts">/alerts</a>, <a href="/consumers">/consumers</a>, <a href="/definitions">/definitions</a>
<li><a href="/metrics">/metrics</a>, <a href="/health">/health</a>
</ul>
<p>docs/HTTP.md explains the routes, docs/CLIENTS.md has clients to begin with.</p>
"""


async def front_page(ask: Ask) -> Response:
    """The page; or where to go from here."""
    if _INDEX in ask.front.files:
        return _sent(ask, _INDEX)
    return HTMLResponse(_LINKS, headers=_SAFE)


async def file(ask: Ask) -> Response:
    """A file of the page."""
    path = ask.path("path")
    if path not in ask.front.files:
        raise Refused(404, ProtocolError(f"the page has no file {path[:100]!r}", field="path", help="see /"))
    return _sent(ask, path)


def _sent(ask: Ask, path: str) -> Response:
    content, kind, etag = ask.front.files[path]
    headers = {**_SAFE, "ETag": etag}
    known = {each.strip().removeprefix("W/") for each in ask.request.headers.get("if-none-match", "").split(",")}
    if etag in known:
        return Response(None, 304, headers)
    return Response(content, 200, headers, kind)

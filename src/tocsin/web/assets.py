"""The files of the page, read once: path → bytes, media type, ETag.

    index.html                 GET /
    app.css, js/main.js, …     GET /page/app.css, /page/js/main.js, …

Promised: only what is in `static`, found by name in a mapping, so that no path of a request ever meets the disk. The
server gets the mapping from who starts it (`tocsin up`), and has a plain page of links without one.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["Asset", "page"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}
"""By the end of a name. A machine's own list, as `mimetypes` reads it, may call a module text/plain, and then no
browser runs it."""


class Asset(NamedTuple):
    """A file as it is sent."""

    content: bytes
    media_type: str
    etag: str
    """Changes with the content, and with nothing else."""


@functools.cache
def page() -> Mapping[str, Asset]:
    """All files of the page, by path below `static`."""
    static = resources.files("tocsin.web") / "static"
    return MappingProxyType({path: _asset(path, file.read_bytes()) for path, file in _files(static, "")})


def _files(place: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(place.iterdir(), key=lambda found: found.name):
        if each.is_dir():
            yield from _files(each, f"{prefix}{each.name}/")
        elif not each.name.startswith("."):  # what editors and systems leave
            yield prefix + each.name, each


def _asset(path: str, content: bytes) -> Asset:
    kind = path.rpartition(".")[2]
    return Asset(content, _TYPES.get(kind, "application/octet-stream"), f'"{hashlib.sha256(content).hexdigest()[:32]}"')

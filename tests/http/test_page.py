"""The page: its files come as they are, safely, and nothing else does. What it asks for is in other tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.http.support import Place, served
from tests.http.test_access import bearer, store
from tocsin.net import serve
from tocsin.testing import node
from tocsin.web import page

FILES = {
    "index.html": (b"<!doctype html>hello", "text/html; charset=utf-8", '"1"'),
    "js/main.js": (b"export {}", "text/javascript; charset=utf-8", '"2"'),
}


async def test_files_come_as_they_are() -> None:
    async with node() as bus, serve(bus, page=FILES) as server:
        place = Place(bus, server)
        for path, name in (("/", "index.html"), ("/page/js/main.js", "js/main.js"), ("/page/index.html", "index.html")):
            content, kind, etag = FILES[name]
            answer = await place.get(path)
            assert (answer.status, answer.body, answer.headers["content-type"]) == (200, content, kind)
            assert answer.headers["etag"] == etag and answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-content-type-options"] == "nosniff"
            allowed = answer.headers["content-security-policy"]
            assert (
                "default-src 'self'" in allowed and "script-src" not in allowed and "frame-ancestors 'none'" in allowed
            )
            for known in (etag, f'"x", W/{etag}'):
                again = await place.get(path, if_none_match=known)
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
            assert (await place.get(path, if_none_match='"old"')).status == 200
            assert (await place.ask("HEAD", path)).headers["content-length"] == str(len(content))
        for path in ("/page/", "/page/x", "/page/../net/server.py", "/page/js/../index.html", "/page/%2e%2e/assets.py"):
            assert (await place.get(path)).error == (404, "ProtocolError"), path
        assert (await place.ask("POST", "/page/js/main.js")).status == 405
        await place.close()


async def test_a_server_without_files_has_links() -> None:
    async with served() as place:
        answer = await place.get("/")
        assert answer.status == 200 and b"/openapi.json" in answer.body
        assert (await place.get("/page/index.html")).status == 404


async def test_a_page_needs_no_token_and_all_it_asks_for_does(tmp_path: Path) -> None:
    tokens = store(tmp_path)
    secret = tokens.add("ann", ["admin"])[0]
    async with node() as bus, serve(bus, page=page(), tokens=tokens) as server:
        place = Place(bus, server)
        assert (await place.get("/")).status == 200
        assert (await place.get("/page/index.html")).status == 200
        for path in ("/figures", "/sessions", "/history", "/alerts"):
            assert (await place.get(path)).error == (401, "UnauthorizedError")
            assert (await place.ask("GET", path, headers=bearer(secret))).status == 200
        await place.close()


def test_every_file_has_a_kind_that_browsers_take() -> None:
    files = page()
    assert "index.html" in files and any(path.endswith(".js") for path in files)
    for path, asset in files.items():
        assert asset.media_type != "application/octet-stream", path
        assert asset.etag == f'"{hashlib.sha256(asset.content).hexdigest()[:32]}"'
    assert page() is files, "read once"

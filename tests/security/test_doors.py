"""Where a server listens, TLS, and pages of other origins."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import InvalidStatus

import tocsin
from tests.helpers import event, soon, testing
from tests.security.keys import guarded, http
from tocsin.errors import NetworkError, TokenError
from tocsin.net import serve
from tocsin.net.doors import check_listening, is_loopback
from tocsin.security.tokens import TokenStore

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to make a certificate with")


def certificate(path: Path, name: str = "here") -> tuple[Path, Path]:
    """A certificate that signs itself, for this machine, and its key."""
    cert, key = path / f"{name}.pem", path / f"{name}.key"
    assert OPENSSL is not None
    subprocess.run(
        [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=tocsin", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
         "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return cert, key


def with_password(key: Path) -> Path:
    """The same key, for whoever knows the word."""
    assert OPENSSL is not None
    locked = key.with_suffix(".locked")
    made = [OPENSSL, "ec", "-in", str(key), "-aes128", "-passout", "pass:hush", "-out", str(locked)]
    subprocess.run(made, check=True, capture_output=True)
    return locked


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "node.localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io", "", "node"])
def test_what_others_can_reach(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(NetworkError) as raised:
        check_listening(host, has_tls=False, has_tokens=False, insecure=False)
    assert "TLS" in raised.value.message and "tokens" in raised.value.message and "insecure" in str(raised.value.help)
    with pytest.raises(NetworkError, match="TLS"):
        check_listening(host, has_tls=False, has_tokens=True, insecure=False)
    with pytest.raises(NetworkError, match="tokens"):
        check_listening(host, has_tls=True, has_tokens=False, insecure=False)
    check_listening(host, has_tls=True, has_tokens=True, insecure=False)
    check_listening(host, has_tls=False, has_tokens=False, insecure=True)


async def test_it_does_not_listen_off_loopback(tmp_path: Path) -> None:
    async with testing.node() as bus:
        for tokens in (None, tmp_path / "tokens.json"):  # a file that is not there is no token
            with pytest.raises(NetworkError, match="reached from elsewhere"):
                async with serve(bus, "0.0.0.0", tokens=tokens):
                    pass
        async with serve(bus, "0.0.0.0", insecure=True) as server:
            port = server.url.rpartition(":")[2]
            async with tocsin.connect(f"ws://127.0.0.1:{port}") as remote:
                await remote.publish(event("1"))


async def test_tokens_that_cannot_be_read_are_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    async with testing.node() as bus:
        with pytest.raises(TokenError, match="cannot be read"):
            async with serve(bus, tokens=tmp_path / "tokens.json"):
                pass


@needs_openssl
async def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    other, _ = certificate(tmp_path, "other")
    async with guarded(tmp_path, tls=(cert, key)) as node:
        token = node.token("a", "publish:*")
        assert node.url.startswith("wss://")
        async with node.connect(token, ca=cert) as bus:
            assert (await bus.publish(event("1"))).offset
        for ca in (None, other):
            with pytest.raises(NetworkError, match="certificate"):
                async with node.connect(token, ca=ca):
                    pass
        with pytest.raises(NetworkError, match="cannot be read"):
            async with node.connect(token, ca=tmp_path / "nothing.pem"):
                pass
        with pytest.raises(NetworkError):  # without TLS nothing is understood
            async with tocsin.connect(node.url.replace("wss", "ws"), token=token):
                pass
        assert await soon(asyncio.to_thread(_handshake, node.url, cert, ssl.TLSVersion.TLSv1_3)) == "TLSv1.3"
        with pytest.raises((ssl.SSLError, OSError)):
            await soon(asyncio.to_thread(_handshake, node.url, cert, ssl.TLSVersion.TLSv1_1))
    async with testing.node() as bus:  # so it may listen anywhere
        store = TokenStore(tmp_path / "tokens.json")
        async with serve(bus, "0.0.0.0", tls=(cert, key), tokens=store) as server:
            url = server.url.replace("0.0.0.0", "localhost")
            async with tocsin.connect(url, token=token, ca=cert) as remote:
                await remote.publish(event("2"))


def _handshake(url: str, cert: Path, version: ssl.TLSVersion) -> str | None:
    context = ssl.create_default_context(cafile=cert)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
        context.minimum_version = context.maximum_version = version
    host, port = url.removeprefix("wss://").split(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        return tls.version()


@needs_openssl
async def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    locked = with_password(key)
    async with testing.node() as bus:
        for tls in ((cert, other), (cert, cert), (key, key), (tmp_path / "none", key), (cert, locked)):
            with pytest.raises(NetworkError) as raised:
                async with serve(bus, tls=tls):
                    pass
            assert raised.value.field == "tls" and "hush" not in str(raised.value)


# -- pages of other origins


async def test_only_pages_of_the_nodes_own(tmp_path: Path) -> None:
    async with testing.node() as bus, serve(bus, tokens=tmp_path / "tokens.json") as server:
        here = server.url.removeprefix("ws://")
        port = here.rpartition(":")[2]
        for headers, allowed in (
            ({}, True),
            ({"Origin": f"http://{here}"}, True),
            ({"Origin": "http://evil.example"}, False),
            ({"Origin": f"http://localhost:{port}"}, False),
            ({"Origin": "null"}, False),
            ({"Origin": f"http://{here}.evil.example"}, False),
            ({"Host": f"localhost:{port}"}, True),
            ({"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, True),
            ({"Host": f"[::1]:{port}"}, True),
            ({"Host": f"evil.example:{port}"}, False),
            ({"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}, False),  # DNS rebinding
            ({"Host": f"127.0.0.1.evil.example:{port}"}, False),
            ({"Host": "[::1"}, False),
            ({"Host": ""}, True),  # no browser: one always says it
            ({"Host": "", "Origin": "http://evil.example"}, False),
            ({"Sec_Fetch_Site": "same-origin"}, True),
            ({"Sec_Fetch_Site": "none"}, True),
            ({"Sec_Fetch_Site": "cross-site"}, False),  # an image of a foreign page, say: it has no Origin
            ({"Sec_Fetch_Site": "same-site"}, False),  # a page of another port
        ):
            for path in ("/health", "/alerts"):
                status, _, answer = await http(server.url + path, **headers)
                assert status == (200 if allowed else 403), (headers, answer)
            if "Sec_Fetch_Site" not in headers:
                assert await _opens(server.url, headers) == allowed, headers
        assert (await http(server.url + "/", Sec_Fetch_Site="cross-site"))[0] == 200, "a link to its page is a link"
        assert server.gate.refusals.counts == {"origin": 15, "host": 12, "sec-fetch-site": 4}


async def _opens(url: str, headers: dict[str, str]) -> bool:
    if "Host" in headers:  # this client has a Host of its own: say it by hand
        host, port = url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        sent = {**headers, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        sent["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        writer.write(("GET /bus HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) + "\r\n").encode())
        status = int((await soon(reader.readline())).split()[1])
        writer.close()
        assert status in (101, 403)
        return status == 101
    try:
        async with ws_connect(url + "/bus", origin=headers.get("Origin"), compression=None):  # type: ignore[arg-type]
            return True
    except InvalidStatus as error:
        assert error.response.status_code == 403
        return False


async def test_with_tokens_a_page_may_come_from_anywhere(tmp_path: Path) -> None:
    """It has no token unless somebody gives it one; and a node behind a proxy has names that it does not know."""
    async with guarded(tmp_path) as node:
        token = node.token("page", "metrics")
        said: dict[str, Any] = {"Host": "node.example", "Origin": "https://plant.example"}
        assert (await http(node.url + "/metrics", token=token, **said))[0] == 200
        assert (await http(node.url + "/metrics", **said))[0] == 401

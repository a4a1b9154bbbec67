"""Actions against a real server and real programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tocsin import Event, cloudevents
from tocsin.errors import RuleError
from tocsin.rules import command, webhook

EVENT = Event("door.open", "gate/1", id="e1", subject="door 7", data={"door": 7}, time="2026-11-16T08:00:00Z", offset=3)


class Guard(ThreadingHTTPServer):
    """Takes what is posted, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 204
        self.answering = threading.Event()
        self.answering.set()
        super().__init__(("127.0.0.1", 0), Ears)
        self.url = f"http://127.0.0.1:{self.server_port}/alarm?zone=1"

    def handle_error(self, request: Any, client_address: Any) -> None: ...  # who asked has gone


class Ears(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        guard: Any = self.server
        guard.got.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        guard.answering.wait(20)
        self.send_response(guard.status)
        if guard.status == 302:
            self.send_header("Location", guard.url)
        body = b"" if guard.status == 204 else b"too busy"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def guard() -> Iterator[Guard]:
    server = Guard()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.answering.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_webhook_posts_a_structured_cloudevent(guard: Guard) -> None:
    await webhook(guard.url, headers={"Authorization": "Bearer x"})(EVENT)
    [(path, headers, body)] = guard.got
    assert path == "/alarm?zone=1"
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    assert headers["Authorization"] == "Bearer x"
    heard = cloudevents.from_json(body)
    assert (heard.id, heard.type, heard.data) == ("e1", "door.open", {"door": 7})


@pytest.mark.parametrize("status", [302, 404, 503])
async def test_webhook_takes_other_answers_for_failures_and_follows_none(guard: Guard, status: int) -> None:
    guard.status = status
    with pytest.raises(RuleError, match=f"answered {status}.*too busy"):
        await webhook(guard.url)(EVENT)
    assert len(guard.got) == 1


async def test_webhook_does_not_wait_longer_than_it_says(guard: Guard) -> None:
    guard.answering.clear()
    with pytest.raises(RuleError, match="did not take it"):
        await webhook(guard.url, timeout=0.1)(EVENT)
    guard.answering.set()


async def test_webhook_to_nobody_is_a_failure() -> None:
    server = Guard()
    server.server_close()
    with pytest.raises(RuleError, match="did not take it"):
        await webhook(server.url, timeout=5)(EVENT)


@pytest.mark.parametrize(
    "url", ["guard", "ftp://guard/x", "file:///etc/passwd", "http://", "http://h:x", "http://h:99999"]
)
def test_webhook_refuses_other_addresses(url: str) -> None:
    with pytest.raises(RuleError) as caught:
        webhook(url)
    assert caught.value.field == "url"


SHOW = """
import json, os, sys
seen = {name: value for name, value in os.environ.items() if name.startswith("TOCSIN_")}
json.dump([json.load(sys.stdin), seen, sys.argv[2:]], open(sys.argv[1], "w"))
"""


async def test_command_gets_the_event_as_json_and_in_its_environment(tmp_path: Path) -> None:
    place = tmp_path / "seen.json"
    await command([sys.executable, "-c", SHOW, str(place), "$HOME; rm -rf /", "a b"])(EVENT)
    event, variables, arguments = json.loads(place.read_text())
    assert (event["id"], event["data"]) == ("e1", {"door": 7})
    assert variables == {
        "TOCSIN_TYPE": "door.open",
        "TOCSIN_SOURCE": "gate/1",
        "TOCSIN_ID": "e1",
        "TOCSIN_PRIORITY": "5",
        "TOCSIN_SUBJECT": "door 7",
        "TOCSIN_TIME": "2026-11-16T08:00:00Z",
        "TOCSIN_OFFSET": "3",
    }
    assert arguments == ["$HOME; rm -rf /", "a b"]  # no shell has read them


async def test_command_that_fails_says_why() -> None:
    with pytest.raises(RuleError, match=r"ended with 3: no paper"):
        await command([sys.executable, "-c", "import sys; print('no paper', file=sys.stderr); sys.exit(3)"])(EVENT)


async def test_command_that_complains_at_length_does_not_hang() -> None:
    with pytest.raises(RuleError, match="the end"):
        await command([sys.executable, "-c", "import sys; sys.stderr.write('x' * 300_000 + 'the end'); sys.exit(1)"])(
            EVENT
        )


async def test_command_that_does_not_read_is_fine() -> None:
    await command([sys.executable, "-c", "pass"])(Event("big", "s", data={"x": "y" * 500_000}))


async def test_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    place = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(1); pathlib.Path({str(place)!r}).touch()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    began = time.monotonic()
    with pytest.raises(RuleError, match="killed"):
        await command([sys.executable, "-c", parent], timeout=0.4)(EVENT)
    time.sleep(max(0.0, began + 1.8 - time.monotonic()))  # noqa: ASYNC251 - a real process has real time
    assert not place.exists()


async def test_command_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(RuleError, match="cannot be started"):
        await command(["/no/such/program"])(EVENT)


@pytest.mark.parametrize("arguments", ["ls -l", [], ["a", 1], ["a\0b"], None])
def test_command_refuses_what_is_no_list_of_texts(arguments: Any) -> None:
    with pytest.raises(RuleError) as caught:
        command(arguments)
    assert caught.value.field == "command"


async def test_a_server_that_never_ends_its_answer_holds_no_thread() -> None:
    def drip() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not over.wait(0.01):
                    connection.sendall(b"X")

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(RuleError, match="did not take it"):
            await webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.2)(EVENT)
        while any(each.name == "tocsin-webhook" for each in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        over.set()
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


async def test_secrets_are_in_no_message(guard: Guard) -> None:
    guard.status = 500
    action = webhook(f"{guard.url}&token=hush", headers={"Authorization": "Bearer hush"})
    with pytest.raises(RuleError) as caught:
        await action(EVENT)
    assert "hush" not in f"{caught.value} {action!r} {command(['curl', 'hush'])!r}"
    for value in ("hush\n", "hush…"):
        with pytest.raises(RuleError, match="header 'Authorization'") as caught:
            webhook(guard.url, headers={"Authorization": value})
        assert "hush" not in str(caught.value)
    with pytest.raises(RuleError, match="user or password") as caught:
        webhook("http://me:hush@guard/")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://guard/a b", "http://guard/ä", "http://guard/\r\nX: y"])
def test_addresses_that_cannot_be_sent_are_refused(url: str) -> None:
    with pytest.raises(RuleError, match="no address"):
        webhook(url)

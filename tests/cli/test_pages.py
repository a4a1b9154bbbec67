"""The shell lines of docs/QUICKSTART.md and docs/OPERATIONS.md do what the pages say, on a real node.

They run as printed, but for the port: 8420 may be taken where tests run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import tocsin
from tests.cli.processes import Node, shim
from tests.processes import Running, running
from tests.unit.test_cli_journal import Here
from tocsin.journal.reader import open_reader

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```(?P<kind>sh|python)[ \t]*(?P<note>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, port: int) -> list[tuple[str, str, str]]:
    """Kind, note and code of each block, at another port."""
    text = (DOCS / page).read_text().replace("127.0.0.1:8420", f"127.0.0.1:{port}")
    return [(found["kind"], found["note"], found["code"]) for found in FENCE.finditer(text)]


def background(line: str, environment: dict[str, str], folder: Path) -> AbstractContextManager[Running]:
    return running(["bash", "-c", f"exec {line}"], folder, environment)


def in_bash(kind: str, code: str, environment: dict[str, str], folder: Path) -> str:
    """What a block says; run as a reader would."""
    command = ["bash", "-e", "-c", code] if kind == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["here", "in bash"])
def test_quick_start(quick: bool, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command takes a second to start, so that `make test` gives those of ours the same words here."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = shim(tmp_path) | {"TOCSIN_PORT": str(port), "TOCSIN_URL": f"ws://127.0.0.1:{port}"}
    monkeypatch.setenv("TOCSIN_URL", environment["TOCSIN_URL"])
    (_, up, first), (_, sub, second), *others = blocks("QUICKSTART.md", port)
    assert (up, sub) == ("up", "sub")

    def say(kind: str, line: str) -> str:
        if kind == "python" or not quick or not line.startswith("tocsin "):
            return in_bash(kind, line, environment, tmp_path)
        code, out, err = here(*shlex.split(line)[1:])
        assert (code, err) == (0, ""), line
        return out

    said: list[str] = []
    with background(first, environment, tmp_path) as node:
        said_first, page, try_this, and_this = node.until("tocsin pub")
        assert f"http://127.0.0.1:{port}/" in page
        assert f"ws://127.0.0.1:{port}" in said_first and "tocsin-data/journal.db" in said_first
        assert f"{second.strip()} --url ws://127.0.0.1:{port}" in try_this, (
            "what to type next; the port is not the usual"
        )
        assert "tocsin pub machine.value '{" in and_this
        with background(second, environment, tmp_path) as listener:
            for kind, _, code in others:
                said.append("".join(say(kind, line) for line in (code.splitlines() if kind == "sh" else [code])))
            heard = listener.until('"value":9.5')
            assert listener.end(signal.SIGINT)[0] == 130
        assert node.end(signal.SIGINT) == (0, "")
    assert (tmp_path / "tocsin-data" / "journal.db").exists()
    assert re.fullmatch(r'\d\d:\d\d:\d\d  8  machine.value  \S+@\S+  {"machine":"m7","value":9.2}', heard[0])
    assert not any("8.1" in line for line in heard), "nobody's business"
    _, alerts, combination, python, http = said
    assert "fire-1" in alerts and "acked:     guard" in alerts and "fire-1 is cancelled" in alerts
    assert "break_in  tocsin" in combination
    assert "{'machine': 'm7', 'value': 9.4}" in python
    assert '"id":"c-1"' in http and "data: {" in http


def test_backups_beside_a_running_node_are_whole(node: Node, tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("sqlite3 is not installed")
    with tocsin.sync.connect(node.url) as bus:
        head = bus.publish(tocsin.Event("backed.up", "s")).offset
    environment = shim(tmp_path) | {"TOCSIN_DATA": str(node.data)}
    lines = [code for _, note, code in blocks("OPERATIONS.md", node.port) if note == "backup"]
    assert len(lines) == 2
    done = subprocess.run(
        ["bash", "-e", "-c", "".join(lines)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "everything is as it was written" in done.stdout and (tmp_path / "backup.parquet").exists()
    with open_reader(tmp_path / "backup.db") as reader:
        assert reader.head == head
    with tocsin.sync.connect(f"file:{tmp_path / 'backup.db'}") as bus:
        assert bus.publish(tocsin.Event("goes.on", "s")).offset == head + 1


def test_every_metric_that_is_named_is_there(node: Node) -> None:
    named = set(re.findall(r"`(tocsin_[a-z_]+)`", (DOCS / "OPERATIONS.md").read_text()))
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/metrics", timeout=20) as answer:
        there = set(re.findall(r"^(tocsin_[a-z_]+)", answer.read().decode(), re.MULTILINE))
    assert named and named <= there

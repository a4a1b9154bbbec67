"""Programs that are not ours speak to a node: those of docs/CLIENTS.md, as printed, with curl, Node.js and libcurl."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.node import ROOT, Process, node

PAGE = (ROOT / "docs" / "CLIENTS.md").read_text()


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with node("memory:") as process:
        yield process
        assert process.end() == (0, "")


def block(mark: str) -> str:
    found = re.search(rf"^```{re.escape(mark)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/CLIENTS.md has no {mark}"
    return found[1]


def run(process: Process, *command: str, cwd: Path) -> str:
    environment = {**os.environ, "TOCSIN_URL": process.http, "NODE_NO_WARNINGS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def curl(process: Process, *words: str) -> tuple[int, Any]:
    """Status and body of one question."""
    command = [need("curl"), "-sS", "-m", "20", "-w", "\n%{http_code}", *words[:-1], process.http + words[-1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body) if body.startswith(("{", "[")) else body


def test_curl_as_the_page_says(process: Process, tmp_path: Path) -> None:
    need("curl")
    script = tmp_path / "page.sh"
    script.write_text("set -e\n" + block("sh"))
    environment = {**os.environ, "TOCSIN_URL": process.http}
    done = subprocess.run(["sh", str(script)], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    first, *rest = re.findall(r'{"id":"c[123]","offset":(\d+)}', done.stdout)
    assert rest == [str(int(first) + 1), str(int(first) + 2)]
    assert done.stdout.count('"id":"c2"') == 1, "the filter held"
    assert f"id: {rest[-1]}\ndata: {{" in done.stdout and ": tocsin\n" in done.stdout
    assert curl(process, "/events/c1/status")[1]["state"] == "cancelled"


def test_curl_is_told_what_is_wrong(process: Process, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (17 * 1024 * 1024))
    kind = "Content-Type: application/cloudevents+json"
    status, said = curl(process, "-H", kind, "--data-binary", f"@{large}", "/events")
    assert (status, said["error"]) == (413, "ProtocolError")
    assert curl(process, "-H", kind, "-d", "{", "/events")[0] == 400
    assert curl(process, "-X", "DELETE", "/events/nobody")[0] == 404
    assert curl(process, "-X", "POST", "/requests/nobody")[0] == 404
    assert curl(process, "/health")[1]["status"] == "ok"
    assert "tocsin_journal_head" in curl(process, "/metrics")[1]
    assert curl(process, "/openapi.json")[1]["openapi"] == "3.1.0"


def test_node_js_publishes_and_listens(process: Process, tmp_path: Path) -> None:
    program = tmp_path / "listen.mjs"
    program.write_text(block("js listen.mjs"))
    assert run(process, need("node"), program.name, cwd=tmp_path) == "n1 9.2\n"


def test_node_js_speaks_the_protocol(process: Process, tmp_path: Path) -> None:
    node_js = need("node")
    flags = ["--experimental-websocket"] if has_to_ask_for_websocket(node_js) else []
    program = tmp_path / "session.mjs"
    program.write_text(block("js session.mjs"))
    said = run(process, node_js, *flags, program.name, cwd=tmp_path).splitlines()
    assert [line for line in said if "w1" in line] == ["delivered w1 1 true", "settled w1"]
    assert [line for line in said if "w2" in line] == ["delivered w2 1 true", "settled w2"]
    assert any(line.startswith("FilterError: ") for line in said) and said[-1] == "closed"
    status = curl(process, "/events/w1/status")[1]
    assert (status["state"], status["acked"]) == ("settled", ["web"])


def has_to_ask_for_websocket(node_js: str) -> bool:
    asked = subprocess.run([node_js, "-p", "typeof WebSocket"], capture_output=True, text=True, timeout=30)
    if asked.stdout.strip() != "undefined":
        return False
    flag = subprocess.run([node_js, "--experimental-websocket", "-p", "1"], capture_output=True, timeout=30)
    if flag.returncode != 0:
        pytest.skip("this Node.js has no WebSocket")
    return True


def test_c_with_libcurl(process: Process, tmp_path: Path) -> None:
    compiler, config = need("gcc"), need("curl-config")
    (tmp_path / "client.c").write_text(block("c client.c"))
    flags = subprocess.run([config, "--cflags"], capture_output=True, text=True, timeout=30).stdout.split()
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-o", "client", "client.c", *flags, "-lcurl"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    first, second = run(process, "./client", cwd=tmp_path).splitlines()
    assert json.loads(first)["id"] == "k1"
    event = json.loads(second)
    assert (event["id"], event["data"], event["offset"]) == ("k1", {"value": 9.5}, json.loads(first)["offset"])

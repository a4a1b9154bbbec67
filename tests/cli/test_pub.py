"""`tocsin pub`: every field, every way to give data, lines, and what is said of mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.cli.processes import COMMAND, QUICK, Node
from tests.unit.test_cli_journal import Here
from tocsin.cli.places import ask, place_of


def stored(node: Node, filter: str) -> list[tocsin.Event]:
    """What the node has of this, as it happened."""
    with tocsin.sync.connect(node.url) as bus:
        sub = bus.subscribe(filter, past=tocsin.retained(), order="journal", auto_ack=True, timeout=0.2)
        return [delivery.event for delivery in sub]


def test_every_field_arrives(here: Here, node: Node) -> None:
    options = {
        "source": "line/7", "subject": "gauge", "priority": "8", "ttl": "60", "ack": "client", "cancel": "any",
        "id": "every-field", "correlation-id": "c-1", "classification": "confidential", "destination": "TAG:fire",
    }  # fmt: skip
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    marks = ["--attribute", "region=eu", "--attribute", "n=7", "--attribute", "ok=true", "--attribute", 's="7"']
    code, out, err = here("pub", "all.fields", '{"value": 9.2}', *given, *marks)
    assert (code, err) == (0, "")
    assert out.startswith("all.fields published: id every-field, offset ")
    [event] = stored(node, "type = 'all.fields'")
    assert event.data == {"value": 9.2} and event.priority == 8 and event.ttl == 60 and event.ack == "client"
    assert (event.source, event.subject, event.id, event.correlation_id) == ("line/7", "gauge", "every-field", "c-1")
    assert (event.cancel, event.classification) == ("any", "confidential")
    assert event.attributes == {"region": "eu", "n": 7, "ok": True, "s": "7", "tag": "fire"}
    again = json.loads(here("pub", "all.fields", '{"value": 9.2}', *given, *marks, "--json")[1])
    assert again == {"id": "every-field", "offset": event.offset, "type": "all.fields", "source": "line/7"}


def test_data_from_a_file_from_stdin_as_text_and_none(here: Here, node: Node, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"from": "file"}')
    (tmp_path / "note.xml").write_text("<note>é</note>")
    (tmp_path / "image").write_bytes(b"\x00\xff")
    assert here("pub", "ways", f"@{tmp_path / 'data.json'}")[0] == 0
    assert here("pub", "ways", "-", stdin=b'["from", "stdin"]')[0] == 0
    assert here("pub", "ways", f"@{tmp_path / 'note.xml'}", "--content-type", "application/xml")[0] == 0
    assert here("pub", "ways", f"@{tmp_path / 'image'}", "--content-type", "image/png")[0] == 0
    assert here("pub", "ways", "plain words", "--content-type", "text/plain")[0] == 0
    assert here("pub", "ways")[0] == 0
    found = [event.data for event in stored(node, "type = 'ways'")]
    assert found == [{"from": "file"}, ["from", "stdin"], "<note>é</note>", b"\x00\xff", "plain words", None]
    code, _, err = here("pub", "ways", f"@{tmp_path / 'nowhere'}")
    assert code == 1 and "nowhere" in err
    code, _, err = here("pub", "ways", f"@{tmp_path / 'image'}")
    assert code == 1 and "UTF-8" in err and "--content-type" in err


@pytest.mark.parametrize(
    ("text", "position", "help"),
    [
        ("{machine: m7}", 1, "double quotes"),
        ("{'machine': 1}", 1, "JSON has double quotes"),
        ('{"a": True}', 6, "true, false and null"),
        ('{"a": 1,}', 8, "comma too many"),
        ('{"a": ', 6, "the end is missing"),
        ("", 0, "or no DATA at all"),
        ("hello", 0, "double quotes"),
    ],
)
def test_bad_json_is_pointed_at(here: Here, text: str, position: int, help: str) -> None:
    code, out, err = here("pub", "t", text, "--json")
    told = json.loads(err)
    assert (code, out) == (1, "")
    assert help in told["help"] and told["field"] == "data"
    assert told["position"] in (position, position - 1), "Python 3.13 points at the comma itself"
    if text:
        _, shown, caret, _ = here("pub", "t", text)[2].splitlines()
        assert shown[2:] == text and caret.index("^") - 2 == told["position"]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["pub"], 2, "TYPE"),
        (["pub", "t", "--attribute", "novalue"], 2, "name=value"),
        (["pub", "t", "--attribute", "type=x"], 1, "type"),
        (["pub", "t", "--priority", "11"], 1, "priority"),
        (["pub", "t", "--ack", "maybe"], 1, "ack"),
        (["pub", "t", "NaN"], 1, "NaN"),
        (["pub", "t", "{}", "--lines"], 2, "every line"),
        (["pub", "t", "--url", "redis://x"], 2, "--url"),
    ],
)
def test_mistakes_are_explained(here: Here, arguments: list[str], code: int, part: str) -> None:
    got, out, err = here(*arguments)
    assert (got, out) == (code, "") and part in err


def test_lines_are_data_of_a_type(here: Here, node: Node) -> None:
    text = b"".join(b'{"n": %d}\n' % n for n in range(1234)) + b"\n"
    code, out, err = here("pub", "lined", "--lines", "--priority", "3", "--json", stdin=text)
    assert (code, err) == (0, "") and json.loads(out)["events"] == 1234
    found = stored(node, "type = 'lined'")
    assert [event.data["n"] for event in found] == [*range(1234)]
    assert {event.priority for event in found} == {3} and found[-1].offset == json.loads(out)["offset"]
    assert here("pub", "lined", "--lines")[1] == "0 events published\n"


def test_lines_are_whole_events_without_a_type(here: Here, node: Node) -> None:
    here("pub", "first.life", '{"n": 1}', "--id", "once", "--source", "a")
    code, out, _ = here("sub", "type = 'first.life'", "--past", "1", "--count", "1", "--json")
    assert code == 0
    moved = out.replace("first.life", "second.life").replace("once", "twice").encode()
    assert here("pub", "--lines", stdin=moved)[0] == 0
    [event] = stored(node, "type = 'second.life'")
    assert (event.id, event.source, event.data) == ("twice", "a", {"n": 1})


def test_a_bad_line_is_named_and_those_before_it_are_published(here: Here, node: Node) -> None:
    code, out, err = here("pub", "broken.off", "--lines", stdin=b'{"n": 1}\n\n{"n": 2}\n{"n": \n{"n": 4}\n')
    assert code == 1 and out.startswith("2 events published")
    lines = err.splitlines()
    assert lines[0].startswith("error: line 4 of stdin") and lines[1] == '  {"n":'
    assert [event.data["n"] for event in stored(node, "type = 'broken.off'")] == [1, 2]
    code, out, err = here("pub", "--lines", stdin=b'{"n": 1}\n')
    assert code == 1 and "line 1 of stdin" in err


def test_several_of_one_name_at_once_all_succeed(node: Node) -> None:
    """Of two sessions of a name the node keeps the newer; a command does not mind."""
    events = [tocsin.Event("crowd", "s", data={"n": n}) for n in range(8)]
    failed: list[Any] = []

    def publish(event: tocsin.Event) -> None:
        try:
            ask(place_of(node.url), lambda bus: bus.publish(event), name="same")
        except tocsin.TocsinError as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(event,)) for event in events]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert sorted(event.data["n"] for event in stored(node, "type = 'crowd'")) == [*range(8)]


def test_ctrl_c_ends_a_stream_that_waits_for_its_next_line(node: Node) -> None:
    with subprocess.Popen(
        [*COMMAND, "pub", "--lines", "waits.for-lines", "--url", node.url],
        env=QUICK,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        with tocsin.sync.connect(node.url) as bus:
            sub = bus.subscribe("type = 'waits.for-lines'", past=tocsin.retained())
            assert sub.next(timeout=30).event.data == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130  # stdin is open still
        assert process.stderr is not None and b"Fatal" not in process.stderr.read()

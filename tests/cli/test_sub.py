"""`tocsin sub`: the past and the present, formats, consumers, how it ends, and what it does to whoever reads."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import tocsin
from tests.cli.processes import Node, shim, started, up
from tests.unit.test_cli_journal import Here
from tocsin.cli.shown import event_line


def publish(node: Node, type: str, *values: object, **fields: object) -> list[str]:
    with tocsin.sync.connect(node.url) as bus:
        events = [tocsin.Event(type, "line/7", data={"n": value}, **fields) for value in values]  # type: ignore[arg-type]
        return [each.id for each in bus.publish_many(events)]


def test_the_past_as_lines_as_events_as_data(here: Here, node: Node) -> None:
    ids = publish(node, "shown", *range(12), priority=8)
    wanted = ("sub", "type = 'shown'", "--past", "10", "--order", "journal", "--timeout", "0.3")
    code, out, err = here(*wanted)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 10 and lines[0].endswith('  8  shown  line/7  {"n":2}')
    code, out, _ = here(*wanted, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["id"] for each in found] == ids[2:] and found[0]["specversion"] == "1.0"
    assert [event.id for event in map(tocsin.cloudevents.from_json, out.splitlines())] == ids[2:]
    assert here(*wanted, "--format", "data")[1].splitlines()[-1] == '{"n":11}'
    since = json.dumps(found[-2]["offset"])
    assert len(here("sub", "type = 'shown'", "--past", f"since:{since}", "--timeout", "0.3")[1].splitlines()) == 2


def test_count_and_timeout_say_whether_enough_came(here: Here, node: Node) -> None:
    publish(node, "counted", 1, 2, 3)
    wanted = ("sub", "type = 'counted'", "--past", "retained", "--timeout", "0.3")
    assert len(here(*wanted, "--count", "2")[1].splitlines()) == 2
    assert [here(*wanted, "--count", n)[0] for n in (2, 3, 4)] == [0, 0, 3]
    assert here("sub", "type = 'never'", "--timeout", "0.1") == (3, "", "")


def test_a_consumer_goes_on_where_it_was_unless_it_does_not_settle(here: Here, node: Node) -> None:
    publish(node, "kept", 1, 2, 3)
    wanted = (
        "sub",
        "type = 'kept'",
        "--consumer",
        "keeper",
        "--past",
        "retained",
        "--timeout",
        "0.3",
        "--format",
        "data",
    )
    assert here(*wanted, "--no-ack", "--count", "3")[1].count("n") == 3
    assert here(*wanted, "--count", "2")[1] == '{"n":1}\n{"n":2}\n'
    assert here(*wanted)[1] == '{"n":3}\n'
    assert here(*wanted)[0] == 3
    assert here(*wanted, "--replay")[1].count("n") == 3


def test_members_of_a_group_share(here: Here, node: Node) -> None:
    wanted = ("sub", "type = 'shared'", "--group", "team", "--timeout", "0.3", "--format", "data")
    assert here(*wanted, "--consumer", "a")[0] == 3
    publish(node, "shared", 1, 2, 3)
    got = here(*wanted, "--consumer", "a", "--count", "1")[1] + here(*wanted, "--consumer", "b")[1]
    assert sorted(got.split()) == ['{"n":1}', '{"n":2}', '{"n":3}']


def test_mistakes_are_pointed_at(here: Here) -> None:
    code, out, err = here("sub", "value >> 9")
    lines = err.splitlines()
    assert (code, out) == (1, "") and lines[1][lines[2].index("^") :] == ">> 9"
    assert json.loads(here("sub", "value >> 9", "--json")[2])["position"] == 6
    code, _, err = here("sub", "TRUE", "--past", "yesterday")
    assert code == 1 and "10,5m" in err
    assert here("sub", "TRUE", "--order", "alphabetical")[0] == 1
    assert here("sub", "TRUE", "--count", "0")[0] == 2


def test_nobodys_data_can_take_over_a_terminal() -> None:
    event = tocsin.Event("t", "s", data="\x1b[2J\x9b1m\u202e\x07x", datacontenttype="text/plain")
    assert event_line(event).endswith(r"  t  s  \x1b[2J\x9b1m\u202e\x07x")
    assert event_line(tocsin.Event("t", "s", data=b"\x1b", datacontenttype="image/png")).endswith(
        "(1 bytes of image/png)"
    )


def test_a_cancelled_alert_is_told_of(here: Here, node: Node) -> None:
    with tocsin.sync.connect(node.url, name="boss") as bus:
        id = bus.publish(tocsin.Event("withdrawn", "s", ttl=60, ack="client")).id
        assert here("sub", "type = 'withdrawn'", "--consumer", "told", "--past", "1", "--count", "1")[0] == 0
        bus.cancel(id)
    code, out, _ = here("sub", "type = 'withdrawn'", "--consumer", "told", "--timeout", "0.3")
    assert code == 3 and "!  tocsin.cancelled" in out and id in out


def test_it_prints_each_as_it_comes_over_a_restart_of_the_node_until_ctrl_c(tmp_path: Path) -> None:
    with up(tmp_path / "data") as first:
        port = first.port
        with started("sub", "n > 0", "--url", first.url, "--past", "1", "--format", "data", "--consumer", "c") as sub:
            publish(first, "live", 1)
            assert sub.until("n") == ['{"n":1}']
            publish(first, "live", 2)
            assert sub.until("n") == ['{"n":2}'], "flushed, though nothing follows"
            assert first.running.end(signal.SIGTERM)[0] == 0
            with up(tmp_path / "data", "--port", str(port)) as second:
                publish(second, "live", 3)
                assert sub.until("n") == ['{"n":3}'], "neither again nor lost"
                code, err = sub.end(signal.SIGINT)
                assert code == 130
                lost, back = err.splitlines()
                assert "was lost" in lost and f"connected to {second.url} again" in back


def test_a_reader_that_has_enough_ends_it_quietly(node: Node, tmp_path: Path) -> None:
    publish(node, "piped", *range(5))
    begun = time.monotonic()
    done = subprocess.run(
        [
            "bash",
            "-c",
            "tocsin sub \"type = 'piped'\" --past 5 --order journal --format data | head -1; echo ${PIPESTATUS[0]}",
        ],
        env=shim(tmp_path) | {"TOCSIN_URL": node.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ('{"n":0}\n0\n', "")
    assert time.monotonic() - begun < 50, "though no other event comes"

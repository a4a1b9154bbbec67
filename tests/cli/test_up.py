"""`tocsin up`: a real process that says where it listens, drains when it is told to, and explains what hinders it."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import tocsin
from tests.cli.processes import Node, started, up
from tests.unit.test_cli_journal import Here
from tocsin.cli.figures import figures
from tocsin.journal.reader import open_reader


def test_told_to_end_it_drains(tmp_path: Path) -> None:
    with up(tmp_path / "data") as node:
        with tocsin.sync.connect(node.url) as bus:
            sub = bus.subscribe("n > 0", consumer="ops")
            stored = bus.publish(tocsin.Event("t", "s", data={"n": 1}))
            delivery = sub.next(20)
            ending: list[tuple[int, str]] = []
            told = threading.Thread(target=lambda: ending.append(node.running.end(signal.SIGTERM)))
            told.start()
            told.join(60)
            assert ending == [(0, "")]
        assert delivery.event.id == stored.id
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0, "made for its owner alone"
    with open_reader(tmp_path / "data" / "journal.db") as reader:
        assert figures(reader)["closed"]
    with tocsin.sync.connect(f"file:{tmp_path / 'data' / 'journal.db'}") as bus:
        again = bus.subscribe("n > 0", consumer="ops").next(20)
        assert again.event.id == stored.id, "what was in hand and not settled comes again"


def test_a_second_one_is_told_who_has_journal_or_port(node: Node, here: Here, tmp_path: Path) -> None:
    code, out, err = here("up", "--port", "0", "--data", node.data)
    assert (code, out) == (1, "")
    assert f"open for writing by process {node.running.process.pid} " in err and "--data" in err
    code, out, err = here("up", "--port", node.port, "--data", tmp_path / "other", "--json")
    assert (code, out) == (1, "")
    told = json.loads(err)
    assert told["error"] == "NetworkError" and told["field"] == "port"
    assert str(node.port) in told["message"] and "tocsin doctor" in told["help"]
    with tocsin.sync.connect(f"file:{tmp_path / 'other' / 'journal.db'}") as bus:
        assert bus.publish(tocsin.Event("t", "s")).offset == 1, "it let go of the journal"


def test_a_directory_that_cannot_be_made_is_told(here: Here, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    code, out, err = here("up", "--port", "0", "--data", tmp_path / "taken")
    assert (code, out) == (2, "") and "is a file" in err
    code, out, err = here("up", "--port", "0", "--data", tmp_path / "taken" / "below")
    assert (code, out) == (1, "")
    assert "cannot be made: Not a directory" in err and "--data DIR" in err


def test_it_does_not_open_a_door_to_strangers_unasked(here: Here, tmp_path: Path) -> None:
    code, out, err = here("up", "--host", "0.0.0.0", "--port", "0", "--data", tmp_path / "data")
    assert (code, out) == (1, "")
    assert "--tls-cert" in err and "--insecure" in err
    code, _, err = here("up", "--tls-cert", "cert.pem", "--data", tmp_path / "data")
    assert code == 2 and "--tls-key" in err


def test_tokens_in_its_directory_are_asked_for(here: Here, tmp_path: Path) -> None:
    from tocsin.security.tokens import FILE, TokenStore

    data = tmp_path / "data"
    data.mkdir()
    secret, _ = TokenStore(data / FILE).add("ann", ["publish:*", "subscribe:*"])
    with up(data) as node:
        code, _, err = here("pub", "t", "--url", node.url)
        assert code == 1 and "token" in err and "TOCSIN_TOKEN" in err
        with_token = ("--url", node.url, "--token", secret)
        assert here("pub", "t", '{"n": 1}', *with_token)[0] == 0
        with started("sub", "n > 0", *with_token, "--past", "1", "--count", "2", "--json") as sub:
            assert json.loads(sub.until("specversion")[-1])["data"] == {"n": 1}
            assert here("pub", "t", '{"n": 2}', *with_token)[0] == 0
            assert json.loads(sub.until("specversion")[-1])["data"] == {"n": 2}, "the same token did not replace it"
            assert sub.process.wait(60) == 0

"""`tocsin doctor`: port, disk, clock, descriptors; each state is brought about for real where that can be done."""

from __future__ import annotations

import itertools
import json
import resource
import socket
from pathlib import Path

import pytest

from tests.cli.processes import Node
from tests.unit.test_cli_journal import Here
from tocsin.cli import surroundings


@pytest.fixture
def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_who_listens_on_the_port(node: Node, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = surroundings._port("127.0.0.1", node.port)
    assert found["state"] == "ok" and f"a Tocsin node listens at {node.url}" in found["told"]
    found = surroundings._port("127.0.0.1", free)
    assert found["state"] == "ok" and "tocsin up" in found["told"]
    monkeypatch.setattr(surroundings, "_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = surroundings._port("127.0.0.1", other.getsockname()[1])
    assert found["state"] == "note" and "no Tocsin node" in found["told"] and "--port" in found["help"]
    found = surroundings._port("192.0.2.1", free)  # an address for examples: nobody has it
    assert found["state"] == "broken" and "--host" in found["help"]


def test_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, speed = surroundings._disk(tmp_path / "not" / "there" / "yet")
    assert space["state"] == "ok" and "not there yet" in space["told"] and " ms" in speed["told"]
    assert not list(tmp_path.iterdir()), "nothing is left"
    monkeypatch.setattr(surroundings, "_SLOW_SYNC", 0.0)
    assert [each["state"] for each in surroundings._disk(tmp_path)] == ["ok", "note"]
    monkeypatch.setattr(surroundings, "_ENOUGH_DISK", 1 << 80)
    assert next(surroundings._disk(tmp_path))["state"] == "note"
    monkeypatch.setattr(surroundings, "_LEAST_DISK", 1 << 80)
    assert next(surroundings._disk(tmp_path))["state"] == "broken"


def test_a_data_directory_that_cannot_be_written_to() -> None:
    *_, found = surroundings._disk(Path("/proc/tocsin"))
    assert found["state"] == "broken" and "--data" in found["help"]


def test_the_clock() -> None:
    assert next(surroundings._clock())["state"] == "ok"
    ahead = itertools.count(1_800_000_000, 60).__next__
    found = next(surroundings._clock(now=lambda: float(ahead())))
    assert found["state"] == "note" and "jumped by" in found["told"]
    found = next(surroundings._clock(now=lambda: 1000.0))
    assert found["state"] == "broken" and "timedatectl" in found["help"]


def test_open_files() -> None:
    assert surroundings._files(resource.RLIM_INFINITY)["told"].startswith("no limit")
    assert surroundings._files(65536)["state"] == "ok"
    assert "LimitNOFILE" in surroundings._files(256)["help"]


def test_all_of_it_is_part_of_the_doctor(here: Here, node: Node, tmp_path: Path) -> None:
    code, out, err = here("doctor", "--no-spark", "--port", node.port, "--data", tmp_path, "--json")
    assert (code, err) == (0, "")
    found = {each["name"]: each["state"] for each in json.loads(out)["findings"]}
    assert found[f"port {node.port}"] == found["clock"] == found["open files"] == found["data"] == "ok"
    assert "Python" in found
    code, out, _ = here("doctor", "--no-spark", "--host", "192.0.2.1", "--data", tmp_path)
    assert code == 1 and "broken  port 8420" in out and out.splitlines()[-1].startswith("not all is well")

"""The pipeline on a cluster that does not see the journal: executors read from the node, over http."""

from __future__ import annotations

import secrets
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import tocsin.sync
from tests.pipeline.plant import PAIR, Plant, until, up
from tocsin.spark.standalone import standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _measured(plant: Plant) -> dict[str, Any] | None:
    """How it is, once the shards of subscriptions were measured; that needs a batch after the one that is measured."""
    plant.publish(("b", secrets.token_hex(8), {}))
    status = plant.status()
    return status if status["matching"] is not None and status["matching"]["measured"] is not None else None


def test_executors_elsewhere_ask_the_node(tmp_path: Path) -> None:
    with standalone(workers=1) as cluster:
        # Two masters in one address are nobody's own machine, as far as we can tell: so nothing is read from files.
        master = f"{cluster.master},{cluster.master.removeprefix('spark://')}"
        with up(tmp_path / "refused", "--master", master) as plant:
            status = until(lambda: (found := plant.status())["trouble"] and found, "it is refused")
            assert status["state"] == "unfit" and "cannot reach this node" in status["trouble"]["message"]
            assert "--advertise" in status["trouble"]["help"]
            plant.process.end(signal.SIGTERM)
        with socket.create_server(("", 0)) as probe:
            port = probe.getsockname()[1]
        # Some machines are `localhost` to themselves, by their full name: so the node's address is said.
        place = ("--port", str(port), "--advertise", f"http://{socket.gethostname()}:{port}")
        with up(tmp_path / "data", "--master", master, "--host", "0.0.0.0", "--insecure", *place) as plant:
            made = plant.tocsin("define", "pair", PAIR)
            assert made["placement"] == "spark"
            with plant.heard("type = 'pair'") as found:
                plant.pair("one")
                until(lambda: found, "what executors have read from the node", 180)
                plant.pair("two")
                until(lambda: len(found) == 2, "and more of it", 60)
            with tocsin.sync.connect(plant.url) as bus, bus.subscribe("type = 'a'", "far", placement="spark") as far:
                plant.pair("three")
                assert far.next(timeout=120).event.id == "a-three"
                plant.pair("four")
                assert far.next(timeout=60).event.id == "a-four"
                status = until(lambda: _measured(plant), "what executors have measured", 60)
                assert status["subscriptions"] == 1
                (shard,) = status["matching"]["shards"]
                assert (shard["name"], shard["filters"]) == ("0 of 1", 1) and shard["seconds"][-1] > 0
            log = (tmp_path / "data" / "spark" / "pipeline.log").read_text()
            assert plant.process.end(signal.SIGTERM)[0] == 0
        assert "Traceback" not in log

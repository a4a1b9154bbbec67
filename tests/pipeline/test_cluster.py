"""The pipeline on a cluster that does not see the journal: executors read from the node, over http."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.pipeline.plant import PAIR, until, up
from tocsin.spark.standalone import standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_executors_elsewhere_ask_the_node(tmp_path: Path) -> None:
    with standalone(workers=1) as cluster:
        # Two masters in one address are nobody's own machine, as far as we can tell: so nothing is read from files.
        master = f"{cluster.master},{cluster.master.removeprefix('spark://')}"
        with up(tmp_path / "refused", "--master", master) as plant:
            status = until(lambda: (found := plant.status())["trouble"] and found, "it is refused")
            assert status["state"] == "unfit" and "cannot reach this node" in status["trouble"]["message"]
            assert "--advertise" in status["trouble"]["help"]
            plant.process.end(signal.SIGTERM)
        with up(tmp_path / "data", "--master", master, "--host", "0.0.0.0", "--insecure") as plant:
            made = plant.tocsin("define", "pair", PAIR)
            assert made["placement"] == "spark"
            with plant.heard("type = 'pair'") as found:
                plant.pair("one")
                until(lambda: found, "what executors have read from the node", 180)
                plant.pair("two")
                until(lambda: len(found) == 2, "and more of it", 60)
            log = (tmp_path / "data" / "spark" / "pipeline.log").read_text()
            assert plant.process.end(signal.SIGTERM)[0] == 0
        assert "Traceback" not in log

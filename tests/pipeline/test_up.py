"""`tocsin up` as people use it: node and pipeline together, through crashes and mistakes, with real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.pipeline.plant import PAIR, curl, missing, until, up
from tests.processes import below, lives

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(900),
]


def name_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text()
    return ""


def test_from_define_to_the_event_and_again_after_the_jvm_was_killed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    begun = time.monotonic()
    with up(tmp_path / "data") as plant:
        assert time.monotonic() - begun < 20  # it does not wait for Spark
        made = plant.tocsin("define", "pair", PAIR)
        assert made["placement"] == "spark"
        with plant.heard("type = 'pair'") as found:
            plant.pair("early")  # before Spark is up
            until(lambda: found, "the first derived event")
            assert [part["id"] for part in found[0]["data"]["parts"]] == ["a-early", "b-early"]
            plant.pair("second")
            until(lambda: len(found) == 2, "the second")
            plant.publish(("a", "a-half", {"k": "half"}))
            until(lambda: plant.status()["lag"] == 0, "all is looked at")
            jvm = plant.jvm()
            os.kill(jvm, signal.SIGKILL)
            plant.publish(("b", "b-half", {"k": "half"}))
            plant.tocsin("define", "late", "SEQ([type = 'b'], [type = 'c']) BY k")  # while it is down
            plant.publish(("b", "b-late", {"k": "late"}), ("c", "c-late", {"k": "late"}))
            until(lambda: len(found) == 3, "what was half detected when it was killed")
            assert [part["id"] for part in found[2]["data"]["parts"]] == ["a-half", "b-half"]
            until(lambda: plant.detected("late") == 1, "what was defined meanwhile")
            until(lambda: (now := plant.status())["lag"] == 0 and now["batch_seconds"], "all is looked at again")
            status = plant.tocsin("pipeline", "status")
            assert status["state"] == "up" and status["restarts"] == 1 and plant.jvm() != jvm
            assert status["definitions"] == 2 and status["detected"] == 4 and status["batch_seconds"] > 0
            metrics = curl(f"{plant.http}/metrics")
            assert "tocsin_pipeline_up 1.0" in metrics and "tocsin_pipeline_restarts_total 1.0" in metrics
            assert "tocsin_pipeline_lag_events " in metrics and "tocsin_pipeline_state_bytes " in metrics
            plant.tocsin("define", "stop", "PLUS([type = 'beat'], 2 SECONDS) BY k")  # what waits for time to pass
            plant.publish(("beat", "beat-1", {"k": "m7"}))
            until(lambda: plant.detected("stop") == 1, "a timer on an idle stream")
            assert [each["detected"] for each in plant.tocsin("definitions")["definitions"]] == [3, 1, 1]
            plant.tocsin("undefine", "late")
        assert [each["type"] for each in found] == ["pair"] * 3 and len({each["id"] for each in found}) == 3
        jvm = plant.jvm()
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and "Traceback" not in said
        assert not lives(jvm)


def test_where_spark_cannot_run_the_node_does_it_and_says_so_once(tmp_path: Path) -> None:
    with up(tmp_path / "data", **missing(tmp_path / "old")) as plant:
        made = plant.tocsin("define", "pair", PAIR)
        assert made["placement"] == "node" and made["halted"] is None
        with plant.heard("type = 'pair'") as found:
            plant.pair("one")
            until(lambda: found, "a derived event")
        status = plant.tocsin("pipeline", "status", code=1)
        assert status["state"] == "unfit" and "pyspark is 0.1" in status["trouble"]["message"]
        assert "pip install" in status["trouble"]["help"]
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and said.count("Spark cannot run here") == 1


def test_a_master_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    with up(tmp_path / "data", "--master", "spark://127.0.0.1:1") as plant:
        status = until(lambda: (found := plant.status())["trouble"] and found, "the trouble")
        assert "spark://127.0.0.1:1 cannot be reached" in status["trouble"]["message"]
        assert "--master" in status["trouble"]["help"]
        assert plant.tocsin("define", "pair", PAIR)["placement"] == "spark"  # it waits there
        status = until(lambda: (found := plant.status())["restarts"] > 1 and found, "another try")
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and said.count("cannot be reached") == 1


def test_without_a_pipeline(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--no-spark") as plant:
        assert plant.tocsin("pipeline", "status") == {"state": "none"}
        made = plant.tocsin("define", "there", PAIR, "--placement", "spark")
        [info] = plant.tocsin("definitions")["definitions"]
        assert made["placement"] == "spark" and "no Spark pipeline" in info["halted"]
        assert plant.tocsin("define", "here", PAIR)["placement"] == "node"
        assert "tocsin_definitions_unlooked 1.0" in curl(f"{plant.http}/metrics")
        assert plant.process.end(signal.SIGTERM)[0] == 0
    with up(tmp_path / "data", "--no-spark") as plant:
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and "not looked for (there)" in said and "--placement node" in said


def test_ended_while_spark_starts(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    with up(tmp_path / "data") as plant:
        pid = until(lambda: plant.status()["pid"], "a process is there")
        [jvm, *_] = until(lambda: [each for each in below(pid) if "java" in name_of(each)], "its JVM comes")
        time.sleep(1)  # it is on its way, and has no watchdog yet
        begun = time.monotonic()
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and "Traceback" not in said and time.monotonic() - begun < 10
        until(lambda: not lives(pid) and not lives(jvm), "both are gone", 20)

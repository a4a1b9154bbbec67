"""The pipeline with everything killed that can be, while events pour in: all is derived, delivered, archived once."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.pipeline.plant import until, up
from tests.pipeline.storm import PACES, Storm
from tocsin.composite.detector import SOURCE
from tocsin.journal.reader import open_reader

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(1800),
]


@pytest.mark.parametrize("pause", PACES)
def test_killed_while_events_pour_in_it_loses_nothing_and_doubles_nothing(tmp_path: Path, pause: float) -> None:
    storm = Storm(tmp_path / "data", 1, pause)
    try:
        storm.define("pair", "stop", "whole", "times", "once")
        storm.wait_for_more(20)
        for what in ("worker", "jvm", "node"):  # at random moments; the last one while Spark comes up again
            storm.kill(what)
        storm.wait_for_more(20)
    finally:
        storm.end()
    storm.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [random.SystemRandom().randrange(1_000_000)])
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    data = tmp_path / "data"
    storm = Storm(data, seed)
    try:
        storm.define("pair", "once")
        later = {1: "times", 2: "trio", 3: "whole", 4: "stop"}
        for number in range(6):
            storm.wait_for_more(storm.draw.randint(0, 50))
            storm.kill(storm.draw.choice(("worker", "worker", "jvm", "driver", "node")))
            if number in later:
                storm.define(later[number])
        storm.wait_for_more(50)
    finally:
        storm.end()
    storm.check()

    offsets = sorted((data / "spark" / "detect" / "spark" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets[-1].write_text("v1\n{")
    with up(data) as plant:
        trouble = until(lambda: plant.status()["trouble"], "the damage is seen")
        assert "is damaged" in trouble["message"] and f"remove {data / 'spark' / 'detect'}" in trouble["help"]
        plant.process.end(signal.SIGTERM)
    shutil.rmtree(data / "spark" / "detect")
    with open_reader(data / "journal.db") as reader:
        before = [event.id for block in reader.blocks() for event in block.events() if event.source == SOURCE]
    with up(data) as plant:
        plant.pair("again")
        until(lambda: (now := plant.status())["lag"] == 0 and now["state"] == "up", "all is looked at once more")
        plant.process.end(signal.SIGTERM)
    with open_reader(data / "journal.db") as reader:
        after = [event.id for block in reader.blocks() for event in block.events() if event.source == SOURCE]
    assert after[: len(before)] == before and 0 < len(after) - len(before) < 10

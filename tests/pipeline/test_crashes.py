"""The pipeline with everything killed that can be: what is derived in the end is what an undisturbed run derives, once.

Slow: each life of a pipeline takes a Spark's start. `make test` leaves it out.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.pipeline.plant import PAIR, Plant, until, up
from tocsin import Detector
from tocsin.composite.detector import SOURCE
from tocsin.journal.reader import open_reader

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(1800),
]
pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

DEFINED = {"pair": PAIR, "trio": "SEQ([type = 'a'], [type = 'b'], [type = 'a']) BY k"}


def derived(data: Path) -> Counter[str]:
    """What a journal has of derived events: how many of each id."""
    with open_reader(data / "journal.db") as reader:
        return Counter(each.id for block in reader.blocks() for each in block.events() if each.source == SOURCE)


def expected(data: Path, since: dict[str, int]) -> set[str]:
    """What one detector derives, each definition from its offset on."""
    detector, found = Detector(), set[str]()
    with open_reader(data / "journal.db") as reader:
        for block in reader.blocks():
            for event in block.events():
                for name, begin in since.items():
                    if begin < (event.offset or 0) and all(each.name != name for each in detector.definitions()):
                        detector.define(name, DEFINED[name])
                found |= {each.id for each in detector.feed(event)}
    return found


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(each) for each in found] + [below for each in found for below in children(int(each))]


def caught_up(plant: Plant) -> bool:
    status = plant.status()
    return bool(status["state"] == "up" and status["lag"] == 0)


def kill(plant: Plant, what: str, draw: random.Random) -> None:
    if what == "jvm":
        os.kill(plant.jvm(), signal.SIGKILL)
    elif what == "driver":
        os.kill(plant.status()["pid"], signal.SIGKILL)
    elif what == "worker":
        os.kill(draw.choice(children(plant.jvm())), signal.SIGKILL)
    else:
        plant.process.process.kill()


def test_killed_again_and_again_it_derives_everything_once(tmp_path: Path) -> None:
    draw, data = random.Random(7), tmp_path / "data"
    number = 0
    with ExitStack() as stack:
        plant = stack.enter_context(up(data))
        plant.tocsin("define", "pair", PAIR)
        for what in ("worker", "jvm", "driver", "node"):
            until(partial(caught_up, plant), "it has come up")
            for _ in range(draw.randint(5, 10)):
                number += 1
                plant.publish(*((draw.choice("ab"), f"{number}-{n}", {"k": draw.choice("xyz")}) for n in range(20)))
            kill(plant, what, draw)
            if what == "jvm":
                plant.tocsin("define", "trio", DEFINED["trio"])
            if what == "node":
                stack.close()
                plant = stack.enter_context(up(data))
            plant.pair(f"after-{what}")
        until(lambda: caught_up(plant), "all is looked at")
        since = {each["name"]: each["since"] for each in plant.tocsin("definitions")["definitions"]}
        assert plant.process.end(signal.SIGTERM)[0] == 0
    found = derived(data)
    assert max(found.values()) == 1 and set(found) == expected(data, since) and len(found) > 100

    offsets = sorted((data / "spark" / "detect" / "spark" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets[-1].write_text("v1\n{")
    with up(data) as plant:
        trouble = until(lambda: plant.status()["trouble"], "the damage is seen")
        assert "is damaged" in trouble["message"] and f"remove {data / 'spark' / 'detect'}" in trouble["help"]
        plant.pair("during")
        plant.process.end(signal.SIGTERM)
    shutil.rmtree(data / "spark" / "detect")
    with up(data) as plant:
        plant.pair("again")
        until(lambda: caught_up(plant), "all is looked at once more")
        plant.process.end(signal.SIGTERM)
    found = derived(data)
    assert max(found.values()) == 1 and set(found) == expected(data, since)

"""`subscribe(placement="spark")` by clients of a real `tocsin up`: matched there, delivered by the node, each once."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.pipeline.plant import PAIR, Plant, curl, until, up

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(900),
]
WANTED = "n > 2 OR type = 'pair'"


def publish(plant: Plant, *numbers: int) -> None:
    plant.publish(*(("value", f"v{n}", {"n": n}) for n in numbers))


def client(plant: Plant, *wanted: str, live: tuple[int, ...] = (), left: int = 0, **options: Any) -> list[str]:
    """What a client gets that goes when it has as many as these.

    Args:
        plant: where it connects to.
        wanted: what should come.
        live: numbers that are published once Spark matches for it.
        left: so many of the last ones it does not settle.
        options: of `subscribe`.
    """
    matching = plant.data / "spark" / "match"

    async def hear() -> list[str]:
        got: list[str] = []
        async with tocsin.connect(plant.url, name="far away") as bus:
            sub = await bus.subscribe(WANTED, consumer="far", placement="spark", order="journal", **options)
            if live:
                await asyncio.to_thread(until, matching.exists, "Spark begins to match")
                await asyncio.to_thread(publish, plant, *live)
            while len(got) < len(wanted):
                delivery = await sub.next(timeout=120)
                got.append(delivery.event.id)
                if len(got) <= len(wanted) - left:
                    await delivery.ack()
            if live:
                assert any(matching.glob("spark/offsets/[0-9]*")), "somebody else has matched"
        return got

    got = asyncio.run(hear())
    if live:  # else the next one might take the last one's matching for its own
        until(lambda: not matching.exists(), "nobody is left to match for")
    return got


def info(plant: Plant) -> dict[str, Any]:
    """What the command says of the consumer."""
    [found] = [each for each in plant.tocsin("consumers")["consumers"] if each["name"] == "far"]
    return dict(found)


def test_without_a_pipeline_the_past_comes_and_the_rest_waits(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--no-spark") as plant:
        publish(plant, 1, 2, 3, 4)
        assert client(plant, "v3", "v4", past=tocsin.retained()) == ["v3", "v4"]
        publish(plant, 5)
        far = info(plant)
        assert far["placement"] == "spark" and "no Spark pipeline" in far["halted"]
        assert (far["settled"], far["lag"]) == (2, 1)
        assert "tocsin_consumers_unmatched 1.0" in curl(f"{plant.http}/metrics")
        assert plant.process.end(signal.SIGTERM)[0] == 0
    with up(tmp_path / "data", "--no-spark") as plant:
        code, said = plant.process.end(signal.SIGTERM)
        assert code == 0 and "matched on Spark, and get nothing new (far)" in said


def test_past_and_live_through_lives_of_client_and_node(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    with up(tmp_path / "data", "--no-spark") as plant:
        publish(plant, 1, 2, 3)
        assert client(plant, "v3", past=tocsin.retained()) == ["v3"]
        publish(plant, 4)  # it waits for Spark
        plant.process.end(signal.SIGTERM)
    with up(tmp_path / "data") as plant:
        plant.tocsin("define", "pair", PAIR)
        got = client(plant, "v4", "v5", "v6", live=(5, 0, 6), left=1)
        assert got == ["v4", "v5", "v6"] and info(plant)["halted"] is None
        publish(plant, 1, 7)  # while it is away
        plant.pair("one")
        until(lambda: plant.status()["detected"] == 1, "the pair is found")
        *got, pair, last = client(plant, "v6", "v7", "the pair", "v8", live=(2, 8))
        assert [*got, last] == ["v6", "v7", "v8"] and len(pair) == 32
        assert client(plant, "v9", live=(9,)) == ["v9"]  # and nothing again
        assert info(plant)["settled"] == 7  # since the node was opened
        assert plant.process.end(signal.SIGTERM)[0] == 0
    with up(tmp_path / "data") as plant:
        assert client(plant, "v10", live=(10,)) == ["v10"]
        assert plant.process.end(signal.SIGTERM)[0] == 0

"""State that an older program has stored: a newer one goes on from there, as if it had been there all the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.fixtures.make_spark_state import DEFINITIONS, HALF, HERE, events, told
from tests.spark.test_detect_state import Memory
from tocsin import Detector
from tocsin.spark import keeper, stateful
from tocsin.spark.engines import Engines
from tocsin.spark.pipeline.checkpoint import Checkpoint

pytestmark = pytest.mark.spark
KEPT = sorted(HERE.glob("spark-state-v*.msgpack"))


def wanted() -> list[str]:
    detector = Detector()
    for name, (text, context) in DEFINITIONS.items():
        detector.define(name, text, context)
    return [each.id for event in events() for each in detector.feed(event)]


def test_what_is_stored_now_is_kept() -> None:
    assert HERE / f"spark-state-v{stateful._VERSION}.msgpack" in KEPT, "python -m tests.fixtures.make_spark_state"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_detection_goes_on_from_state_of_older_programs(path: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("TOCSIN_KEEPERS", "off")
    monkeypatch.setattr(keeper, "_here", Engines())
    kept = msgspec.msgpack.decode(path.read_bytes(), strict=False)
    store = Memory()
    store.head, store.pieces = (kept["head"],), {int(number): piece for number, piece in kept["pieces"].items()}
    heads = stateful.read_kept(kept["head"], 1).heads
    assert len(heads) == 2 and all(head.snapshot is not None and head.batches for head in heads.values())
    later = told(store, events()[HALF:])
    found = [*kept["told"], *later]
    assert sorted(found) == sorted(wanted()) and len(later) > 50
    # and the checkpoint beside it
    (tmp_path / "detect").mkdir()
    (tmp_path / "detect" / "about.json").write_bytes(kept["about"])
    about = Checkpoint(tmp_path).about("the journal's id")
    assert (about.first, about.buckets) == (5, 1)

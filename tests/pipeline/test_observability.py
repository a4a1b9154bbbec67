"""What is seen of a node with its Spark pipeline: one trace through both processes, and every figure of the dashboard.

The provider is set as OpenTelemetry's own launcher does it: by a `sitecustomize` on the path, in every process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.observability.dashboard import asked, exposed, on_spark
from tests.pipeline.plant import ENVIRONMENT, PAIR, curl, until, up

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(900),
]

PROVIDER = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
lines = open(os.path.join(os.environ["TRACES"], f"{os.getpid()}.jsonl"), "a", buffering=1)
as_line = lambda span: span.to_json(indent=None) + "\\n"
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=lines, formatter=as_line)))
trace.set_tracer_provider(provider)
"""


def spans(folder: Path) -> list[dict[str, Any]]:
    """Every span that any process has written, with the process."""
    found = []
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            found.append(json.loads(line) | {"process": int(path.stem)})
    return found


def named(folder: Path, name: str) -> list[dict[str, Any]]:
    return [span for span in spans(folder) if span["name"] == name]


def test_a_trace_goes_through_spark_and_every_figure_of_the_dashboard_is_there(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed; `make setup` installs it")
    folder, traces = tmp_path / "site", tmp_path / "traces"
    folder.mkdir()
    traces.mkdir()
    (folder / "sitecustomize.py").write_text(PROVIDER)
    path = os.pathsep.join(filter(None, (str(folder), ENVIRONMENT.get("PYTHONPATH"))))
    with up(tmp_path / "data", PYTHONPATH=path, TRACES=str(traces)) as plant:
        assert plant.tocsin("define", "pair", PAIR)["placement"] == "spark"
        with plant.heard("type = 'pair'") as heard:
            plant.publish(("a", "a-1", {"k": 1}))
            plant.publish(("b", "b-1", {"k": 1}))
            until(lambda: heard, "the derived event")
            until(lambda: named(traces, "ack"), "it is settled")
        wanted = on_spark(asked())
        assert len(wanted) > 8
        until(lambda: wanted <= exposed(curl(f"{plant.http}/metrics")), "every figure of the pipeline")
        code, _ = plant.process.end(signal.SIGTERM)
        assert code == 0
    [first], [second], [detect] = (named(traces, name) for name in ("publish a", "publish b", "detect pair"))
    batches = {span["context"]["span_id"]: span for span in named(traces, "batch detect")}
    assert detect["parent_id"] == second["context"]["span_id"]
    opener, batch = (link["context"]["span_id"] for link in detect["links"])
    assert opener == first["context"]["span_id"]
    assert batches[batch]["attributes"]["tocsin.detected"] == 1, "the batch that found it"
    assert batches[batch]["process"] != detect["process"] == second["process"], "which ran in the pipeline's process"
    [deliver], [ack] = named(traces, "deliver"), named(traces, "ack")
    assert deliver["context"]["trace_id"] == ack["context"]["trace_id"] == second["context"]["trace_id"]
    assert detect["context"]["span_id"].removeprefix("0x") in heard[0]["traceparent"]

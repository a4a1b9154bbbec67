"""A node with its pipeline as `tocsin up` runs them, and what people do with it: commands, curl, kill."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.cli.processes import COMMAND, QUICK
from tests.processes import Running, running

T = TypeVar("T")
ENVIRONMENT = {name: value for name, value in QUICK.items() if name != "TOCSIN_NO_SPARK"}
PATIENCE = 300.0
PAIR = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) BY k"


def until(condition: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Wait until something is so; what it is then."""
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.05)
    return found


class Plant:
    """A node that is up."""

    def __init__(self, process: Running, url: str, data: Path) -> None:
        self.process, self.url, self.data = process, url, data
        self.http = url.replace("ws", "http", 1)

    def tocsin(self, *words: str, code: int = 0) -> dict[str, Any]:
        """A command, and what it says."""
        command = [*COMMAND, *words, "--url", self.url, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        assert done.returncode == code, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def status(self) -> dict[str, Any]:
        value: dict[str, Any] = self._asked("pipeline")
        return value

    def detected(self, name: str) -> int:
        """How often a definition was found; by HTTP, since a command takes a second from what is waited for."""
        return next(each["detected"] for each in self._asked("definitions") if each["name"] == name)

    def _asked(self, route: str) -> Any:
        with urllib.request.urlopen(f"{self.http}/{route}", timeout=10) as answer:
            return json.loads(answer.read())

    def publish(self, *events: tuple[str, str, dict[str, Any]]) -> None:
        """Publish (type, id, data) with curl."""
        batch = [
            {"specversion": "1.0", "type": type, "source": "plant", "id": id, "data": data} for type, id, data in events
        ]
        curl(f"{self.http}/events", "-H", "content-type: application/cloudevents-batch+json", "-d", json.dumps(batch))

    def pair(self, name: str) -> None:
        """Publish what makes a pair."""
        self.publish(("a", f"a-{name}", {"k": name}), ("b", f"b-{name}", {"k": name}))

    @contextmanager
    def heard(self, filter: str) -> Iterator[list[dict[str, Any]]]:
        """Events as curl's stream shows them, as they come."""
        found: list[dict[str, Any]] = []
        where = f"{self.http}/subscribe?consumer=curl&filter={urllib.request.quote(filter)}"  # type: ignore[attr-defined]
        with subprocess.Popen(["curl", "-sN", where], stdout=subprocess.PIPE, text=True) as stream:
            listens = threading.Event()  # the node tells its place before the first event

            def read() -> None:
                assert stream.stdout is not None
                for line in stream.stdout:
                    listens.set()
                    if line.startswith("data:"):
                        found.append(json.loads(line[5:]))

            threading.Thread(target=read, daemon=True).start()
            try:
                assert listens.wait(60)
                yield found
            finally:
                stream.kill()

    def jvm(self) -> int:
        """The number of the pipeline's JVM."""
        return int((self.data / "spark" / "jvm").read_text().split()[0])


def curl(*words: str) -> str:
    done = subprocess.run(["curl", "-sS", "--fail-with-body", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def up(data: Path, *words: str, **environment: str) -> Iterator[Plant]:
    """`tocsin up`, with Spark."""
    command = [*COMMAND, "up", "--port", "0", "--data", str(data), "--json", "--master", "local[2]", *words]
    with running(command, None, ENVIRONMENT | environment) as process:
        said = json.loads(process.until("url")[-1])
        yield Plant(process, said["url"], data)


def missing(folder: Path) -> dict[str, str]:
    """An environment in which the installed PySpark is too old."""
    about = folder / "pyspark-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 0.1\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), ENVIRONMENT.get("PYTHONPATH"))))}

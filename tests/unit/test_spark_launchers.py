"""The scripts between Spark and the programs it starts do what they say, also written by many at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import pyspark

from tocsin.spark import launchers
from tocsin.spark.launchers import java_home, python_program

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def echo(directory: Path) -> Path:
    """A program in a directory with a space and a quote that shows its arguments, one a line."""
    program = directory / "it's a" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor each do echo "<$each>"; done\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment, as far as its directory goes."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_java_loses_one_argument(environment: Path) -> None:
    home = java_home(echo(environment))
    assert home.is_relative_to(environment)
    vector = "--add-modules=jdk.incubator.vector"
    given = ["-Xmx1g", vector, "-Da=b c", "", "--add-modules", "jdk.incubator.vector", "*", vector]
    shown = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [f"<{each}>" for each in given if each != vector]


def test_another_java_has_another_home(environment: Path) -> None:
    one, two = java_home(environment / "a" / "java"), java_home(environment / "b" / "java")
    assert one != two
    assert java_home(environment / "a" / "java") == one


def test_a_home_has_the_libraries_of_the_real_one(environment: Path) -> None:
    real = environment / "jdk"
    for name in ("bin/java", "lib/modules", "lib/server/libjvm.so", "release"):
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).touch()
    (environment / "java").symlink_to(real / "bin" / "java")
    for _ in range(2):
        home = java_home(environment / "java")
        assert (home / "lib" / "server" / "libjvm.so").samefile(real / "lib" / "server" / "libjvm.so")
        assert sorted(os.listdir(home)) == ["bin", "lib", "release"]
        assert not (home / "bin").is_symlink()


def test_outside_an_environment_a_home_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = java_home(Path("/opt/java/bin/java"))
    assert home.is_relative_to(tmp_path)
    assert home.stat().st_mode & 0o077 == 0, "nobody else may look in, or put a java of his own there"


def test_many_processes_write_one_home(environment: Path) -> None:
    program = echo(environment)
    # By its path: importing the package would take them too long to meet each other.
    text = (
        f"import pathlib, runpy, sys; sys.prefix = {str(environment)!r}\n"
        f"print(runpy.run_path({launchers.__file__!r})['java_home'](pathlib.Path({str(program)!r})))"
    )

    def start(_: int) -> str:
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(start, range(16)))
    assert homes == {str(java_home(program))}
    assert os.listdir(java_home(program) / "bin") == ["java"], "no drafts are left"


def python_shows(environment: Path, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    program = python_program(sys.executable, Path(pyspark.__file__).parent)
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "PYTHONPATH")}
    done = subprocess.run(
        [program, *arguments], env=env | variables, capture_output=True, text=True, cwd=environment, check=True
    )
    shown = json.loads(done.stdout)
    return shown[0], shown[1]


def test_python_forgets_sparks_zips_and_nothing_else(environment: Path) -> None:
    zips = Path(pyspark.__file__).parent / "python" / "lib"
    path = [f"{zips}/pyspark.zip", f"{zips}/py4j-0.10.9.9-src.zip", "/a b/*", f"{zips}/x.jar", "/own/pyspark.zip"]
    given, variables = python_shows(environment, "-c", SHOW, "-m", "it's", PYTHONPATH=":".join(path))
    assert given == ["-m", "it's"]
    assert variables["PYTHONPATH"].split(":") == path[2:]
    assert "OMP_NUM_THREADS" not in variables


def test_python_puts_our_daemon_in_the_place_of_sparks(environment: Path) -> None:
    package = environment / "tocsin" / "spark"
    package.mkdir(parents=True)
    for name in ("__init__.py", "../__init__.py"):
        (package / name).touch()
    (package / "daemon.py").write_text(SHOW)
    path = {"PYTHONPATH": str(environment)}
    for module in (["pyspark.worker"], ["pyspark.sql.worker.create_data_source"], []):
        given, variables = python_shows(environment, "-m", "pyspark.daemon", *module, **path)
        assert given == module
        assert variables["OMP_NUM_THREADS"] == "1"
    assert python_shows(environment, "-m", "pyspark.daemon", OMP_NUM_THREADS="3", **path)[1]["OMP_NUM_THREADS"] == "3"

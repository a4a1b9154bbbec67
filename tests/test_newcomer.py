"""A newcomer follows README.md literally, in an empty folder, with nothing but what is in the repository.

What it does: copies the files that git knows (what a clone would have) to a new place, takes the blocks of README from
there, and runs them in another, empty folder: the ten lines as a program, the three terminals as three processes, and
every command after `make` as a dry run (what it would do is known, and its targets exist). What it does not do: build a
fresh environment, or compile kernels there, which takes minutes: Python and its libraries are those of this test, and
NumPy does the matching. The port is another one, since 8420 may be taken, and the node runs without Spark, which has
tests of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes import running
from tests.test_docs import ROOT, blocks

MAKE = re.compile(r"^make ([\w-]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What somebody has who clones the repository now."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository, or git is not installed")
    known = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    place = tmp_path_factory.mktemp("newcomer") / "tocsin"
    for name in filter(None, known.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


@pytest.fixture
def environment(clone: Path, tmp_path: Path) -> dict[str, str]:
    """As after `make setup` there: `tocsin` and `python` are those of the clone."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("tocsin", "-m tocsin.cli"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    there = {"PATH": f"{programs}{os.pathsep}{kept['PATH']}", "PYTHONPATH": str(clone / "src")}
    return kept | there | {"TOCSIN_KERNELS": "numpy"}


def test_the_ten_lines(clone: Path, environment: dict[str, str], tmp_path: Path) -> None:
    [lines] = [block.code for block in blocks((clone / "README.md").read_text()) if block.kind == "python"]
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "ten.py").write_text(lines)
    done = subprocess.run(
        ["python", "ten.py"], cwd=empty, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("smoke"), "the urgent one first"
    assert [line for line in said[1:] if line.startswith("machine.value")] == said[1:] and len(said) == 10
    assert (empty / "plant.db").exists()


def test_the_three_terminals(clone: Path, environment: dict[str, str], tmp_path: Path) -> None:
    terminals = [block.code for block in blocks((clone / "README.md").read_text()) if "tocsin up" in block.code]
    assert len(terminals) == 1, "README shows once how a node is started"
    up, sub, *others = [line.partition("  #")[0].strip() for line in terminals[0].splitlines() if line.strip()]
    assert up.startswith("tocsin up") and sub.startswith("tocsin sub") and others
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    elsewhere = {"TOCSIN_PORT": str(port), "TOCSIN_URL": f"ws://127.0.0.1:{port}", "TOCSIN_NO_SPARK": "1"}
    empty = tmp_path / "empty"
    empty.mkdir()
    with ExitStack() as stack:
        node = stack.enter_context(running(["bash", "-c", f"exec {up}"], empty, environment | elsewhere))
        node.until("tocsin pub")
        listener = stack.enter_context(running(["bash", "-c", f"exec {sub}"], empty, environment | elsewhere))
        for line in others:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=empty,
                env=environment | elsewhere,
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert '"value":9.2' in listener.until("machine.value")[-1]
        assert listener.end(signal.SIGINT)[0] == 130
        assert node.end(signal.SIGINT) == (0, "")
    assert (empty / "tocsin-data" / "journal.db").exists(), "as README says"


def test_the_commands_of_make(clone: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    text = (clone / "README.md").read_text()
    targets = {target for block in blocks(text) if block.kind == "sh" for target in MAKE.findall(block.code)}
    assert {"demo", "test"} <= targets
    for target in sorted(targets):
        done = subprocess.run(
            ["make", "-n", target], cwd=clone, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "-m venv" in done.stdout, "the first command sets itself up"


def test_nothing_it_needs_is_ignored_by_git(clone: Path) -> None:
    """The package is imported from the clone alone: a module that nobody has added is missing there."""
    program = "import tocsin, tocsin.cli.app, tocsin.spark; print(tocsin.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(clone / "src"), "TOCSIN_KERNELS": "numpy"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(clone))

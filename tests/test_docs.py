"""Every example in README.md and docs/ runs as printed: Python here, commands in a shell beside a real node.

Blocks of one page run in order, in an empty folder, and share it and their names, as a reader would type them. A fence
that says `no-run` is only shown. Nothing else is: a fence in a language that no test runs is refused.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.processes import Node, shim, up
from tocsin.cli import app as cli
from tocsin.rules import load

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
ON_SPARK = ["docs/SPARK.md", "docs/howto/archive.md", "docs/howto/backtest.md", "docs/howto/match-on-spark.md"]
"""Pages that need a session. They share one, in a process of its own, and a folder: each has files of other names."""
COMMANDS_ELSEWHERE = {
    "README.md": "tests/test_newcomer.py",
    "docs/QUICKSTART.md": "tests/cli/test_pages.py",
    "docs/CLIENTS.md": "tests/http/test_strangers.py",
}
"""Pages whose commands, and programs in other languages, have a test of their own."""
NOTES_ELSEWHERE = {"backup": "tests/cli/test_pages.py"}
"""Blocks that have, by what stands behind their language."""
SHOWN = {"", "text", "tree", "ini"}
"""What is no code, or cannot be run: a grammar, output, drawings, a unit of systemd."""
FENCE = re.compile(r"^```(?P<kind>\w*)[ \t]*(?P<note>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: the number of the line before its first, its language, what stands behind that, its lines."""

    line: int
    kind: str
    note: str
    code: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page that are to be run."""
    found = [
        Block(text.count("\n", 0, match.start("code")), match["kind"], match["note"].strip(), match["code"])
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if "no-run" not in block.note]


def commands(page: str) -> list[Block]:
    """Those that are run in a shell by this file."""
    if page in COMMANDS_ELSEWHERE:
        return []
    found = blocks((ROOT / page).read_text())
    return [block for block in found if block.kind == "sh" and block.note not in NOTES_ELSEWHERE]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Pages share it: each has its own names."""
    with up(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ON_SPARK and not commands(page)])
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["here", "in bash"])
def test_examples_and_commands_run(
    quick: bool, page: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command takes a second to start, so that `make test` gives those of ours the same words here."""
    if "curl" in "".join(block.code for block in commands(page)) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOCSIN_URL", node.url)
    (tmp_path / "bin").mkdir()
    environment = shim(tmp_path / "bin") | {"TOCSIN_URL": node.url}

    def shell(code: str) -> None:
        code = code.replace("127.0.0.1:8420", f"127.0.0.1:{node.port}")  # 8420 may be taken where tests run
        for line in re.sub(r"\\\n", "", code).splitlines():
            if quick and line.startswith("tocsin ") and not re.search(r"[|$;&<>]", line):
                assert cli.run(shlex.split(line, comments=True)[1:]) == 0, line
                continue
            done = subprocess.run(
                ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=100, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr, done.stderr

    run(page, shell)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_examples_on_spark_run(tmp_path: Path) -> None:
    """In a session of their own, begun where their files are."""
    assert not any(commands(page) for page in ON_SPARK)
    done = subprocess.run([sys.executable, "-m", __name__, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def run(page: str, shell: Callable[[str], None] | None = None) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks((ROOT / page).read_text()):
        if block.kind == "python":
            # Blank lines in front: a traceback then names the page's own line.
            exec(compile("\n" * block.line + block.code, str(ROOT / page), "exec", dont_inherit=True), names)
        elif shell is not None and block in commands(page):
            shell(block.code)


@pytest.mark.parametrize("page", [*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_block_is_run_or_marked(page: str, tmp_path: Path) -> None:
    for block in blocks((ROOT / page).read_text()):
        place = f"{page}, line {block.line}"
        if block.kind == "toml":
            (tmp_path / "rules.toml").write_text(block.code)
            assert load(tmp_path / "rules.toml"), place
        elif block.kind == "json":
            assert json.loads(block.code), place
        else:
            is_run = block.kind in ("python", "sh") or page in COMMANDS_ELSEWHERE
            assert is_run or block.kind in SHOWN, f"{place}: nobody runs {block.kind!r}; write `{block.kind} no-run`"


def test_there_are_examples() -> None:
    assert blocks((ROOT / "README.md").read_text()), "README.md shows no runnable example"
    assert sum(len(commands(page)) for page in PAGES) > 5


def test_what_a_fence_says_decides() -> None:
    text = "a\n```python\nx = 1\n```\n```python no-run\nno\n```\n```sh backup\nls\n```\n```python\ny = x\n```\n"
    assert blocks(text) == [
        (2, "python", "", "x = 1\n"),
        (8, "sh", "backup", "ls\n"),
        (11, "python", "", "y = x\n"),
    ]


if __name__ == "__main__":
    import os

    os.chdir(sys.argv[1])
    for page in ON_SPARK:
        run(page)

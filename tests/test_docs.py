"""Every Python example in README.md and docs/ runs as printed.

Blocks of one page run in order and share their names, as a reader would type them. A fence that says
```python no-run is only shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPARK = [pytest.mark.spark, pytest.mark.timeout(300)]
PAGES = [
    pytest.param(page, marks=SPARK if page == "docs/SPARK.md" else [])
    for page in ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
]
BLOCK = re.compile(r"^```python[ \t]*(?P<note>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """The page's runnable examples, each with the number of the line before its first."""
    found = [match for match in BLOCK.finditer(text) if "no-run" not in match["note"]]
    return [(text.count("\n", 0, match.start("code")), match["code"]) for match in found]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/SPARK.md":  # a session of its own, begun where its files are
        done = subprocess.run([sys.executable, __file__, page], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return
    monkeypatch.chdir(tmp_path)
    run(page)


def run(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks((ROOT / page).read_text()):
        # Blank lines in front: a traceback then names the page's own line.
        exec(compile("\n" * line + code, str(ROOT / page), "exec", dont_inherit=True), names)


def test_there_are_examples() -> None:
    assert blocks((ROOT / "README.md").read_text()), "README.md shows no runnable example"


def test_only_fences_marked_python_run() -> None:
    text = "a\n```python\nx = 1\n```\n```python no-run\nno\n```\n```sql\nno\n```\n```python\ny = x\n```\n"
    assert blocks(text) == [(2, "x = 1\n"), (11, "y = x\n")]


if __name__ == "__main__":
    run(sys.argv[1])

"""What our pages say about the source is true: the tree in ARCHITECTURE.md, and every path and link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")),
]

LINE = re.compile(r"^(?P<indent>[\s│├└─|`+-]*)(?P<name>[\w./]+)\s*(?P<words>.*)$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:src|tests|docs|benchmarks|examples|\.ci)/[\w./-]*)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def listed(page: str) -> dict[str, str]:
    """Entries of the page's ```tree block, path → words; packages end in a slash. Depth is read from indentation."""
    block = re.search(r"^```tree\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block, "ARCHITECTURE.md has no block that opens with ```tree"
    entries: dict[str, str] = {}
    parents: list[tuple[int, str]] = []
    for line in block[1].splitlines():
        if not (found := LINE.match(line)) or found["name"].strip("/") in {"src/tocsin", "tocsin"}:
            continue
        depth = len(found["indent"])
        while parents and parents[-1][0] >= depth:
            parents.pop()
        path = (parents[-1][1] if parents else "") + found["name"]
        if path.endswith("/"):
            parents.append((depth, path))
        entries[path] = found["words"].strip(" —–-")
    return entries


def existing(package: Path) -> set[str]:
    """Modules and packages under `package`; a package stands for its `__init__.py`."""
    modules = {path.relative_to(package) for path in package.rglob("*.py")}
    packages = {f"{path.parent}/" for path in modules if path.name == "__init__.py" and path.parent != Path()}
    return packages | {str(path) for path in modules if path.name != "__init__.py"}


def broken(page: str) -> list[str]:
    """Relative links, and paths in code quotes, that lead nowhere."""
    text = FENCE.sub("", (ROOT / page).read_text())
    links = [target.split("#")[0] for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    missing = [target for target in links if target and not ((ROOT / page).parent / target).exists()]
    return missing + [path for path in PATH.findall(text) if not (ROOT / path).exists()]


def test_tree_shows_what_exists() -> None:
    entries = listed((ROOT / "ARCHITECTURE.md").read_text())
    shown = {path for path in entries if not path.endswith("__init__.py")}
    real = existing(ROOT / "src" / "tocsin")
    faults = [f"not in ARCHITECTURE.md's tree: {path}" for path in sorted(real - shown)]
    faults += [f"in ARCHITECTURE.md's tree, but gone: {path}" for path in sorted(shown - real)]
    faults += [f"no words beside it in the tree: {path}" for path in sorted(shown & real) if not entries[path]]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    assert not broken(page), f"{page} points at what does not exist"


def test_tree_is_read_with_boxes_and_with_spaces() -> None:
    boxes = (
        "```tree\nsrc/tocsin/\n├─ model.py    — values\n├─ filters/   — wanted\n│  └─ a.py     — one\n└─ z.py\n```\n"
    )
    spaces = "```tree\nmodel.py  — values\nfilters/  — wanted\n  a.py  — one\nz.py\n```\n"
    expected = {"model.py": "values", "filters/": "wanted", "filters/a.py": "one", "z.py": ""}
    assert listed(boxes) == listed(spaces) == expected

"""The files of the page: what others wrote is what was published, and no file asks another host for anything."""

from __future__ import annotations

import hashlib
import json
import re

from tests.processes import ROOT

STATIC = ROOT / "src" / "tocsin" / "web" / "static"
VENDOR = STATIC / "vendor"
OURS = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html"} and VENDOR not in path.parents]
ELSEWHERE = re.compile(r"""(?:(?:src|href)\s*=\s*|(?:from|import)\s*\(?\s*|fetch\(|url\()["'`]?(?:https?:)?//[\w.]+""")
COMMENT = re.compile(r"^\s*//.*$|/\*.*?\*/", re.MULTILINE | re.DOTALL)


def test_vendored_files_are_what_was_published() -> None:
    listed = json.loads((VENDOR / "VENDORED.json").read_text())
    assert {path.name for path in VENDOR.iterdir()} == {*listed, "VENDORED.json"}
    for name, about in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == about["sha256"], f"{name} was changed here"
        assert about["licence"] in {"MIT", "Apache-2.0"} and about["version"]


def test_nothing_comes_from_another_host() -> None:
    assert OURS
    for path in [*OURS, *VENDOR.glob("*.js"), *VENDOR.glob("*.css")]:
        assert not ELSEWHERE.search(COMMENT.sub("", path.read_text())), path
    assert ELSEWHERE.search('<script src="https://cdn.example/x.js">') and ELSEWHERE.search("url(//cdn.example/x.woff)")


def test_every_module_that_is_imported_is_there() -> None:
    for path in OURS:
        if path.suffix != ".js":
            continue
        code = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        for target in re.findall(r"""(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""", code):
            assert (path.parent / target).resolve().is_file(), f"{path.name} imports {target}"
    page = (STATIC / "index.html").read_text()
    for target in re.findall(r'(?:href|src)="/page/([^"]+)"', page):
        assert (STATIC / target).is_file(), target


def test_files_stay_readable() -> None:
    long = {path.name: lines for path in OURS if (lines := path.read_text().count("\n")) > 600}
    assert not long, f"one idea for each file: {long}"

"""The source itself: nothing that a stranger sends can become code."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tocsin"
LIBRARIES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__"}


def offences(text: str) -> list[str]:
    """Imports and calls that make code, or objects of any kind, of bytes."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [name for name in names if name.split(".")[0] in LIBRARIES]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.append(f"{node.func.id}()")
    return found


def test_nothing_is_unpickled_or_evaluated() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    assert {str(path): found for path in files if (found := offences(path.read_text()))} == {}


def test_the_test_sees_them() -> None:
    assert offences("import pickle\nfrom marshal import loads\nx = eval('1')\nre.compile('a')") == [
        "pickle",
        "marshal",
        "eval()",
    ]

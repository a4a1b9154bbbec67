"""The nursery: one per test process, started once, so that a life costs a fork and not an import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def live() -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask for a life; the answer is what was said before death, and by which signal it died."""
    command = [sys.executable, "-m", "tests.crash.nursery"]
    pipe, here = subprocess.PIPE, {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}  # this clone, not one installed
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | here, stdin=pipe, stdout=pipe, text=True) as nursery:
        assert nursery.stdin and nursery.stdout

        def ask(**life: Any) -> dict[str, Any]:
            print(json.dumps(life), file=nursery.stdin, flush=True)
            answer: dict[str, Any] = json.loads(nursery.stdout.readline())
            return answer

        yield ask
        nursery.stdin.close()

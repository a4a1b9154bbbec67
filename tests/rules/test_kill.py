"""A host that is killed in the middle of an action: the next one runs it again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("dying.py")


@pytest.mark.crash
def test_an_action_comes_again_after_its_host_was_killed(tmp_path: Path, file_url: str) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, PROGRAM, file_url, out, "die"], timeout=100)
    assert killed.returncode == -signal.SIGKILL
    assert out.read_text() == "1 dies\n"
    subprocess.run([sys.executable, PROGRAM, file_url, out], timeout=100, check=True)
    assert out.read_text() == "1 dies\n1 done\n2 done\n"  # again, and what had not begun

"""A node that `tocsin up` runs, shared by the tests that only need one, and commands run without a process."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from tests.cli.processes import Node, up
from tests.unit.test_cli_journal import Here
from tocsin.cli import app as cli


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Tests share it: each has its own types and names."""
    with up(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.fixture
def here(node: Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Runs a command in this process, against the node; `stdin` may be given as bytes."""
    for name in ("TOCSIN_TOKEN", "TOCSIN_NAME", "TOCSIN_DATA", "TOCSIN_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOCSIN_URL", node.url)

    def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run([*map(str, arguments)])
        return code, *capfd.readouterr()

    return call

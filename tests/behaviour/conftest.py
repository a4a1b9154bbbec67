"""The behaviour suite runs on every kind of bus: embedded on memory and on a file, and remote through a real socket.

A test that looks inside the node says so with `@pytest.mark.embedded("why")` and does not run on `ws:`.
"""

from __future__ import annotations

import pytest

EMBEDDED_MODULES = {
    "test_sync": "its remote side is in tests/net/test_sync.py, with a server in another thread",
}
"""File → why none of its tests runs on `ws:`."""


@pytest.fixture(params=["memory", "file", "ws"])
def url(request: pytest.FixtureRequest) -> str:
    """Every place a node can be: a test that asks for it runs once on each. `testing.node` knows all of them."""
    if request.param == "file":
        return str(request.getfixturevalue("file_url"))
    return f"{request.param}:"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, on `ws:`, what can only be embedded."""
    out = [item for item in items if isinstance(item, pytest.Function) and is_remote(item) and is_embedded(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def is_remote(item: pytest.Function) -> bool:
    return item.callspec.params.get("url") == "ws" if hasattr(item, "callspec") else False


def is_embedded(item: pytest.Function) -> bool:
    return item.path.stem in EMBEDDED_MODULES or item.get_closest_marker("embedded") is not None

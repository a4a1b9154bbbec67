"""One Spark session for all tests of this folder, in one process.

Only one SparkContext can live in a process, and each costs a JVM. So a test that needs other settings takes
`spark.newSession()`: the same Spark, with SQL settings of its own. Under xdist all tests of this folder go to one
worker (`make test` does so; see `tests/conftest.py`), while the others do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

# PySpark's own habits on shutdown and with pandas; nothing of ours.
_HABITS = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(_HABITS)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores; stopped at the end."""
    ts = pytest.importorskip("tocsin.spark", reason="PySpark is not installed; `make setup` installs it")
    session = ts.session("local[2]", app="tests", memory="1g")
    yield session
    session.stop()

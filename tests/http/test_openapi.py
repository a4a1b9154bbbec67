"""The published description is that of the routes: Schemathesis asks what it says may be asked, and compares."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.http.support import served
from tocsin.net.http.openapi import describe
from tocsin.net.http.table import OPERATIONS

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
STREAMS = "/subscribe"
"""Never ends by itself: `test_fuzz` asks it."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a server listens, on a thread of its own."""
    ready, end = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with served() as place:
            found.append(place.url)
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield found[0]
    finally:
        end.set()
        thread.join(20)


def test_description_names_every_route_once() -> None:
    said = describe(OPERATIONS)
    named = {(method.upper(), path) for path, methods in said["paths"].items() for method in methods}
    assert len(named) == len(OPERATIONS)
    assert ("GET", "/events/{id}/status") in named and ("POST", "/requests/{resource}") in named
    for path, methods in said["paths"].items():
        for method, operation in methods.items():
            places = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
            assert places == [part[1:-1] for part in path.split("/") if part.startswith("{")], (method, path)


schema = schemathesis.openapi.from_dict(describe(OPERATIONS))


@schema.exclude(path=STREAMS).parametrize()
@settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_answers_are_as_described(case: Any, address: str) -> None:
    checks = schemathesis.checks
    case.call_and_validate(
        base_url=address,
        timeout=10,
        checks=[
            checks.not_a_server_error,
            checks.CHECKS.get_one("status_code_conformance"),
            checks.CHECKS.get_one("content_type_conformance"),
            checks.CHECKS.get_one("response_schema_conformance"),
        ],
    )

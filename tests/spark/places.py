"""Where the tests of source and sink find a journal: in its file, or at the address of a node that has it open.

A test that is written for a file runs against a node too: a module that wants that has the file served, and says so
here, so that `url_of` gives the address. Whoever needs the journal itself asks `opened`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.support import Place, served
from tocsin.journal.sqlite import SqliteJournal

__all__ = ["Served", "as_with_a_file", "at_node", "opened", "url_of"]

_SERVED: dict[str, Served] = {}


class Served:
    """A node on a thread of its own, over a journal's file."""

    def __init__(self, path: Path, clock: Any = None, tokens: Any = None) -> None:
        self.place: Place
        self._ready, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(f"file:{path}", clock, tokens)))
        self._thread.start()
        assert self._ready.wait(30), "the node did not start"

    async def _serve(self, url: str, clock: Any, tokens: Any) -> None:
        async with served(url, tokens, clock) as self.place:
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await asyncio.to_thread(self._end.wait)

    @property
    def url(self) -> str:
        return self.place.url

    @property
    def journal(self) -> SqliteJournal:
        found = self.place.bus._node.journal
        assert isinstance(found, SqliteJournal)
        return found

    def count(self, method: str, path: str) -> int:
        """How often something was answered with success."""
        counts = self.place.server.http.counts
        return sum(
            count for (where, how, status), count in counts.items() if (how, where) == (method, path) and status < 300
        )

    def run(self, work: Any) -> Any:
        """Have something done on the node's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the node did not end"


@contextlib.contextmanager
def at_node(path: Path, clock: Any = None, tokens: Any = None) -> Iterator[Served]:
    """Have the journal of a file served; it is made if there is none."""
    node = Served(path, clock, tokens)
    _SERVED[str(path)] = node
    try:
        yield node
    finally:
        del _SERVED[str(path)]
        node.close()


def url_of(path: Path | str) -> str:
    """How Spark is told where a journal is."""
    node = _SERVED.get(str(path))
    return node.url if node is not None else f"file:{path}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[SqliteJournal]:
    """A journal, open for writing: the node's own if it has one."""
    node = _SERVED.get(str(path))
    if node is not None:
        yield node.journal
        return
    with SqliteJournal(path) as journal:
        yield journal


def as_with_a_file(shared: list[Callable[..., None]], slow: list[Callable[..., None]]) -> Callable[..., None]:
    """A test that runs those of another module again, with the fixtures of the module it stands in."""

    @pytest.mark.parametrize(
        "test",
        [*shared, *(pytest.param(each, marks=pytest.mark.slow) for each in slow)],
        ids=lambda each: each.__name__.removeprefix("test_"),
    )
    def test_as_with_a_file(test: Callable[..., None], request: pytest.FixtureRequest) -> None:
        test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})

    return test_as_with_a_file

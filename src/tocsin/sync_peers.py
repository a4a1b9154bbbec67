"""The blocking face of who is there: resources, demand, serving and groups, for `tocsin.sync`.

Each wraps what the bus on its own loop has, and waits for its answers. See there for what they mean.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from tocsin.errors import GroupError, PeerError
from tocsin.node import demand, discovery, groups, serving
from tocsin.peers.advertisements import Change
from tocsin.peers.groups import Message, View

__all__ = ["Changes", "Demand", "Group", "Runner", "Serving"]

T = TypeVar("T")


class Runner(Protocol):
    """The loop that a blocking bus has."""

    stopped: bool

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for it."""


class Changes:
    """Resources as they come and go. With a timeout, iteration ends after so many seconds of silence."""

    def __init__(self, runner: Runner, inner: discovery.Changes, timeout: float | None) -> None:
        """Wrap changes."""
        self._runner, self._inner, self.timeout = runner, inner, timeout

    def next(self, timeout: float | None = None) -> Change:
        """Wait for the next change; raises TimeoutError."""
        return self._runner.run(self._inner.next(timeout))

    def poll(self) -> Change | None:
        """The next change if there is one at this moment."""

        async def ask() -> Change | None:
            return self._inner.poll()

        return self._runner.run(ask())

    def __iter__(self) -> Iterator[Change]:
        """Changes as they come, until the bus is closed or nothing came for `timeout` seconds."""
        while True:
            try:
                yield self.next(self.timeout)
            except (TimeoutError, PeerError):
                return

    def close(self) -> None:
        """Stop watching."""

        async def close() -> None:
            self._inner.close()

        if not self._runner.stopped:
            self._runner.run(close())


class Demand:
    """Who wants events like these, at one moment. True if anybody does."""

    def __init__(self, runner: Runner, inner: demand.Demand) -> None:
        """Wrap a demand."""
        self._runner, self._inner = runner, inner
        self.consumers, self.definitions = inner.consumers, inner.definitions

    def __bool__(self) -> bool:
        """Does anybody want them?"""
        return bool(self._inner)

    def __repr__(self) -> str:
        """Show who does."""
        return repr(self._inner)

    def changed(self, timeout: float | None = None) -> Demand:
        """Wait until others want them than did; raises TimeoutError."""
        return Demand(self._runner, self._runner.run(self._inner.changed(timeout)))


class Serving:
    """A resource that is served while this is entered. The handler runs on a thread, so it may block."""

    def __init__(self, runner: Runner, inner: serving.Serving) -> None:
        """Wrap what serves."""
        self._runner, self._inner = runner, inner
        self.resource = inner.resource

    def __enter__(self) -> Serving:
        """Serve; everybody may know when this returns."""
        self._runner.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        if not self._runner.stopped:
            self._runner.run(self._inner.__aexit__(kind, error, trace))


class Group:
    """A membership of a group. With a timeout, iteration ends after so many seconds of silence."""

    def __init__(self, runner: Runner, inner: groups.Group, timeout: float | None) -> None:
        """Wrap a membership."""
        self._runner, self._inner, self.timeout = runner, inner, timeout
        self.name = inner.name

    @property
    def view(self) -> View:
        """The view that holds now."""

        async def ask() -> View:
            return self._inner.view

        return self._runner.run(ask())

    def cast(self, data: Any) -> int:
        """Say something to all members; returns its offset when it is durable."""
        return self._runner.run(self._inner.cast(data))

    def next(self, timeout: float | None = None) -> View | Message:
        """Wait for the next view or message; raises TimeoutError."""
        return self._runner.run(self._inner.next(timeout))

    def poll(self) -> View | Message | None:
        """The next view or message if there is one at this moment."""

        async def ask() -> View | Message | None:
            return self._inner.poll()

        return self._runner.run(ask())

    def __iter__(self) -> Iterator[View | Message]:
        """Views and messages as they come, until you leave or nothing came for `timeout` seconds."""
        while True:
            try:
                yield self.next(self.timeout)
            except TimeoutError:
                return
            except GroupError:
                if self._inner.is_member:
                    raise
                return

    def leave(self) -> None:
        """Leave."""
        if not self._runner.stopped:
            self._runner.run(self._inner.leave())

    def __enter__(self) -> Group:
        """Join: you are in the view when this returns."""
        self._runner.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        self.leave()

"""`ts.follow`: the filters of a node's consumers as a live `FilterSet`, kept up to date while queries run.

    with ts.follow("http://127.0.0.1:8420", "wanted") as following:
        events = spark.readStream.format("tocsin").option("url", …).option("filters", "wanted").load()
        ts.match(events, following.filters)              # (offset, key): key is the consumer's name

    node ─ GET /consumers, every second ─▶ what is new, changed or gone ─▶ one change of the set

Promised: after `refresh`, and after each look, the set is what the node's consumers asked for at that moment: one
filter for each, true for what any of its subscriptions wants. While the node does not answer, the set stays as it is,
which is logged once. A version is made only if something has changed.
Not promised: that an event meets the filters of the moment it was published; it meets those of the moment its batch
began, as with every live set. Who needs the former lets the node deliver.

Concurrency: a thread of its own looks; `refresh` may be called in any thread.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from types import TracebackType
from typing import Any

from tocsin.errors import TocsinError
from tocsin.spark.asking import Address, Asker
from tocsin.spark.filterset import FilterSet

__all__ = ["Following", "follow", "wanted_of"]

_log = logging.getLogger(__name__)


def follow(
    url: str,
    path: str | os.PathLike[str],
    *,
    token: str | None = None,
    ca: str | None = None,
    every: float = 1.0,
) -> Following:
    """Keep a filter set equal to what a node's consumers ask for.

    Args:
        url: of the node: `http://host:8420`.
        path: the set's directory; the first look makes it. Nobody else should change it.
        token: that may look at consumers.
        ca: certificates to trust instead of the system's; a file (PEM).
        every: seconds between two looks.

    Raises:
        TocsinError: the node does not answer, or does not let us look.
    """
    return Following(Address(url.rstrip("/"), token, ca, patience=0), FilterSet(path), every)


class Following:
    """A set that follows a node, until it is closed. See `follow`."""

    def __init__(self, address: Address, filters: FilterSet, every: float) -> None:
        """Look once, and go on looking."""
        self.filters = filters
        """The set."""
        self._address = address
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        self._known: Mapping[Any, str] | None = None  # what the set has; None: it was not looked at yet
        self.refresh()
        self._thread = threading.Thread(target=self._follow, args=(every,), name="tocsin-follow", daemon=True)
        self._thread.start()

    def refresh(self) -> int:
        """Look now; returns the version of the set.

        Raises:
            TocsinError: the node does not answer, or a filter cannot be used; the set is as it was.
        """
        with self._turn:
            wanted = wanted_of(self._address)
            if self._known is None:
                self.filters.change()  # there is one from now on
                self._known = self.filters.filters()
            if wanted != self._known:
                self.filters.change(put=wanted, remove=[key for key in self._known if key not in wanted])
                self._known = wanted
            return self.filters.version

    def close(self) -> None:
        """Look no more; the set stays."""
        self._is_over.set()
        self._thread.join()

    def __enter__(self) -> Following:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close it."""
        self.close()

    def _follow(self, every: float) -> None:
        is_told = False
        while not self._is_over.wait(every):
            try:
                self.refresh()
                is_told = False
            except TocsinError as error:
                if not is_told:
                    _log.warning("%s is not followed at the moment, filters stay as they are: %s", self._address, error)
                is_told = True


def wanted_of(address: Address) -> dict[str, str]:
    """What the consumers of a node ask for, by their names: one filter for each."""
    with closing(Asker(address)) as asker:
        found: list[dict[str, Any]] = json.loads(asker.ask("GET", "/consumers").body)
    wanted = {each["name"]: [text for _, text in each["subscriptions"]] for each in found}
    return {name: _any_of(texts) for name, texts in wanted.items() if texts}


def _any_of(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else " OR ".join(f"({text})" for text in texts)

"""Notes by instant, taken in order: a page for each quarter of a second, and only the page of today is in order.

A heap of a hundred thousand notes is mostly out of the processor's reach, and every note that is taken wanders through
all of it. Here a note is put at the end of its page; a page is sorted when its time has come. Notes of equal instants
come in the order of their numbers.
"""

from __future__ import annotations

import heapq
from bisect import insort
from typing import Generic, TypeVar

from tocsin.composite.times import NEVER

__all__ = ["Calendar"]

T = TypeVar("T")

_PAGE = 18  # bits of an instant in microseconds that lie on one page


class Calendar(Generic[T]):
    """Notes (instant, number, what); no two have the same number."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pages: dict[int, list[tuple[int, int, T]]] = {}
        self._order: list[int] = []  # a heap of the numbers of pages
        self._today: list[tuple[int, int, T]] = []  # the last one comes first
        self._page = -1
        self._count = 0

    def __len__(self) -> int:
        """How many notes there are."""
        return self._count

    def put(self, instant: int, number: int, what: T) -> None:
        """Add a note."""
        self._count += 1
        page = instant >> _PAGE
        if page == self._page and self._today:
            insort(self._today, (instant, number, what), key=_backwards)
            return
        found = self._pages.get(page)
        if found is not None:
            found.append((instant, number, what))
        else:
            self._pages[page] = [(instant, number, what)]
            heapq.heappush(self._order, page)

    def take(self, before: int) -> tuple[int, int, T] | None:
        """Take the first note before an instant, if there is one."""
        order = self._order
        while True:
            today = self._today
            if today and (not order or order[0] > self._page):
                if today[-1][0] >= before:
                    return None
                self._count -= 1
                return today.pop()
            if not order or order[0] << _PAGE >= before:
                return None
            if today:  # an earlier page has come since
                self._pages[self._page] = today
                heapq.heappush(order, self._page)
            self._page = heapq.heappop(order)
            self._today = self._pages.pop(self._page)
            self._today.sort(reverse=True)

    @property
    def next(self) -> int:
        """Before this instant there is no note."""
        first = self._today[-1][0] if self._today else NEVER
        return min(first, self._order[0] << _PAGE) if self._order else first


def _backwards(note: tuple[int, int, object]) -> tuple[int, int]:
    return -note[0], -note[1]

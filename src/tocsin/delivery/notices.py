"""Words from the node to a consumer: they wait until a handle takes them, each told once, never more than so many.

A word may be *lent* to a handle with a buffer elsewhere: it is told when the application there has it; before that it
may be asked back, or comes back when the handle closes. Words are lent, taken and given back in order, so how many is
all that needs saying. Pure state.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Notice", "Notices"]

_MOST_NOTICES = 1000


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A word from the node to a consumer: what kind, about which event, and more for people."""

    kind: str
    id: str
    at: int
    data: dict[str, Any] = {}


class Notices:
    """The words for one consumer, oldest first."""

    def __init__(self, waiting: list[Notice] | None = None) -> None:
        """Begin with what waits."""
        self._waiting = waiting or []
        self._lent: list[tuple[str, Notice]] = []  # to which handle
        self._recalled: list[str] = []  # handles whose oldest word is withdrawn, which they have not heard of
        self._asked: dict[str, str] = {}  # handles that are asked for their words, and for whom; told or not
        self._untold: set[str] = set()

    def __bool__(self) -> bool:
        """Does one wait?"""
        return bool(self._waiting)

    def every(self) -> list[Notice]:
        """All that nobody has in hand, lent ones too."""
        return [notice for _, notice in self._lent] + self._waiting

    def tell(self, notice: Notice) -> None:
        """Leave a word; of very many the oldest are dropped."""
        self._waiting.append(notice)
        while len(self._lent) + len(self._waiting) > _MOST_NOTICES:
            if self._lent:
                self._recalled.append(self._lent.pop(0)[0])
            else:
                self._waiting.pop(0)

    def unsay(self, notice: Notice) -> None:
        """Take back a word that was left just now, unless somebody has it."""
        if notice in self._waiting:
            self._waiting.remove(notice)

    def take(self, lend_to: str | None) -> Notice:
        """The next word; for good, or lent to a handle."""
        notice = self._waiting.pop(0)
        if lend_to is not None:
            self._lent.append((lend_to, notice))
        return notice

    def taken(self, holder: str) -> None:
        """The oldest word lent to a handle is in somebody's hands."""
        mine = next((each for each in self._lent if each[0] == holder), None)
        if mine is not None:
            self._lent.remove(mine)
        if not any(each == holder for each, _ in self._lent):
            self._asked.pop(holder, None)  # there is nothing left to ask for

    def returned(self, holder: str, count: int | None = None) -> None:
        """The newest words lent to a handle, so many or all, wait again."""
        mine = [each for each in self._lent if each[0] == holder]
        back = mine if count is None else mine[max(0, len(mine) - count) :]
        self._lent = [each for each in self._lent if not any(each is other for other in back)]
        self._waiting[:0] = [notice for _, notice in back]

    def release(self, holder: str) -> None:
        """A handle closes: what was lent to it waits again."""
        self.returned(holder)
        self.recalled_from(holder)
        self.asked_of(holder)
        self.asked_for(holder)

    def ask_back(self, handle: str) -> bool:
        """Have words that are lent to others asked back for a handle; was anything?"""
        others = {holder for holder, _ in self._lent} - {handle, *self._asked}
        self._asked.update(dict.fromkeys(others, handle))
        self._untold |= others
        return bool(others)

    @property
    def has_news(self) -> bool:
        """Is a handle to be told that its words are withdrawn, or asked for?"""
        return bool(self._recalled or self._untold)

    def asked_of(self, holder: str) -> bool:
        """Is a handle asked to give back its words? It is told once."""
        is_asked = holder in self._untold
        self._untold.discard(holder)
        return is_asked

    def asked_for(self, holder: str) -> str | None:
        """The handle for which these words were asked back; that is over now."""
        return self._asked.pop(holder, None)

    def recalled_from(self, holder: str) -> int:
        """How many of the oldest words lent to a handle are withdrawn; it is told once."""
        count = self._recalled.count(holder)
        if count:
            self._recalled = [each for each in self._recalled if each != holder]
        return count

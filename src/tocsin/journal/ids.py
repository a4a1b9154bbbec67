"""Which (source, id) were stored lately, so that an event sent twice is stored once.

A dictionary from a 64-bit hash to an offset, in the order of offsets; nothing of it is on disk, since the blocks hold
the ids and opening a journal reads the newest of them. A hash that is found is only a hint: the stored event is read
and compared, so a collision of hashes costs a look and never an event. For the same reason a process that opens one
file again and again may hand them from one opening to the next; then only what came since is read.

Used by the writer only, one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from tocsin.clock import SECOND
from tocsin.journal import contract

__all__ = ["Identity", "Ids"]

Identity = tuple[str, str, int]
"""Source, id and arrival of a stored event."""


class Ids:
    """The ids remembered, and how far back."""

    def __init__(self, look: Callable[[int], Identity | None], recall: Callable[[Ids], None] | None = None) -> None:
        """Begin empty.

        Args:
            look: reads what is stored at an offset, None if that is not kept any more.
            recall: brings what is stored already, by `stamp` and `load`; called once, by `complete`. None: nothing is.
        """
        self._look = look
        self._recall = recall
        self.file = ""
        """Which file they are of: its id."""
        self.upto = 0
        """Up to this offset all that must be held is."""
        self.known: dict[int, int] = {}
        """Hash → the newest offset with it. Insertion order is offset order: both ends can be taken off."""
        self._clashes: dict[tuple[str, str], int] = {}
        # (first offset, arrival) about once a second of journal time: how far back the time window reaches. Coarse on
        # purpose, since a run per request would weigh more than the ids; `find` compares exact times.
        self._seconds: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """How many are held: at least those that must be, somewhat more before a clearing."""
        return len(self.known)

    @property
    def is_complete(self) -> bool:
        """Is everything held that must be?"""
        return self._recall is None

    def follow(self, file: str, look: Callable[[int], Identity | None], recall: Callable[[Ids], None]) -> None:
        """Serve a file that was opened, for the first time or again."""
        self.file, self._look, self._recall = file, look, recall

    def complete(self) -> None:
        """Hold what must be, reading it if that was put off. Before anything is looked up or added."""
        if self._recall is not None:
            self._recall(self)
            self._recall = None  # not before: what could not be read is read when it is asked for again

    def find(self, code: int, source: str, id: str, arrived: int, coming: int) -> int | None:
        """The offset of an event stored already, if it is remembered; else make room for it under `code`.

        Args:
            code: `hash((source, id))`, which is in `known`.
            source: the event's source.
            id: the event's id.
            arrived: when it arrived.
            coming: the offset it gets if it is new.
        """
        for offset in (self.known[code], self._clashes.get((source, id))):
            if offset is None or coming - offset > contract.DEDUP_MOST:
                continue
            there = self._look(offset)
            if there is None or there[0] != source or there[1] != id:
                continue
            if coming - offset <= contract.DEDUP_LEAST or arrived - there[2] <= contract.DEDUP_SECONDS * SECOND:
                return offset
        held = self.known[code]
        there = self._look(held)
        if there is not None and (there[0] != source or there[1] != id):
            self._clashes[there[0], there[1]] = held  # the newer one takes the hash, the older keeps its full name
        del self.known[code]  # a later insertion goes to the end, where its offset belongs
        return None

    def stamp(self, first: int, arrived: int) -> None:
        """Note that events from offset `first` on arrived at a time."""
        if not self._seconds or arrived - self._seconds[-1][1] >= SECOND:
            self._seconds.append((first, arrived))

    def back_to(self, head: int) -> None:
        """Forget what was added above an offset: it was not stored after all."""
        known = self.known
        while known:
            code, offset = known.popitem()
            if offset <= head:
                known[code] = offset
                break
        self._clashes = {key: offset for key, offset in self._clashes.items() if offset <= head}
        while self._seconds and self._seconds[-1][0] > head:
            self._seconds.pop()

    def clear_old(self, head: int, arrived: int) -> None:
        """After a commit: forget what need not be remembered, once that is worth the walk."""
        if not self.is_complete:
            return
        self.upto = head
        seconds, since = self._seconds, arrived - contract.DEDUP_SECONDS * SECOND
        # An entry covers what arrived up to a second after it, so it goes when the next one is too old as well.
        while len(seconds) > 1 and seconds[1][1] < since:
            seconds.popleft()
        oldest = seconds[0][0] if seconds else head + 1
        lowest = max(min(head + 1 - contract.DEDUP_LEAST, oldest), head + 1 - contract.DEDUP_MOST)
        known = self.known
        # Known offsets are nearly consecutive, so the difference tells how many are too old. Taking single entries off
        # the front of a dictionary walks over all the holes before them: only an eighth at a time is worth it.
        surplus = len(known) - (head + 1 - lowest)
        if surplus * 8 > len(known) and surplus > 1000:
            for code in [code for code, offset in islice(known.items(), surplus) if offset < lowest]:
                del known[code]
            self._clashes = {key: offset for key, offset in self._clashes.items() if offset >= lowest}

    def load(self, first: int, identities: Iterable[tuple[str, str]]) -> None:
        """Remember stored events from offset `first` on; call it in the order of offsets."""
        known = self.known
        for offset, key in enumerate(identities, first):
            code = hash(key)
            known.pop(code, None)  # hardly ever a collision; if it is one, the older id is forgotten early
            known[code] = offset

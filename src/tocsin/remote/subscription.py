"""A subscription of a remote bus: what came of it, how much more may come, and how it goes on after a connection.

It hands out of its buffer, so that it is as if the node itself were asked. A durable consumer's place is at the node.
Of one that is not durable nobody but this remembers where it was: it begins anew at the lowest offset that was not
handed out, and passes over what was.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from tocsin.delivery.handles import Delivery, Post, Stream
from tocsin.delivery.owners import Options
from tocsin.errors import TocsinError
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.net.pumps import NOTICE, REPLAYED
from tocsin.remote.buffer import Buffer

__all__ = ["AHEAD", "Opened", "RemoteSubscription", "Sent"]

AHEAD = 1000
"""Deliveries that a client asks for ahead, at most."""
_LONGEST_PAUSE = 5.0  # seconds that one is waited for who has looked and found nothing
_TIDY = 4096  # offsets handed out before those that need no remembering are forgotten
_REMEMBERED = 100_000  # and that are remembered at most: what was handed out before may come again


class Sent(msgspec.Struct, frozen=True, gc=False):
    """What the node knows a delivery by: its number, on the connection of a generation."""

    number: int
    generation: int


class Opened(msgspec.Struct):
    """What the node says of a subscription that it has opened."""

    id: str
    consumer: str
    seam: int
    start: int
    options: Options


class RemoteSubscription(Stream):
    """An open subscription to a node elsewhere."""

    def __init__(self, post: Post, asked: frames.Subscribe, pass_over: Callable[[Any, int], None]) -> None:
        """Prepare; `opened` follows.

        Args:
            post: what handles ask.
            asked: the frame that opens it.
            pass_over: told of what has come and was handed out before.
        """
        super().__init__(post, "", "")
        self.sub, self.asked, self._pass_over = asked.sub, asked, pass_over
        self.options = Options()
        self.error: TocsinError | None = None
        """Why it has ended, if that was not asked for."""
        self.is_shared = False
        """Do others get of the same? Then the node is told when somebody waits here."""
        self.hungry = False
        """Was somebody told that there is nothing, and has nothing come since?"""
        self.notices: deque[tuple[int, Delivery]] = deque()
        self.troubles: deque[TocsinError] = deque()
        self.buffer = Buffer()
        self.owed: list[int] = []
        """Numbers that the node has asked for and somebody here waited for; if they took something else, it is told."""
        self._looked = self._pause = (
            0.0  # when somebody looked here and found nothing, and how long after the last time
        )
        self._bounced: set[int] = (
            set()
        )  # offsets that came since somebody looked, and went back before they looked again
        self._granted = asked.credit
        self._early: list[tuple[frames.Deliver, int]] = []  # what came before the answer that says how to treat it
        self._low = 0  # everything that waits for it, and was not sent, has this offset or a higher one
        self._seam = 0
        self._handed: dict[int, None] = {}  # offsets handed out that are not below all that waits
        self._skipped: set[int] = set()  # handed out before a connection was lost: they need not be again

    @property
    def ahead(self) -> int:
        """How many deliveries may wait here."""
        return min(AHEAD, self.options.max_in_flight)

    def opened(self, about: Opened) -> None:
        """The node has opened it."""
        if not self.id:
            self._low, self._seam = about.start, about.seam
        self.id, self.consumer, self.options = about.id, about.consumer, about.options
        self.is_shared |= self.options.group is not None
        early, self._early = self._early, []
        for frame, generation in early:
            self.receive(frame, generation)

    def again(self, n: int) -> frames.Subscribe:
        """The frame that opens it on a new connection: where it was, or before the lowest that was not handed out."""
        past = None
        if not self.options.durable:
            self._low = min([self._low, *self.buffer.offsets()])
            past = f"since:{self._low}"
            self._skipped = {offset for offset in self._handed if offset >= self._low}
        self.lose()
        self._granted = self.ahead
        return msgspec.structs.replace(self.asked, n=n, past=past, replay=False, credit=self.ahead)

    def lose(self) -> None:
        """What is in the buffer is the node's again."""
        self.buffer.clear()
        self.notices.clear()
        self.owed = []
        self._granted = 0

    def grant(self) -> int:
        """Credit to give now; few large grants rather than many small ones."""
        wanted = self.ahead - len(self.buffer) - len(self.notices) - self._granted
        if self.closed or wanted < max(1, self.ahead // 4):
            return 0
        self._granted += wanted
        return wanted

    def receive(self, frame: frames.Deliver, generation: int) -> None:
        """Deliveries have come."""
        if not self.id:
            self._early.append((frame, generation))
            return
        options = self.options
        for number, attempt, flags, offset, arrived, part in frame.items:
            self._granted -= 1
            event = MSGPACK.read_event(part, offset or None, arrived)
            if flags & NOTICE:
                self.notices.append((number, Delivery(self, event, None)))
            elif offset in self._skipped and attempt == 1:
                self._pass_over(self, number)
            else:
                is_replayed = bool(flags & REPLAYED) and (options.durable or offset <= self._seam)
                self.buffer.put(number, Delivery(self, event, Sent(number, generation), attempt, is_replayed), options)
        if frame.low:
            self._low = frame.low
        self.hungry = False
        self.wake()

    def recall(self, frame: frames.Recall) -> list[int]:
        """The node wants some of the buffer back; returns those that are given, as is credit for something else.

        If it only asks, what somebody here waits for is not given: it is as good as taken. Nor is, the second time and
        for a while, what has come because somebody looked: of several that look in turn none would ever find it.
        """
        numbers = frame.items
        if frame.ask:
            spoken = {number for number, _ in self.notices}
            here = [each for each in dict.fromkeys([*self.owed, *numbers]) if each in self.buffer or each in spoken]
            is_expected = self.expected() > 0
            has_bounced = any(self.buffer.offset(each) in self._bounced for each in here)
            kept = max(self.waits, int(is_expected and has_bounced))
            spare = max(0, len(self.buffer) + len(spoken) - kept)
            numbers, self.owed = here[:spare], here[spare:]
            if is_expected:
                self._bounced = {offset for each in here if (offset := self.buffer.offset(each))}
        given = [number for number in numbers if self.buffer.drop(number)]
        if self.notices:
            back = set(numbers)
            given += [number for number, _ in self.notices if number in back]
            self.notices = deque(each for each in self.notices if each[0] not in back)
        self._granted += len(given)
        return given

    def looked(self, now: float) -> None:
        """Somebody has looked, and there was nothing."""
        self._pause, self._looked = now - self._looked, now

    def expected(self) -> float:
        """Seconds for which it is likely that who has looked looks again."""
        return self._looked + min(2 * self._pause, _LONGEST_PAUSE) - time.monotonic()

    def handed_out(self, offset: int) -> None:
        """Remember what need not come again, if the node does not."""
        if not self.options.durable:
            self._handed[offset] = None
            if len(self._handed) % _TIDY == 0:
                kept = [each for each in self._handed if each >= self._low]
                self._handed = dict.fromkeys(kept[-_REMEMBERED:])

    def given_back(self, offset: int) -> None:
        """It must come again."""
        self._handed.pop(offset, None)
        if not self.options.durable:
            self._low = min(self._low, offset)

    def end(self, error: TocsinError | None) -> None:
        """There is nothing more from it."""
        self.closed, self.error = True, error
        self.lose()
        self.wake()

    def poll(self) -> Delivery | None:
        """The next delivery if there is one here at this moment."""
        if self.closed and self.error is not None:
            raise self.error
        return super().poll()

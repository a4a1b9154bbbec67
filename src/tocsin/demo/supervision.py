"""Supervision of measuring machines, the application DS3 was built for: who is normal, stopped perhaps, or inactive.

    machine.start, machine.value ─▶ normal ─ no value within the limit ─▶ possible stop
             ▲                        │                                        │
             └── the next value ──────┼────────────────────────────────────────┘
                                      └─ machine.end ─▶ inactive, which is no stop

Silence is nothing anybody publishes, so it is a definition: a wait that every word of a machine begins anew. The other
two are words of the machine itself. `Supervision` folds them, in journal order, into what an overview shows.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tocsin.model import Event

__all__ = ["BACK_TO_NORMAL", "FILTER", "LIMIT", "POSSIBLE_STOP", "Change", "State", "Supervision"]

State = Literal["normal", "possible stop", "inactive"]

LIMIT: Final = 3
"""Seconds without a value after which a machine may have stopped; they send one a second."""

POSSIBLE_STOP: Final = (
    f"PLUS([type IN ('machine.start', 'machine.value', 'machine.end')] AS last, {LIMIT} SECONDS) "
    "BY machine WHERE last.type <> 'machine.end'"
)
BACK_TO_NORMAL: Final = (
    "NOT(possible_stop AS stop, [type = 'machine.end'] AS ended, [type = 'machine.value'] AS value) BY machine"
)
FILTER: Final = "type IN ('machine.start', 'machine.value', 'machine.end', 'possible_stop')"
"""What an overview must hear, in journal order."""


class Change(NamedTuple):
    """A machine is something else than it was."""

    machine: str
    before: State | None
    now: State


class Supervision:
    """The overview: fold events, in journal order, into a state for each machine."""

    def __init__(self) -> None:
        """Begin: no machine is known."""
        self.states: dict[str, State] = {}
        self.values: dict[str, float] = {}
        """The last value of each."""
        self.offset = 0
        """Of the last event heard."""
        self._heard: dict[str, int] = {}  # the offset of each one's last word

    def hear(self, event: Event) -> Change | None:
        """Take note of an event; what has changed, if anything has."""
        now: State
        self.offset = event.offset or 0
        if event.type == "possible_stop":
            machine = str(event.data["key"]["machine"])
            # A wait that ended while a value was on its way: the stop is told behind the value that ended it.
            if event.data["parts"][0]["offset"] != self._heard.get(machine):
                return None
            now = "possible stop"
        else:
            machine = str(event.data["machine"])
            self._heard[machine] = event.offset or 0
            now = "inactive" if event.type == "machine.end" else "normal"
            if event.type == "machine.value":
                self.values[machine] = float(event.data["value"])
        before = self.states.get(machine)
        if before == now:
            return None
        self.states[machine] = now
        return Change(machine, before, now)

"""The exception tree: every error says what, where and how to mend it.

    TocsinError                 catch this to catch everything of ours
    ├── EventError              a bad event; `.field` names the field
    │   └── NotAdvertisedError  not what its publisher has advertised, and it must be (`strict_advertise`)
    ├── FilterError             a bad filter; `.position` is the offset in its text
    │   ├── FilterLimitError    too long, too deep or growing too large; `.limit` names the limit
    │   ├── FilterTypeError     refused by a declared schema: unknown name, wrong type, can match nothing
    │   └── BadFiltersError     some filters of many are bad; `.filters` lists them all
    ├── FilterSetError          a filter set on disk is missing, damaged, or is asked for what it has not; `.path`
    ├── SchemaError             a bad schema declaration
    ├── MatcherError            misuse of a matcher: unknown key, damaged bytes
    ├── JournalError            the journal cannot do what was asked; `.path` names the file
    │   ├── JournalLockedError  another process writes to it; `.holder` says which
    │   ├── JournalDamagedError bytes that are not what was written; `.first` and `.last` are the offsets concerned
    │   ├── JournalFullError    no space left, or the file is read-only: nothing was stored
    │   ├── TrimmedError        the range asked for is no longer kept; `.first` is the lowest offset that is
    │   ├── WriterError         a writer's batch does not follow what is stored: the name is another's, or it is late
    │   └── LakeError           the archive cannot be used: another journal's, or somebody else writes to it
    ├── OptionError             an option of the Spark source or sink is missing, unknown or wrong; `.field` names it
    ├── SessionError            Spark cannot run here, or this session cannot serve
    ├── OverloadError           the node could not take it in time: nothing was stored, try again
    ├── BoundError              a bound on the past that means nothing
    ├── ConsumerError           no such consumer, or one that was made with other options
    ├── DeliveryError           a delivery that is not yours, or not open any more
    ├── UnknownEventError       no such event, or an id that several sources use
    ├── CancelError             no right to cancel this event
    ├── PeerError               discovery, requests or groups cannot do this: a bad name, or more than is allowed
    │   ├── RequestError        a request without the answer asked for; `.replies` has what came
    │   │   ├── NoServer        nobody serves this: nobody was asked
    │   │   ├── RequestTimeout  no answer in time; it is a TimeoutError, too
    │   │   ├── RequestFailed   the server's handler raised; the message says what
    │   │   └── ServerLost      the server was gone before it answered, and there was no other
    │   └── GroupError          not a member of the group, or one already
    ├── NetworkError            a node that cannot be reached, or the connection to it
    │   ├── UnauthorizedError   the token is missing, wrong, expired or revoked
    │   ├── ForbiddenError      you are known, but may not do this
    │   ├── ProtocolError       bytes that are no frame, or more than a limit allows
    │   ├── ConnectionLostError the connection was lost, and what was asked cannot be repeated, or not any longer
    │   └── ReplacedError       a newer session has your name: this one has ended
    ├── TokenError              a token cannot be made like this, or the file of tokens cannot be read; `.field`
    └── RuleError               a rule or an agent that cannot be made like this, or an action that failed
        └── RuleDepthError      rules trigger rules trigger rules: deeper than allowed

An error is the same object embedded and over the wire: `as_dict()` gives the wire form
`{error, message, field, position, help}`. It does not carry secrets or whole payloads.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "BadFilter",
    "BadFiltersError",
    "BoundError",
    "CancelError",
    "ConnectionLostError",
    "ConsumerError",
    "DefinitionError",
    "DeliveryError",
    "EventError",
    "FilterError",
    "FilterLimitError",
    "FilterSetError",
    "FilterTypeError",
    "ForbiddenError",
    "GroupError",
    "JournalDamagedError",
    "JournalError",
    "JournalFullError",
    "JournalLockedError",
    "LakeError",
    "MatcherError",
    "NetworkError",
    "NoServer",
    "NotAdvertisedError",
    "OptionError",
    "OverloadError",
    "PeerError",
    "ProtocolError",
    "ReplacedError",
    "RequestError",
    "RequestFailed",
    "RequestTimeout",
    "RuleDepthError",
    "RuleError",
    "SchemaError",
    "ServerLost",
    "SessionError",
    "TocsinError",
    "TokenError",
    "UnauthorizedError",
    "TextError",
    "TrimmedError",
    "UnknownEventError",
    "WriterError",
    "from_dict",
]


class TocsinError(Exception):
    """Base of all errors raised by Tocsin.

    Attributes:
        message: what is wrong, one sentence.
        field: the event field concerned, if any.
        position: offset in the text concerned (0 = first character), if any.
        help: how to mend it, if we can tell.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        position: int | None = None,
        help: str | None = None,
    ) -> None:
        """Build the error; `str(error)` shows message and help."""
        super().__init__(message)
        self.message = message
        self.field = field
        self.position = position
        self.help = help

    def __str__(self) -> str:
        """Return the message, and the help behind it."""
        return f"{self.message}; {self.help}" if self.help else self.message

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the wire form."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "field": self.field,
            "position": self.position,
            "help": self.help,
        }


class EventError(TocsinError):
    """An event, or the text of one, is not acceptable; nothing of it was kept."""


class NotAdvertisedError(EventError):
    """An event is not among what its publisher has advertised, which it must be here; nothing of it was kept."""


class TextError(TocsinError):
    """A text is not in its language; `str(error)` shows it with a caret under the offending place, where known."""

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        position: int | None = None,
        field: str | None = None,
        help: str | None = None,
    ) -> None:
        """Build the error for `text`, pointing at `position` in it."""
        super().__init__(message, field=field, position=position, help=help)
        self.text = text

    def __str__(self) -> str:
        """Return message, help, and the place in the text with a caret under it."""
        plain, place = super().__str__(), self.place()
        return f"{plain}\n{place}" if place else plain

    def place(self) -> str:
        """Return the line concerned and, below it, a caret; empty if that is not known."""
        if self.text is None or self.position is None:
            return ""
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : None if line_end < 0 else line_end]
        column = self.position - line_start
        # A long line is cut to a window around the caret: an error must fit a terminal.
        left = max(0, column - 60)
        window = line[left : left + 100]
        return f"  {window}\n  {' ' * (column - left)}^"


class FilterError(TextError):
    """A filter text is not in the language."""


class DefinitionError(TextError):
    """A composite event cannot be defined, or not like this; what is defined stays as it was."""


class FilterLimitError(FilterError):
    """A filter is longer, deeper or larger in normal form than allowed; `limit` names which."""

    def __init__(
        self, message: str, *, limit: str, text: str | None = None, position: int | None = None, help: str | None = None
    ) -> None:
        """Build the error for the limit named `limit`."""
        super().__init__(message, text=text, position=position, help=help)
        self.limit = limit


class FilterTypeError(FilterError):
    """A filter is in the language but a declared schema refuses it."""


class BadFilter(NamedTuple):
    """One filter of many that is not in the language."""

    key: str | int | None
    text: str | None
    message: str
    position: int | None

    def __str__(self) -> str:
        """Return key, what is wrong and where, and the beginning of the text."""
        where = "" if self.position is None else f" at position {self.position}"
        text = "" if self.text is None else f": {self.text if len(self.text) <= 80 else self.text[:77] + '...'}"
        return f"{self.key!r}: {self.message}{where}{text}"


class BadFiltersError(FilterError):
    """Some filters of many are bad, so none was used; `filters` lists all of the bad ones."""

    SHOWN = 10

    def __init__(self, filters: Sequence[BadFilter], *, of: int, help: str | None = None) -> None:
        """Build the error for these, of so many in all."""
        are = "is" if len(filters) == 1 else "are"
        super().__init__(f"{len(filters):,} of {of:,} filters {are} bad", help=help)
        self.filters = tuple(filters)

    def __str__(self) -> str:
        """Return message and help, and the first ten below."""
        lines = [super().__str__(), *(f"  {each}" for each in self.filters[: self.SHOWN])]
        if len(self.filters) > self.SHOWN:
            lines.append(f"  and {len(self.filters) - self.SHOWN:,} more")
        return "\n".join(lines)


class FilterSetError(TocsinError):
    """A filter set on disk cannot do what was asked; what it holds is as it was. `path` names its directory."""

    def __init__(self, message: str, *, path: str, help: str | None = None) -> None:
        """Build the error for the set at `path`."""
        super().__init__(message, help=help)
        self.path = path


class SchemaError(TocsinError):
    """A schema declaration is not acceptable; `position` is the line (1 = first) where known."""


class MatcherError(TocsinError):
    """A matcher was misused: no such key, or bytes that are not a matcher's."""


class JournalError(TocsinError):
    """The journal cannot do what was asked; what it holds is as it was. `path` names the file, if there is one."""

    def __init__(self, message: str, *, path: str | None = None, help: str | None = None) -> None:
        """Build the error for the journal at `path`."""
        super().__init__(message, help=help)
        self.path = path


class JournalLockedError(JournalError):
    """Another process has the journal open for writing; `holder` says which."""

    def __init__(self, message: str, *, path: str, holder: str, help: str | None = None) -> None:
        """Build the error, naming the holder."""
        super().__init__(message, path=path, help=help)
        self.holder = holder


class JournalDamagedError(JournalError):
    """Stored bytes are not what was written; `first` and `last` are the offsets concerned."""

    def __init__(
        self, message: str, *, path: str | None = None, first: int = 0, last: int = 0, help: str | None = None
    ) -> None:
        """Build the error for a range of offsets."""
        super().__init__(message, path=path, help=help)
        self.first, self.last = first, last


class JournalFullError(JournalError):
    """There is no space left, or the file cannot be written to: nothing was stored."""


class TrimmedError(JournalError):
    """The range asked for is no longer kept; `first` is the lowest offset that is."""

    def __init__(self, message: str, *, first: int, path: str | None = None, help: str | None = None) -> None:
        """Build the error, saying what is still there."""
        super().__init__(message, path=path, help=help)
        self.first = first


class WriterError(JournalError):
    """A writer's batch does not follow what is stored under its name: that is another's, or later ones are stored."""


class LakeError(JournalError):
    """The archive of a journal cannot be used: it is another journal's, or another archiver is at work on it."""


class OptionError(TocsinError):
    """An option of the Spark source or sink is missing, unknown or means nothing; `field` names it."""


class SessionError(TocsinError):
    """Spark cannot run on this machine as it is, or a session is not one that Tocsin can work with."""


class OverloadError(TocsinError):
    """The node could not take it in time: nothing was stored; try again, or more slowly."""


class BoundError(TocsinError):
    """A bound on the past that means nothing."""


class ConsumerError(TocsinError):
    """There is no such consumer or subscription, or it was made with other options."""


class DeliveryError(TocsinError):
    """A delivery that is not yours to settle, or was settled or withdrawn already."""


class UnknownEventError(TocsinError):
    """There is no such event, or several sources use its id."""


class CancelError(TocsinError):
    """You have no right to cancel this event."""


class PeerError(TocsinError):
    """Discovery, requests or groups cannot do this: a name that is none, or more than a session may have."""


class RequestError(PeerError):
    """A request did not get the answer it asked for; `replies` has those that came, in order of servers."""

    replies: Sequence[Any] = ()


class NoServer(RequestError):
    """Nobody serves this resource: nobody was asked."""


class RequestTimeout(RequestError, TimeoutError):
    """No answer came in time. The server may still be at work; what it says is dropped."""


class RequestFailed(RequestError):
    """The server's handler raised; the message says what."""


class ServerLost(RequestError):
    """The server was gone before it answered, and there was no other to ask. It may have done the work."""


class GroupError(PeerError):
    """Not a member of the group, or one already."""


class NetworkError(TocsinError):
    """A node cannot be reached, or the connection to it does not do what it should."""


class UnauthorizedError(NetworkError):
    """Who you are could not be made sure of: the token is missing, wrong, expired or revoked."""


class ForbiddenError(NetworkError):
    """You are known, but may not do this."""


class ProtocolError(NetworkError):
    """What came over the network is no frame of the protocol, or more than one of its limits allows."""


class ConnectionLostError(NetworkError):
    """The connection was lost and did not come back in time. What was asked may have been done."""


class ReplacedError(NetworkError):
    """A newer session has connected under the same name, so this one has ended."""


class TokenError(TocsinError):
    """A token cannot be made like this, or the file that tokens are kept in cannot be read: then nobody is let in."""


class RuleError(TocsinError):
    """A rule or an agent cannot be made like this, or an action says that it failed."""


class RuleDepthError(RuleError):
    """Rules trigger rules that trigger rules, deeper than allowed: these were not run."""


# -- the way back


_UNKNOWN: Mapping[str, Any] = {
    "text": None,
    "path": None,
    "limit": "",
    "holder": "",
    "first": 0,
    "last": 0,
    "filters": (),
}
"""What a class has beside the wire form stays where it was raised, and reads as this elsewhere."""


def from_dict(said: Mapping[str, Any]) -> TocsinError:
    """Undo `as_dict`: an error of its own class if that is known here, else a `TocsinError`."""
    kind = _classes().get(str(said.get("error")), TocsinError)
    error = kind.__new__(kind)
    field, position, help = said.get("field"), said.get("position"), said.get("help")
    TocsinError.__init__(error, str(said.get("message")), field=field, position=position, help=help)
    for each in kind.__mro__:  # what their constructors would have set
        if issubclass(each, TocsinError):
            for name in inspect.signature(each.__init__).parameters.keys() & _UNKNOWN.keys():
                setattr(error, name, _UNKNOWN[name])
    return error


def _classes() -> dict[str, type[TocsinError]]:
    """Every error of ours by name."""
    found: dict[str, type[TocsinError]] = {}
    kinds: list[type[TocsinError]] = [TocsinError]
    while kinds:
        kind = kinds.pop()
        if kind.__module__.startswith("tocsin."):
            found.setdefault(kind.__name__, kind)
        kinds += kind.__subclasses__()
    return found

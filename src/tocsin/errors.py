"""The exception tree: every error says what, where and how to mend it.

    TocsinError                 catch this to catch everything of ours
    ├── EventError              a bad event; `.field` names the field
    ├── FilterError             a bad filter; `.position` is the offset in its text
    │   ├── FilterLimitError    too long, too deep or growing too large; `.limit` names the limit
    │   └── FilterTypeError     refused by a declared schema: unknown name, wrong type, can match nothing
    ├── SchemaError             a bad schema declaration
    └── MatcherError            misuse of a matcher: unknown key, damaged bytes

An error is the same object embedded and over the wire: `as_dict()` gives the wire form
`{error, message, field, position, help}`. It does not carry secrets or whole payloads.
"""

from __future__ import annotations

__all__ = [
    "EventError",
    "FilterError",
    "FilterLimitError",
    "FilterTypeError",
    "MatcherError",
    "SchemaError",
    "TocsinError",
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


class FilterError(TocsinError):
    """A filter text is not in the language.

    `str(error)` shows the text with a caret under the offending place when the text is known.
    """

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
        plain = super().__str__()
        if self.text is None or self.position is None:
            return plain
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : None if line_end < 0 else line_end]
        column = self.position - line_start
        # A long line is cut to a window around the caret: an error must fit a terminal.
        left = max(0, column - 60)
        window = line[left : left + 100]
        return f"{plain}\n  {window}\n  {' ' * (column - left)}^"


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


class SchemaError(TocsinError):
    """A schema declaration is not acceptable; `position` is the line (1 = first) where known."""


class MatcherError(TocsinError):
    """A matcher was misused: no such key, or bytes that are not a matcher's."""

"""Why a schema refuses a filter, in words: what is declared, what was found, and how to mend it.

`admission` decides; this module only finds the words once it has. Everything here takes conditions and declarations and
gives text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tocsin.filters import syntax, values
from tocsin.filters.advice import near, shown
from tocsin.filters.printer import print_condition, print_scalar
from tocsin.filters.syntax import Condition, Literal, Scalar, Value
from tocsin.model import ACK, CANCEL, CLASSIFICATION, ENVELOPE, MAX_PRIORITY, MIN_PRIORITY

if TYPE_CHECKING:
    from tocsin.filters.schema import Attribute

__all__ = ["KIND_NAMES", "conjunction_words", "envelope_words", "likely_name", "mend", "outside", "suggestion"]

KIND_NAMES = {
    values.NUMBER: "a number",
    values.TEXT: "a text",
    values.BOOLEAN: "a boolean",
    values.TIME: "a timestamp",
    values.OTHER: "an array",
}
_ENVELOPE = {
    "priority": f"a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}",
    "offset": "a whole number from 1",
    "ttl": "a number above 0",
    "persistent": "a boolean",
    **dict.fromkeys(["time", "arrived"], "a timestamp"),
    "ack": f"one of {', '.join(map(repr, ACK))}",
    "cancel": f"one of {', '.join(map(repr, CANCEL))}",
    "classification": f"one of {', '.join(map(repr, CLASSIFICATION))}",
}
_MAX_NAMES = 12


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which name may have been meant, or which there are."""
    names = sorted(known)
    if likely := likely_name(name, names):
        return f"did you mean {likely}?"
    more = ", …" if len(names) > _MAX_NAMES else ""
    return f"declared are {', '.join(names[:_MAX_NAMES])}{more}" if names else "nothing is declared"


def likely_name(name: str, known: Iterable[str]) -> str | None:
    """The known name this is a slip for: in other letters, the last part of a path, or almost alike."""
    names = list(known)
    inside = [other for other in names if other.endswith("." + name)]
    return inside[0] if len(inside) == 1 else near(name, names)


def envelope_words(name: str) -> str | None:
    """What an event can hold in this field of its envelope; None if it is no such field."""
    return _ENVELOPE.get(name, "one text, not empty") if name in ENVELOPE else None


def conjunction_words(parts: list[Condition]) -> str:
    """Name conditions that together leave nothing: `a, b and c`."""
    texts = [shown(print_condition(part), 80) for part in parts]
    texts = [f"({text})" if isinstance(part, syntax.Or) else text for part, text in zip(parts, texts, strict=True)]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def outside(test: Condition, attribute: Attribute) -> str:
    """Say which constant of a test leaves what is declared: a bound, or a value like one of the enumeration."""
    for constant in _constants(test):
        if isinstance(constant, str) and attribute.values:
            likely = near(constant, [value for value in attribute.values if isinstance(value, str)])
            if likely is not None and likely != constant:
                return f"; did you mean {print_scalar(likely)}?"
        if isinstance(constant, bool) or not isinstance(constant, int | float) or attribute.values:
            continue
        for bound, name, beyond in (
            (attribute.low, "minimum", attribute.low is not None and constant < attribute.low),
            (attribute.high, "maximum", attribute.high is not None and constant > attribute.high),
        ):
            if beyond:
                return f", and {print_scalar(constant)} is {'below' if name == 'minimum' else 'above'} that"
            if constant == bound:
                return f", and {print_scalar(constant)} is its {name}"
    return ""


def mend(constant: Value, other: Value, kinds: frozenset[str]) -> str | None:
    """Say how to write a constant that is compared with `other`, which is of one of `kinds`."""
    if not isinstance(constant, Literal) or len(kinds - {values.TEXT}) > 1:
        return None
    value = constant.value
    if values.BOOLEAN in kinds:
        return "write TRUE or FALSE"
    if values.TIME in kinds:
        return "write a moment with its zone: TIMESTAMP '2026-11-15T08:00:00Z'"
    if values.OTHER in kinds and isinstance(other, syntax.Field):
        return f"ask an array with array_contains({'.'.join(other.path)}, {print_scalar(value)})"
    if values.NUMBER in kinds and isinstance(value, str):
        return f"write the number without quotes: {value}" if _reads_as_number(value) else None
    if values.TEXT in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return f"write the text in quotes: {print_scalar(str(value))}"
    return None


def _reads_as_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and len(text) <= 20


def _constants(test: Condition) -> Iterator[Scalar]:
    """The constants a test compares with."""
    sides: tuple[Value, ...] = ()
    if isinstance(test, syntax.Not):
        yield from _constants(test.condition)
    elif isinstance(test, syntax.Compare):
        sides = (test.left, test.right)
    elif isinstance(test, syntax.Between):
        sides = (test.low, test.high)
    elif isinstance(test, syntax.In):
        sides = test.items
    yield from (side.value for side in sides if isinstance(side, Literal))

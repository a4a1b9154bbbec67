"""What users give as filters, one at a time: a key and a text; good, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tocsin.errors import BadFilter, FilterError, MatcherError
from tocsin.filters.filter import Filter
from tocsin.filters.index.registry import Key, check_key

__all__ = ["checked", "good_ones", "kind_of"]


def checked(key: object, given: object) -> Filter | BadFilter:
    """The filter, or what is wrong with it or its key."""
    named = key if isinstance(key, str | int) else None
    text = given.text if isinstance(given, Filter) else given if isinstance(given, str) else None
    try:
        check_key(key)
        kind_of([named])
        return given if isinstance(given, Filter) else Filter(given)  # type: ignore[arg-type]
    except FilterError as error:
        return BadFilter(named, text, _message(error), error.position)
    except MatcherError as error:
        return BadFilter(named, text, _message(error), None)


def _message(error: FilterError | MatcherError) -> str:
    return f"{error.message}; {error.help}" if error.help else error.message


def good_ones(given: Iterable[tuple[Key, object]], bad: list[BadFilter]) -> Iterator[tuple[Key, Filter]]:
    """Those that are good; the others go to the list."""
    for key, each in given:
        found = checked(key, each)
        if isinstance(found, Filter):
            yield key, found
        else:
            bad.append(found)


def kind_of(keys: Iterable[object]) -> type[str] | type[int] | None:
    """The one kind all keys are of; None without any.

    Raises:
        MatcherError: keys of two kinds, or of more than 64 bits: no column holds them.
    """
    kinds = set(map(type, keys))
    if not kinds:
        return None
    if kinds == {str}:
        return str
    if kinds != {int}:
        raise MatcherError(
            "some keys are text and some are whole numbers: a column holds one kind", help="use str(key) for all"
        )
    for key in keys:
        if not -(2**63) <= key < 2**63:  # type: ignore[operator]
            raise MatcherError(f"the key {key} has more than 64 bits", help="use a text")
    return int

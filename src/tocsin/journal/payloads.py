"""The column `data`: the journal's bytes ↔ JSON text, and the other types a user's schema may ask for.

    STRING                 JSON text. A text payload is a JSON string, a binary one a data URL: `data:;base64,…`
    VARIANT                the value; a binary payload is BINARY
    STRUCT, MAP, ARRAY     the value's members, read as `from_json` reads them in PERMISSIVE mode

Promises:
    - JSON is handed on as it is, without copying: a batch in which every payload is JSON costs nothing.
    - `from_text(to_text(data))` is `data`, byte for byte.
    - Nothing in a payload can fail a query: what does not fit its type is NULL. A member that does not fit makes its
      array or map NULL; of a STRUCT it is the one field. A payload that is no object is a STRUCT of NULLs.
Does not promise:
    - How a number is spelt that becomes STRING.
    - All of `from_json`: a TIMESTAMP is read from text as filters read it (RFC 3339), a number beyond the range of a
      small integer type is NULL, and DATE, DECIMAL, BINARY and intervals are refused: take them as STRING and cast.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tocsin.errors import EventError, SchemaError
from tocsin.filters.values import text_as_time
from tocsin.journal.variants import encode, is_variant
from tocsin.payload import content_kind

__all__ = ["Reader", "from_text", "reader", "to_text", "value_of_text"]

Reader = Callable[[pa.Array, pa.Array], pa.Array]
"""(the journal's data, their content types) → a column for Spark."""

_URL = b"data:;base64,"
_UNFIT: Any = object()
_NOT_FINITE = {
    "NaN": float("nan"),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
"""Texts that from_json takes for numbers."""
_write_json, _read_json = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
_read_text = msgspec.json.Decoder(str).decode

Rows = np.ndarray[Any, Any]
_NO_ROWS: Rows = np.empty(0, np.int64)


def to_text(data: pa.Array, media_types: pa.Array) -> pa.Array:
    """The journal's bytes as JSON text."""
    texts, binaries = _rows_by_kind(media_types)
    if not len(texts) and not len(binaries):
        return data.view(pa.string())  # JSON is UTF-8: the journal wrote it itself
    found = data.to_pylist()
    _change(found, texts, lambda raw: _write_json(raw.decode()))
    _change(found, binaries, lambda raw: _URL + base64.b64encode(raw))
    return pa.array(found, pa.binary()).view(pa.string())


def from_text(text: pa.Array, media_types: pa.Array) -> pa.Array:
    """Undo `to_text`.

    Raises:
        EventError: text that `to_text` did not make: what is text must be a JSON string, what is binary a data URL.
    """
    texts, binaries = _rows_by_kind(media_types)
    data = text.view(pa.binary())
    if not len(texts) and not len(binaries):
        return data
    found = data.to_pylist()
    _change(found, texts, lambda raw: _read_text(raw).encode())
    _change(found, binaries, _from_url)
    return pa.array(found, pa.binary())


def value_of_text(text: str) -> Any:
    """The payload a text in the column `data` stands for. What is no JSON is binary: filters see no names in it."""
    try:
        return _read_json(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raw = text.encode()
    try:
        return _from_url(raw)
    except ValueError:
        return raw


def reader(kind: pa.DataType) -> Reader:
    """Make the function that reads payloads as a type.

    Raises:
        SchemaError: `data` cannot have this type.
    """
    if kind == pa.string():
        return to_text
    if not is_variant(kind) and not pa.types.is_nested(kind):
        raise _refused(kind, "data")
    build = _builder(kind, "data")
    is_object = _is_struct(kind)
    is_objects = pa.types.is_list(kind) and _is_struct(kind.value_type)

    def read(data: pa.Array, media_types: pa.Array) -> pa.Array:
        found = _values(data, media_types)
        if is_object:
            found = [each if each is None or each.__class__ is dict else {} for each in found]
        elif is_objects:  # from_json takes one object for an array of one
            found = [[each] if each.__class__ is dict else each for each in found]
        return build(found)

    return read


# -- what a payload is


def _rows_by_kind(media_types: pa.Array) -> tuple[Rows, Rows]:
    """Which rows hold text, and which hold binary; all others hold JSON."""
    if media_types.null_count == len(media_types):
        return _NO_ROWS, _NO_ROWS
    found = media_types.dictionary_encode()
    kinds = np.array([content_kind(each) for each in found.dictionary.to_pylist()] + ["json"])
    if (kinds == "json").all():
        return _NO_ROWS, _NO_ROWS
    of_rows = kinds[found.indices.fill_null(len(kinds) - 1).to_numpy()]
    return np.flatnonzero(of_rows == "text"), np.flatnonzero(of_rows == "binary")


def _change(found: list[Any], rows: Rows, change: Callable[[bytes], Any]) -> None:
    """Put something else in place of some rows that are not NULL."""
    for row in rows.tolist():
        if found[row] is not None:
            try:
                found[row] = change(found[row])
            except (msgspec.DecodeError, ValueError) as error:
                raise EventError(
                    f"data of row {row} is not what its datacontenttype says: {error}",
                    field="data",
                    help="give text as a JSON string and binary as a data URL, data:;base64,…",
                ) from None


def _from_url(raw: bytes) -> bytes:
    if not raw.startswith(_URL):
        raise ValueError("it does not begin like a data URL")
    return base64.b64decode(raw[len(_URL) :], validate=True)


def _values(data: pa.Array, media_types: pa.Array) -> list[Any]:
    """The payloads in Python."""
    texts, binaries = _rows_by_kind(media_types)
    found = data.to_pylist()
    kept = {row: found[row] for row in binaries.tolist()}
    kept |= {row: found[row].decode() for row in texts.tolist() if found[row] is not None}
    return [kept[row] if row in kept else None if raw is None else _read_json(raw) for row, raw in enumerate(found)]


# -- a payload as a type


def _is_struct(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and not is_variant(kind)


def _builder(kind: pa.DataType, place: str) -> Callable[[list[Any]], pa.Array]:
    """Make the function from values to a column. Structs are built field by field: quicker than row by row."""
    if not _is_struct(kind):
        fit = _fitter(kind, place)

        def build(values: list[Any]) -> pa.Array:
            return pa.array([None if each is _UNFIT else each for each in map(fit, values)], kind)

        return build
    fields = [kind.field(number) for number in range(kind.num_fields)]
    parts = [(field.name, _builder(field.type, f"{place}.{field.name}")) for field in fields]

    def build_struct(values: list[Any]) -> pa.Array:
        found = [each if each.__class__ is dict else None for each in values]
        columns = [part([None if each is None else each.get(name) for each in found]) for name, part in parts]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array([each is None for each in found]))

    return build_struct


def _fitter(kind: pa.DataType, place: str) -> Callable[[Any], Any]:
    """Make the function from a value to one of this type: itself, NULL as None, `_UNFIT`."""
    if is_variant(kind):
        return _fit_variant
    if pa.types.is_string(kind):
        return _fit_text
    if pa.types.is_floating(kind):
        return _fit_number
    if pa.types.is_boolean(kind):
        return lambda value: value if value is None or value.__class__ is bool else _UNFIT
    if pa.types.is_signed_integer(kind):
        bound = 1 << kind.bit_width - 1
        return lambda value: value if value is None or (value.__class__ is int and -bound <= value < bound) else _UNFIT
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _fit_time
    if pa.types.is_list(kind):
        return _fit_list(_fitter(kind.value_type, f"{place}[]"))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _fit_map(_fitter(kind.item_type, f"{place}[]"))
    if pa.types.is_struct(kind):
        return _fit_struct(kind, place)
    raise _refused(kind, place)


def _fit_text(value: Any) -> Any:
    return value if value is None or value.__class__ is str else _write_json(value).decode()


def _fit_number(value: Any) -> Any:
    if value is None or value.__class__ is float:
        return value
    if value.__class__ is int:
        try:
            return float(value)
        except OverflowError:
            return _UNFIT
    return _NOT_FINITE.get(value, _UNFIT) if value.__class__ is str else _UNFIT


def _fit_time(value: Any) -> Any:
    if value is None:
        return None
    moment = text_as_time(value) if value.__class__ is str else None
    return _UNFIT if moment is None else moment


def _fit_variant(value: Any) -> Any:
    return None if value is None else dict(zip(("value", "metadata"), encode(value), strict=True))


def _fit_list(fit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fit_list(value: Any) -> Any:
        if value.__class__ is not list:
            return None if value is None else _UNFIT
        found = [fit(member) for member in value]
        return found if _UNFIT not in found else _UNFIT

    return fit_list


def _fit_map(fit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    fit_members = _fit_list(fit)

    def fit_map(value: Any) -> Any:
        if value.__class__ is not dict:
            return None if value is None else _UNFIT
        found = fit_members(list(value.values()))
        return _UNFIT if found is _UNFIT else list(zip(value, found, strict=True))

    return fit_map


def _fit_struct(kind: pa.DataType, place: str) -> Callable[[Any], Any]:
    fields = [(field.name, _fitter(field.type, f"{place}.{field.name}")) for field in kind]

    def fit_struct(value: Any) -> Any:
        if value.__class__ is not dict:
            return None if value is None else _UNFIT
        found = [(name, fit(value.get(name))) for name, fit in fields]
        return {name: None if each is _UNFIT else each for name, each in found}

    return fit_struct


def _refused(kind: pa.DataType, place: str) -> SchemaError:
    return SchemaError(
        f"{place} cannot be read as {kind}",
        field="data",
        help="take it as STRING or VARIANT and cast it; data itself is STRING, VARIANT, STRUCT, MAP or ARRAY",
    )

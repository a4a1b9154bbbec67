"""Protocol 1 without a socket: what is written is read back, and garbage is refused in its own words."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import events
from tocsin import errors
from tocsin.errors import EventError, ProtocolError, TocsinError
from tocsin.model import Event
from tocsin.net import frames
from tocsin.net.faults import from_wire, to_wire
from tocsin.net.protocol import CODECS, JSON, LIMITS, MSGPACK, Codec, choose

codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
NUMBERS = st.integers(0, 2**53)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def strategy(kind: Any, codec: Codec) -> st.SearchStrategy[Any]:
    """Any value of a field, parts as this codec writes them."""
    if kind is Raw:
        return VALUES.map(codec.value)
    if kind is Any:
        return VALUES
    if kind is frames.Number or getattr(kind, "__metadata__", None):
        return NUMBERS
    if kind is int:
        return st.integers(-(2**53), 2**53)
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is str:
        return st.text(max_size=8)
    if kind is bool:
        return st.booleans()
    if kind is type(None):
        return st.none()
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        return frame_of(kind, codec)
    origin, of = getattr(kind, "__origin__", None), get_args(kind)
    if origin is list:
        return st.lists(strategy(of[0], codec), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(max_size=8), strategy(of[1], codec), max_size=3)
    if origin is tuple:
        return st.tuples(*(strategy(each, codec) for each in of))
    return st.one_of([strategy(each, codec) for each in of])


def frame_of(kind: Any, codec: Codec) -> st.SearchStrategy[Any]:
    hints = inspect.get_annotations(kind, eval_str=True)
    return st.builds(kind, **{name: strategy(hint, codec) for name, hint in hints.items()})


@codecs
@pytest.mark.parametrize("kind", get_args(frames.ClientFrame), ids=lambda kind: kind.__name__.lower())
@settings(max_examples=20)
@given(data=st.data())
def test_frame_of_a_client_comes_back(codec: Codec, kind: Any, data: st.DataObject) -> None:
    encoded = codec.encode(data.draw(frame_of(kind, codec)))
    again = codec.from_client(encoded)
    assert type(again) is kind and codec.encode(again) == encoded


@codecs
@pytest.mark.parametrize("kind", get_args(frames.ServerFrame), ids=lambda kind: kind.__name__.lower())
@settings(max_examples=20)
@given(data=st.data())
def test_frame_of_a_server_comes_back(codec: Codec, kind: Any, data: st.DataObject) -> None:
    encoded = codec.encode(data.draw(frame_of(kind, codec)))
    again = codec.from_server(encoded)
    assert type(again) is kind and codec.encode(again) == encoded


@codecs
@given(garbage=st.binary(max_size=200))
def test_garbage_is_no_frame(codec: Codec, garbage: bytes) -> None:
    for read in (codec.from_client, codec.from_server):
        try:
            read(garbage)
        except ProtocolError as error:
            assert error.help


@codecs
@given(frame=VALUES | st.fixed_dictionaries({"op": st.sampled_from(["hello", "publish", "settle", "call"])}, optional={
    name: VALUES for name in ("n", "sub", "events", "ack", "nak", "args", "verb", "version")}))  # fmt: skip
def test_values_that_are_no_frames_are_refused(codec: Codec, frame: Any) -> None:
    try:
        codec.from_client(bytes(codec.value(frame)))
    except ProtocolError as error:
        assert error.message


@codecs
@given(event=events())
def test_event_comes_back_with_the_place_said_beside_it(codec: Codec, event: Event) -> None:
    plain = repr(event.replace(offset=None, arrived=None))  # as text: NaN is not equal to itself
    try:
        part = codec.event(event)
    except EventError as error:  # NaN, which JSON has not
        assert "JSON" in error.message
        return
    assert repr(codec.read_event(part)) == plain
    placed = codec.read_event(part, 7, 1_000_000)
    assert placed.offset == 7 and placed.arrived is not None
    assert repr(placed.replace(offset=None, arrived=None)) == plain


@codecs
@given(garbage=VALUES | st.lists(VALUES | st.binary(max_size=4), min_size=12, max_size=12))
def test_garbage_is_no_event(codec: Codec, garbage: Any) -> None:
    with pytest.raises(EventError):
        codec.read_event(codec.value(garbage))


@given(flags=st.integers(), time=st.integers(), data=st.binary(max_size=8), media=st.none() | st.text(max_size=8))
def test_row_that_is_nearly_an_event_is_one_or_is_refused(flags: int, time: int, data: bytes, media: Any) -> None:
    row = ["t", "s", "i", None, time, media, data, None, 5, None, flags, None]
    try:
        part = MSGPACK.value(row)
    except ProtocolError:
        return  # an integer that MessagePack has not
    try:
        assert MSGPACK.read_event(part).type == "t"
    except EventError as error:
        assert error.message


@codecs
def test_deep_nesting_is_refused(codec: Codec) -> None:
    deep = b"[" * 100_000 if codec is JSON else b"\x91" * 100_000
    with pytest.raises(ProtocolError):
        codec.from_client(deep)
    inside = b'{"op":"call","n":1,"verb":"x","args":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(ProtocolError):
        JSON.from_client(inside)


def test_refused_event_of_many_is_named() -> None:
    good, bad = MSGPACK.event(Event("t", "s")), MSGPACK.value(["t"])
    with pytest.raises(EventError) as refused:
        MSGPACK.read_events([good, bad])
    assert refused.value.field == "[1]"


def test_first_known_subprotocol_is_chosen() -> None:
    assert choose(["x", "tocsin.1.json", "tocsin.1.msgpack"]) == (JSON, "tocsin.1.json")
    assert choose(["tocsin.1.msgpack"]) == (MSGPACK, "tocsin.1.msgpack")
    assert choose([]) == (JSON, None)


KINDS = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, TocsinError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_is_the_same_on_the_other_side(kind: Any) -> None:
    error = kind.__new__(kind)
    TocsinError.__init__(error, "wrong", field="f", position=3, help="mend it")
    again = from_wire(to_wire(error))
    assert type(again) is kind
    assert again.as_dict() == error.as_dict()
    assert "mend it" in str(again)


def test_error_that_is_not_ours_tells_nothing() -> None:
    assert "secret" not in str(from_wire(to_wire(ValueError("secret"))))


def test_error_of_a_newer_version_is_still_one() -> None:
    assert type(from_wire(frames.WireError("BrandNewError", "x"))) is TocsinError


def test_limits_have_the_agreed_values() -> None:
    assert (LIMITS.max_frame, LIMITS.max_event) == (16 * 1024 * 1024, 1024 * 1024)

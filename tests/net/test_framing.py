"""Frames that are read and written without the library, compared with the library."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol, State

from tocsin.net.framing import Splitter, framed

SMALL, LARGE = 65_536, 70_000


def frame(kind: Opcode, data: bytes, *, masked: bool, fin: bool = True) -> bytes:
    """What the library writes."""
    return Frame(kind, data, fin).serialize(mask=masked)


def library(*, masked: bool) -> Protocol:
    """The library's reader, with nothing read."""
    return Protocol(SERVER if masked else CLIENT, state=State.OPEN, max_size=None)


def messages_of(protocol: Protocol) -> list[tuple[Opcode, bytes, bool]]:
    """All that it has read since."""
    return [(each.opcode, bytes(each.data), each.fin) for each in protocol.events_received() if isinstance(each, Frame)]


def split(chunks: list[bytes], *, masked: bool, largest: int | None = None) -> tuple[list[Any], list[bytes], Protocol]:
    """Read by a splitter, with a library behind it: all in order, what was taken, and the library."""
    seen: list[Any] = []
    taken: list[bytes] = []
    behind = library(masked=masked)
    splitter = Splitter(masked=masked)

    def take(message: bytes) -> None:
        taken.append(message)
        seen.append((Opcode.BINARY, message, True))

    def leave(data: bytes) -> None:
        behind.receive_data(data)
        seen.extend(messages_of(behind))

    for chunk in chunks:
        splitter.feed(chunk, take, leave, largest)
    return seen, taken, behind


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Data in pieces."""
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]


WHOLE = st.tuples(
    st.sampled_from([Opcode.BINARY, Opcode.BINARY, Opcode.BINARY, Opcode.TEXT, Opcode.PING, Opcode.PONG]),
    st.one_of(st.binary(max_size=125).map(lambda data: data.hex()[:125].encode()), st.just(b"")),
)
LONG = st.sampled_from([125, 126, 127, 255, 256, 65_535, SMALL, LARGE]).map(lambda size: (Opcode.BINARY, b"x" * size))


@given(
    st.lists(st.one_of(WHOLE, LONG, st.just(None)), min_size=1, max_size=8),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_splitter_reads_what_the_library_reads_however_it_comes(
    sent: list[tuple[Opcode, bytes] | None], places: list[int], masked: bool
) -> None:
    data = b""
    for each in sent:
        if each is None:  # a message in pieces, with a ping between them
            data += frame(Opcode.BINARY, b"one", masked=masked, fin=False)
            data += frame(Opcode.PING, b"?", masked=masked)
            data += frame(Opcode.CONT, b"two", masked=masked)
        else:
            data += frame(*each, masked=masked)
    alone = library(masked=masked)
    alone.receive_data(data)
    seen, taken, behind = split(cut(data, places), masked=masked)
    assert seen == messages_of(alone) != []
    answers = behind.data_to_send(), alone.data_to_send()
    assert len(b"".join(answers[0])) == len(b"".join(answers[1])), "pings are answered alike, but for random masks"
    assert all(len(message) < SMALL for message in taken)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xf2\x80abcd",  # reserved bits
        b"\x83\x80abcd",  # no such kind
        b"\x89\xfe\x00\x7eabcd" + b"x" * 126,  # a ping that is too long
        frame(Opcode.CONT, b"x", masked=True),  # more of nothing
        frame(Opcode.BINARY, b"x", masked=True, fin=False) + frame(Opcode.BINARY, b"y", masked=True),  # two at once
        frame(Opcode.BINARY, b"x", masked=False),  # a client that does not mask
    ],
    ids=["reserved-bits", "no-such-kind", "long-ping", "more-of-nothing", "two-at-once", "not-masked"],
)
def test_what_the_library_refuses_is_refused_by_it(nonsense: bytes) -> None:
    first = frame(Opcode.BINARY, b"good", masked=True)
    alone = library(masked=True)
    alone.receive_data(first + nonsense)
    assert alone.parser_exc is not None
    seen, _, behind = split([first + nonsense], masked=True)
    assert seen[0] == (Opcode.BINARY, b"good", True)
    assert type(behind.parser_exc) is type(alone.parser_exc)
    assert behind.data_to_send() == alone.data_to_send()


def test_what_is_larger_than_allowed_is_left() -> None:
    data = frame(Opcode.BINARY, b"12345", masked=True)
    seen, taken, _ = split([data], masked=True, largest=5)
    assert taken == [b"12345"]
    seen, taken, _ = split([data], masked=True, largest=4)
    assert taken == [] and seen == [(Opcode.BINARY, b"12345", True)]


def test_nobody_takes_anything_before_somebody_listens() -> None:
    left: list[bytes] = []
    splitter = Splitter(masked=True)
    data = frame(Opcode.BINARY, b"early", masked=True)
    splitter.feed(data, None, left.append, None)
    assert b"".join(left) == data
    taken: list[bytes] = []
    splitter.feed(frame(Opcode.BINARY, b"later", masked=True), taken.append, left.append, None)
    assert taken == [b"later"], "it knows where frames begin"


def test_a_close_is_the_librarys() -> None:
    data = Frame(Opcode.CLOSE, CloseCode.NORMAL_CLOSURE.to_bytes(2, "big")).serialize(mask=True)
    seen, taken, behind = split([frame(Opcode.BINARY, b"last", masked=True) + data], masked=True)
    assert taken == [b"last"] and behind.close_rcvd is not None and len(seen) == 2


@given(st.lists(st.sampled_from([0, 1, 125, 126, 65_535, SMALL, LARGE]), max_size=4), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_framed_is_read_by_the_library(sizes: list[int], binary: bool, masked: bool) -> None:
    messages = [bytes([65 + size % 26]) * size for size in sizes]
    reader = library(masked=masked)
    reader.receive_data(framed(messages, binary=binary, masked=masked))
    kind = Opcode.BINARY if binary else Opcode.TEXT
    assert messages_of(reader) == [(kind, message, True) for message in messages]

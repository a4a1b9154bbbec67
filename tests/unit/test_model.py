"""The event: what it accepts, what it refuses by name, and in which one form it keeps values."""

from __future__ import annotations

import enum
import math
import os
import pickle
import threading
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import EventError
from tocsin.model import (
    ENVELOPE,
    MAX_INT,
    MAX_TEXT,
    MAX_TTL,
    RESERVED,
    Event,
    new_id,
    parse_time,
    time_text,
)
from tocsin.payload import MAX_DEPTH, content_kind

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def refused(field: str, **changes: Any) -> EventError:
    """Build an event that must be refused by naming `field`, with help."""
    with pytest.raises(EventError) as caught:
        Event(**{"type": "t", "source": "s", **changes})
    assert caught.value.field == field
    assert caught.value.help
    assert len(str(caught.value)) < 400
    return caught.value


# --- the shape ---


def test_constructor_is_the_documented_one() -> None:
    order = (
        "type source id subject time data datacontenttype attributes priority ttl persistent ack cancel "
        "correlation_id classification destination offset arrived"
    )
    assert Event.__struct_fields__ == tuple(order.split())
    event = Event("machine.value", "line/7")
    shown = {name: getattr(event, name) for name in Event.__struct_fields__ if name not in ("type", "source", "id")}
    assert shown == {
        "subject": None, "time": None, "data": None, "datacontenttype": None, "attributes": {}, "priority": 5,
        "ttl": None, "persistent": True, "ack": "none", "cancel": "originator", "correlation_id": None,
        "classification": "unclassified", "destination": None, "offset": None, "arrived": None,
    }  # fmt: skip


def test_envelope_names_fields() -> None:
    assert set(ENVELOPE) == set(Event.__struct_fields__) - {"attributes", "data", "destination"}


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Event("t", "s").priority = 3  # type: ignore[misc]


def test_repr_hides_defaults() -> None:
    assert repr(Event("t", "s", "1", priority=8)) == "Event(type='t', source='s', id='1', priority=8)"


def test_equality_hash_and_pickle() -> None:
    event = Event("t", "s", "1", data={"a": [1]}, attributes={"x": 1}, time=NOON, destination="TAG:q")
    same = pickle.loads(pickle.dumps(event))
    assert same == event
    assert len({event, same}) == 1
    assert event != event.replace(priority=6)


def test_replace_checks() -> None:
    event = Event("t", "s", "1", attributes={"x": 1})
    changed = event.replace(offset=7, arrived="2026-01-31T12:00:00Z")
    assert (changed.offset, changed.arrived, changed.id) == (7, NOON, "1")
    assert changed.attributes is not event.attributes
    with pytest.raises(EventError) as caught:
        event.replace(priority=11)
    assert caught.value.field == "priority"
    assert event.priority == 5
    with pytest.raises(TypeError):
        event.replace(colour="red")


# --- ids ---


def test_ids_are_fresh_across_threads() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def work(mine: list[str]) -> None:
        mine.extend(new_id() for _ in range(5000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for mine in made for one in mine}) == 20_000
    assert Event("t", "s").id != Event("t", "s").id


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_ids_differ_after_a_fork() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 200).decode()
    os.close(reader)
    os.close(writer)
    assert theirs.partition("-")[0] != new_id().partition("-")[0]


# --- texts ---

TEXTS = ["type", "source", "id", "subject", "correlation_id"]


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["", 7, b"x", ["x"], True, "a\nb", "a\x00", "\x7f", "\x85", "\ud800", "x" * 2049])
def test_bad_text(field: str, value: object) -> None:
    refused(field, **{field: value})


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["x", "x" * MAX_TEXT, "a b", "Zoë/機械", "a\u200db", "a\u00a0b", "🚨"])
def test_good_text(field: str, value: str) -> None:
    assert getattr(Event(**{"type": "t", "source": "s", field: value}), field) == value


@pytest.mark.parametrize("field", ["type", "source", "id"])
def test_none_is_not_text(field: str) -> None:
    refused(field, **{field: None})


class Colour(enum.StrEnum):
    RED = "red"


def test_enum_members_become_plain_text() -> None:
    event = Event(Colour.RED, "s", attributes={Colour.RED: Colour.RED}, data={Colour.RED: Colour.RED})
    again = Event("t", "s", attributes={Colour.RED: 1})
    kept = [event.type, *event.attributes, *event.attributes.values(), *event.data, *event.data.values()]
    assert kept == ["red"] * 5
    assert {type(text) for text in [*kept, *again.attributes]} == {str}


# --- times ---


@pytest.mark.parametrize(
    ("given_time", "kept"),
    [
        (NOON, NOON),
        (datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31t12:00:00z", NOON),
        ("2026-01-31 07:00:00-05:00", NOON),
        ("2026-01-31T12:00:00.123456789Z", NOON.replace(microsecond=123456)),
    ],
)
@pytest.mark.parametrize("field", ["time", "arrived"])
def test_times(field: str, given_time: Any, kept: datetime) -> None:
    moment = getattr(Event(**{"type": "t", "source": "s", field: given_time}), field)
    assert moment == kept
    assert moment.tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 31), "2026-01-31T12:00:00", "2026-01-31", "yesterday", "", 1769860800, 1.5, True, NOON.date(),
        "2026-02-30T12:00:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00+99:00", "9" * 100_000,
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "0001-01-01T00:00:00+05:00",
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["time", "arrived"])
def test_bad_times(field: str, value: object) -> None:
    refused(field, **{field: value})


def test_naive_time_says_what_is_missing() -> None:
    assert "timezone" in str(refused("time", time=datetime(2026, 1, 31)))


def test_subclasses_of_datetime_become_plain() -> None:
    class Stamp(datetime):
        pass

    assert type(parse_time(Stamp(2026, 1, 31, 12, tzinfo=UTC), "time")) is datetime


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.timezones()))
def test_time_text_keeps_the_instant(moment: datetime) -> None:
    text = time_text(moment)
    assert text.endswith("Z")
    assert parse_time(text, "time") == moment.astimezone(UTC)


# --- alert fields ---


@pytest.mark.parametrize("value", [0, 11, -1, True, False, 5.0, "5", None, math.nan, 10**400])
def test_bad_priority(value: object) -> None:
    assert "1 to 10" in str(refused("priority", priority=value))


@pytest.mark.parametrize("value", range(1, 11))
def test_priorities(value: int) -> None:
    assert Event("t", "s", priority=value).priority == value


@pytest.mark.parametrize("value", [0, -1, 0.0, math.nan, math.inf, -math.inf, True, "60", 10**400, MAX_TTL + 1])
def test_bad_ttl(value: object) -> None:
    refused("ttl", ttl=value)


@pytest.mark.parametrize("value", [1, 0.001, 60, 5e-324, MAX_TTL])
def test_ttl(value: float) -> None:
    kept = Event("t", "s", ttl=value).ttl
    assert kept == value
    assert type(kept) is type(value)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_bad_persistent(value: object) -> None:
    refused("persistent", persistent=value)


CHOICES = {
    "ack": ["none", "client", "receipt"],
    "cancel": ["originator", "any"],
    "classification": ["unclassified", "confidential", "secret", "top-secret"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in CHOICES.items() for value in values])
def test_choices(field: str, value: str) -> None:
    assert getattr(Event(**{"type": "t", "source": "s", field: value}), field) == value


@pytest.mark.parametrize("field", CHOICES)
@pytest.mark.parametrize("value", ["", "NONE", "Secret", None, True, 0, ["none"], {}])
def test_bad_choices_list_the_good_ones(field: str, value: object) -> None:
    assert all(choice in str(refused(field, **{field: value})) for choice in CHOICES[field])


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", 2**63])
def test_bad_offset(value: object) -> None:
    refused("offset", offset=value)


def test_offset() -> None:
    assert Event("t", "s", offset=MAX_INT).offset == MAX_INT


# --- attributes ---


@pytest.mark.parametrize("value", [True, False, 0, -(2**63), MAX_INT, 1.5, -0.0, math.inf, "", "x", "é\n", "🚨"])
def test_attributes_are_kept(value: Any) -> None:
    kept = Event("t", "s", attributes={"v": value}).attributes["v"]
    assert kept == value
    assert type(kept) is type(value)


def test_nan_attribute_is_kept_in_memory() -> None:
    assert math.isnan(Event("t", "s", attributes={"v": math.nan}).attributes["v"])  # type: ignore[arg-type]


def test_datetime_attribute_is_kept_as_text() -> None:
    moment = datetime(2026, 1, 31, 13, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert Event("t", "s", attributes={"at": moment}).attributes == {"at": "2026-01-31T12:00:00.000005Z"}


@pytest.mark.parametrize(
    "value", [None, [], {}, (1,), b"x", object(), 1j, 2**63, -(2**63) - 1, datetime(2026, 1, 31), NOON.date(), "\udc80"]
)
def test_bad_attribute_values(value: object) -> None:
    refused("attributes.v", attributes={"ok": 1, "v": value})


def test_large_integer_says_where_to_put_it() -> None:
    assert "data" in str(refused("attributes.v", attributes={"v": 2**64}))
    assert "leave it out" in str(refused("attributes.v", attributes={"v": None}))


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "a b", "é", "a\n", "x" * 65, *sorted(RESERVED)])
def test_bad_attribute_names(name: str) -> None:
    refused(f"attributes.{name[:64]}", attributes={name: 1})


@pytest.mark.parametrize("name", ["a", "_", "A9_", "dataschema", "tag", "x" * 64])
def test_attribute_names(name: str) -> None:
    assert Event("t", "s", attributes={name: 1}).attributes == {name: 1}


def test_reserved_names() -> None:
    assert set(Event.__struct_fields__) | {"data_base64", "specversion", "correlationid"} == RESERVED


@pytest.mark.parametrize("value", [None, [("a", 1)], "a", {1: 2}, {None: 1}])
def test_attributes_must_map_names(value: object) -> None:
    refused("attributes", attributes=value)


@pytest.mark.parametrize("given_attributes", [{}, {"a": 1}, OrderedDict(a=1)])
def test_attributes_are_a_private_plain_dict(given_attributes: dict[str, Any]) -> None:
    event = Event("t", "s", attributes=given_attributes)
    before = dict(given_attributes)
    given_attributes["later"] = 1
    assert event.attributes == before
    assert type(event.attributes) is dict


def test_names_stay_checked_when_many_were_seen() -> None:
    for number in range(5000):
        Event("t", "s", attributes={f"seen{number}": 1})
    assert Event("t", "s", attributes={"one_more": 1}).attributes == {"one_more": 1}
    refused("attributes.9", attributes={"9": 1})


# --- destination ---


@pytest.mark.parametrize(
    ("destination", "attributes"),
    [
        ("TAG:x", {"tag": "x"}),
        ("user:TRLP1", {"user": "TRLP1"}),
        (" Profile : night shift ", {"profile": "night shift"}),
        ("TAG:a; USER:b;PROFILE:c", {"tag": "a", "user": "b", "profile": "c"}),
        ("TAG:a;tag:a", {"tag": "a"}),
        ("TAG:a:b", {"tag": "a:b"}),
    ],
)
def test_destination_is_consumed(destination: str, attributes: dict[str, str]) -> None:
    event = Event("t", "s", destination=destination)
    assert event.attributes == attributes
    assert event.destination is None


def test_destination_agrees_with_attribute() -> None:
    assert Event("t", "s", destination="TAG:x", attributes={"tag": "x"}).attributes == {"tag": "x"}
    refused("destination", destination="TAG:x", attributes={"tag": "y"})


@pytest.mark.parametrize(
    "value",
    ["", "x", "TAG", "TAG:", "TAG: ", ":x", "TOPIC:x", "TAG:x;", "TAG:a;TAG:b", "USER:a, b", 7, b"TAG:x", "TAG:\ud800"],
)  # fmt: skip
def test_bad_destinations(value: object) -> None:
    refused("destination", destination=value)


def test_destination_does_not_reach_the_callers_mapping() -> None:
    mine: dict[str, Any] = {}
    Event("t", "s", destination="TAG:x", attributes=mine)
    assert mine == {}


# --- payload ---


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("application/json", "json"),
        ("Application/JSON; charset=utf-8", "json"),
        ("text/json", "json"),
        ("application/vnd.x+json", "json"),
        ("text/plain", "text"),
        ('text/plain;charset="UTF-8"', "text"),
        ("text/plain; charset=us-ascii", "text"),
        ("application/xml", "text"),
        ("image/svg+xml", "text"),
        ("application/octet-stream", "binary"),
        ("image/png", "binary"),
        ("application/x-thing; charset=latin-1", "binary"),
    ],
)
def test_content_kinds(media_type: str, kind: str) -> None:
    assert content_kind(media_type) == kind


@pytest.mark.parametrize(
    "value", ["", "json", "a/", "/b", "a/b/c", "text/plain\n", "text/plain\r\n;x", "a/b;\x00", "é/b", 7, b"a/b",
              "text/plain; charset=latin-1", "application/json;charset=utf-16"]
)  # fmt: skip
def test_bad_content_types(value: object) -> None:
    refused("datacontenttype", data="x", datacontenttype=value)


JSON = "application/json"
OCTETS = "application/octet-stream"


@pytest.mark.parametrize(
    ("data", "media_type", "kept", "kept_type"),
    [
        (None, None, None, None),
        (None, JSON, None, JSON),
        ("hello", None, "hello", None),
        ("hello", JSON, "hello", JSON),
        ("é\n", None, "é\n", None),
        (b"\xff", None, b"\xff", OCTETS),
        (bytearray(b"\xff"), None, b"\xff", OCTETS),
        (memoryview(b"\xff"), "image/png", b"\xff", "image/png"),
        (b'{"a": 1}', JSON, {"a": 1}, JSON),
        (bytearray(b"[1]"), "application/vnd.x+json", [1], "application/vnd.x+json"),
        (b"null", JSON, None, JSON),
        ("<a/>", "application/xml", "<a/>", "application/xml"),
        ("<é/>".encode(), "application/xml", "<é/>", "application/xml"),
        (b"", "text/plain", "", "text/plain"),
        ("a: é", "application/yaml", "a: é".encode(), "application/yaml"),
        ((1, (2,)), None, [1, [2]], None),
        (OrderedDict(a=(1,)), None, {"a": [1]}, None),
        (10**30, None, 10**30, None),
        (True, None, True, None),
    ],
)
def test_payloads(data: object, media_type: str | None, kept: object, kept_type: str | None) -> None:
    event = Event("t", "s", data=data, datacontenttype=media_type)
    assert (event.data, event.datacontenttype) == (kept, kept_type)
    assert type(event.data) is type(kept)


@pytest.mark.parametrize("data", [{"a": {"b": ["é\n", 1.5, None]}}, [1, {"a": True}]])
def test_plain_data_is_held_as_given(data: Any) -> None:
    assert Event("t", "s", data=data).data is data


@pytest.mark.parametrize(
    ("data", "media_type", "field"),
    [
        (object(), None, "data"),
        ({1, 2}, None, "data"),
        (NOON, None, "data"),
        ({"a": {"b": [0, b"x"]}}, None, "data.a.b[1]"),
        ({"a": NOON}, None, "data.a"),
        ({"a": {1: 2}}, None, "data.a"),
        ({"a": "\ud800"}, None, "data.a"),
        ({"a": [{"\ud800": 1}]}, None, "data.a[0]"),
        ("\ud800", None, "data"),
        ("\ud800", "text/plain", "data"),
        ("\ud800", "image/png", "data"),
        (b"\xff", "text/plain", "data"),
        (b"{", JSON, "data"),
        (b"\xff", JSON, "data"),
        (b"1" * 5000, JSON, "data"),
        (b"1e999", JSON, "data"),
        ({"a": 1}, "text/plain", "data"),
        (None, "text/plain", "data"),
        (7, "application/xml", "data"),
        ({"a": 1}, "image/png", "data"),
    ],
)
def test_bad_payloads_name_the_place(data: object, media_type: str | None, field: str) -> None:
    refused(field, data=data, datacontenttype=media_type)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_limited() -> None:
    assert Event("t", "s", data=nested(MAX_DEPTH)).data == nested(MAX_DEPTH)
    refused("data", data=nested(MAX_DEPTH + 1))
    refused("data", data={"a": nested(MAX_DEPTH)})
    refused("data", data=b"[" * 200_000, datacontenttype=JSON)


def test_cyclic_data_is_refused() -> None:
    cycle: list[Any] = []
    cycle.extend([cycle, cycle])
    refused("data", data=cycle)


def test_bad_json_has_a_position() -> None:
    assert refused("data", data=b'{"a":tru}', datacontenttype=JSON).position == 8


def test_errors_do_not_carry_payloads() -> None:
    assert "x" * 50 not in str(refused("data", data="x" * 5000 + "\ud800"))
    assert "x" * 50 not in str(refused("priority", priority="x" * 5000))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_is_a_payload(data: Any) -> None:
    event = Event("t", "s", data=data)
    assert event.data is data
    assert event.datacontenttype is None


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()),
    st.text(st.characters(categories=["Cs", "Cc"])), st.dictionaries(st.text(), st.text()), st.datetimes(),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(Event.__struct_fields__), anything))
def test_hostile_values_give_an_event_or_an_event_error(fields: dict[str, Any]) -> None:
    arguments = {"type": "t", "source": "s", **fields}
    try:
        event = Event(**arguments)
    except EventError as error:
        assert error.field is not None
        assert error.field.partition(".")[0].partition("[")[0] in arguments
    else:
        assert event.replace() == event or math.isnan(event.data)

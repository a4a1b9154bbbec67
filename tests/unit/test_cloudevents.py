"""CloudEvents 1.0 in and out: nothing is lost, and what cannot travel is refused by name."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.cloudevents import (
    BATCH,
    STRUCTURED,
    encode_json,
    from_http,
    from_json,
    from_json_batch,
    to_http,
    to_json,
    to_json_batch,
)
from tocsin.errors import EventError
from tocsin.model import ACK, CANCEL, CLASSIFICATION, MAX_INT, MAX_TTL, RESERVED, Event

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LEAST = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
LEAST_HEADERS = {f"ce-{name}": value for name, value in LEAST.items()}


def refused(field: str | None, call: Any, *arguments: Any) -> EventError:
    with pytest.raises(EventError) as caught:
        call(*arguments)
    assert caught.value.field == field
    assert caught.value.help
    return caught.value


# --- every event, by property ---

names = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF, categories=["L", "N", "P", "S"]), min_size=1)
# fold says nothing in UTC, but repr shows it
times = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)).map(lambda t: t.replace(fold=0))
finite = st.floats(allow_nan=False, allow_infinity=False)
attribute_names = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True).filter(lambda name: name not in RESERVED)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
payloads = st.one_of(
    st.tuples(json_values, st.sampled_from([None, "application/json", "application/vnd.x+json"])),
    st.tuples(st.text(), st.sampled_from(["text/plain", "application/xml", "image/svg+xml; charset=utf-8"])),
    st.tuples(st.binary(), st.sampled_from([None, "application/octet-stream", "image/png"])),
)


@st.composite
def events(draw: Any, capitals: bool = True) -> Event:
    values = st.booleans() | st.integers(-MAX_INT - 1, MAX_INT) | finite | st.text() | times
    some_names = attribute_names | st.just("Capital") if capitals else attribute_names
    data, media_type = draw(payloads)
    return Event(
        type=draw(names),
        source=draw(names),
        id=draw(names),
        subject=draw(st.none() | names),
        time=draw(st.none() | times),
        data=data,
        datacontenttype=media_type,
        attributes=draw(st.dictionaries(some_names, values, max_size=4)),
        priority=draw(st.integers(1, 10)),
        ttl=draw(st.none() | st.integers(1, MAX_TTL) | st.floats(0, MAX_TTL, exclude_min=True)),
        persistent=draw(st.booleans()),
        ack=draw(st.sampled_from(ACK)),
        cancel=draw(st.sampled_from(CANCEL)),
        correlation_id=draw(st.none() | names),
        classification=draw(st.sampled_from(CLASSIFICATION)),
        offset=draw(st.none() | st.integers(1, MAX_INT)),
        arrived=draw(st.none() | times),
    )


def exact(event: Event) -> str:
    """Show all that equality forgives: 1 is True, and 1 == 1.0."""
    return repr(event)


@given(events())
def test_structured_round_trip(event: Event) -> None:
    text = to_json(event)
    assert exact(from_json(text)) == exact(event)
    assert exact(from_json(text.decode())) == exact(event)
    assert exact(from_json(json.loads(text))) == exact(event)


@given(st.lists(events(), max_size=3))
def test_batch_round_trip(some: list[Event]) -> None:
    text = to_json_batch(some)
    assert [exact(event) for event in from_json_batch(text)] == [exact(event) for event in some]
    assert from_json_batch(json.loads(text)) == some


def as_header_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(events(capitals=False))
def test_binary_round_trip(event: Event) -> None:
    headers, body = to_http(event)
    for name, value in headers.items():
        assert all(0x21 <= ord(char) <= 0x7E for char in name)
        assert all(0x20 <= ord(char) <= 0x7E for char in value)
    media_type = event.datacontenttype or ("application/json" if event.data is not None else None)
    expected = event.replace(
        attributes={name: as_header_text(value) for name, value in event.attributes.items()}, datacontenttype=media_type
    )
    assert exact(from_http(headers, body)) == exact(expected)  # type: ignore[arg-type]


@given(events())
def test_structured_and_batch_over_http(event: Event) -> None:
    assert from_http({"Content-Type": STRUCTURED + "; charset=UTF-8"}, to_json(event)) == event
    assert from_http({"content-type": BATCH}, to_json_batch([event, event])) == [event, event]


@given(st.recursive(json_values, lambda inner: st.dictionaries(st.sampled_from([*LEAST, "data", "ttl", "x"]), inner)))
def test_any_json_gives_an_event_or_an_event_error(value: Any) -> None:
    try:
        event = from_json(msgspec.json.encode(value))
    except EventError as error:
        assert error.message
    else:
        assert value["specversion"] == "1.0"
        assert event.id == value["id"]


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_give_an_event_error(raw: bytes) -> None:
    with pytest.raises(EventError):
        from_json(raw)
    with pytest.raises(EventError):
        from_http({"content-type": STRUCTURED}, raw)


# --- structured ---


def test_structured_form() -> None:
    event = Event(
        "machine.value", "line/7", "1", data={"value": 9.0}, attributes={"region": "eu", "n": 7}, priority=8, ttl=0.5,
        persistent=False, ack="client", cancel="any", correlation_id="c", classification="secret", time=NOON,
        subject="m7", offset=3, arrived=NOON,
    )  # fmt: skip
    assert json.loads(to_json(event)) == {
        "specversion": "1.0", "id": "1", "source": "line/7", "type": "machine.value", "priority": 8, "subject": "m7",
        "time": "2026-01-31T12:00:00Z", "ttl": 0.5, "persistent": False, "ack": "client", "cancel": "any",
        "correlationid": "c", "classification": "secret", "offset": 3, "arrived": "2026-01-31T12:00:00Z",
        "region": "eu", "n": 7, "data": {"value": 9.0},
    }  # fmt: skip


def test_defaults_are_left_out_but_priority() -> None:
    assert json.loads(to_json(Event("t", "s", "1"))) == {**LEAST, "priority": 5}


@pytest.mark.parametrize(
    ("data", "media_type", "members"),
    [
        (b"\x00\xff", None, {"data_base64": "AP8=", "datacontenttype": "application/octet-stream"}),
        (b"", "image/png", {"data_base64": "", "datacontenttype": "image/png"}),
        ("<a/>", "application/xml", {"data": "<a/>", "datacontenttype": "application/xml"}),
        ("hi", None, {"data": "hi"}),
        ([1], "text/json", {"data": [1], "datacontenttype": "text/json"}),
        (None, None, {}),
    ],
)
def test_payload_members(data: Any, media_type: str | None, members: dict[str, Any]) -> None:
    event = Event("t", "s", "1", data=data, datacontenttype=media_type)
    assert json.loads(to_json(event)) == {**LEAST, "priority": 5, **members}


SPEC_XML = {
    "specversion": "1.0",
    "type": "com.github.pull_request.opened",
    "source": "https://github.com/cloudevents/spec/pull",
    "subject": "123",
    "id": "A234-1234-1234",
    "time": "2018-04-05T17:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
    "datacontenttype": "text/xml",
    "data": '<much wow="xml"/>',
}


def test_example_of_the_specification() -> None:
    event = from_json(json.dumps(SPEC_XML))
    assert event == Event(
        "com.github.pull_request.opened",
        "https://github.com/cloudevents/spec/pull",
        "A234-1234-1234",
        subject="123",
        time=datetime(2018, 4, 5, 17, 31, tzinfo=UTC),
        attributes={"comexampleextension1": "value", "comexampleothervalue": 5},
        data='<much wow="xml"/>',
        datacontenttype="text/xml",
    )
    assert json.loads(to_json(event)) == {**SPEC_XML, "priority": 5}


@pytest.mark.parametrize(
    ("members", "data", "media_type"),
    [
        ({"data_base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"data_base64": "eyJhIjogMX0=", "datacontenttype": "application/json"}, {"a": 1}, "application/json"),
        ({"data_base64": "aGk=", "datacontenttype": "text/plain"}, "hi", "text/plain"),
        ({"data": "a: 1", "datacontenttype": "application/yaml"}, b"a: 1", "application/yaml"),
        ({"data": None, "data_base64": "AA=="}, b"\x00", "application/octet-stream"),
        ({"data": "2"}, "2", None),
        ({"datacontenttype": "text/plain"}, None, None),
        ({"datacontenttype": "application/json", "data": None}, None, "application/json"),
    ],
)
def test_payloads_in(members: dict[str, Any], data: Any, media_type: str | None) -> None:
    event = from_json({**LEAST, **members})
    assert (event.data, event.datacontenttype) == (data, media_type)


def test_null_is_absent_and_dataschema_an_attribute() -> None:
    event = from_json({**LEAST, "subject": None, "x": None, "ttl": None, "dataschema": "http://x/y", "priority": None})
    assert event == Event("t", "s", "1", attributes={"dataschema": "http://x/y"})


def test_destination_is_accepted() -> None:
    assert from_json({**LEAST, "destination": "TAG:x"}).attributes == {"tag": "x"}


def test_input_is_not_changed() -> None:
    given_members = {**LEAST, "x": 1, "data": {"a": 1}}
    before = dict(given_members)
    from_json(given_members).attributes["y"] = 2
    assert given_members == before


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("how", ["missing", "null"])
def test_required_members(name: str, how: str) -> None:
    members: dict[str, Any] = {**LEAST, name: None}
    if how == "missing":
        del members[name]
    refused(name, from_json, members)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"specversion": 1.0}, "specversion"),
        ({"id": 7}, "id"),
        ({"id": ""}, "id"),
        ({"source": []}, "source"),
        ({"type": "a\nb"}, "type"),
        ({"subject": ""}, "subject"),
        ({"time": "2018-04-05T17:31:00"}, "time"),
        ({"time": 5}, "time"),
        ({"priority": "8"}, "priority"),
        ({"priority": 8.0}, "priority"),
        ({"ttl": 0}, "ttl"),
        ({"persistent": "true"}, "persistent"),
        ({"ack": "maybe"}, "ack"),
        ({"cancel": 1}, "cancel"),
        ({"classification": "SECRET"}, "classification"),
        ({"correlationid": 5}, "correlation_id"),
        ({"offset": 0}, "offset"),
        ({"arrived": "noon"}, "arrived"),
        ({"destination": "x"}, "destination"),
        ({"correlation_id": "c"}, "attributes.correlation_id"),
        ({"attributes": {"a": 1}}, "attributes.attributes"),
        ({"x": {"a": 1}}, "attributes.x"),
        ({"x": [1]}, "attributes.x"),
        ({"x": 2**64}, "attributes.x"),
        ({"a-b": 1}, "attributes.a-b"),
        ({"": 1}, "attributes."),
        ({"datacontenttype": 5, "data": 1}, "datacontenttype"),
        ({"datacontenttype": 5}, "datacontenttype"),
        ({"datacontenttype": "nonsense"}, "datacontenttype"),
        ({"datacontenttype": "text/plain", "data": 5}, "data"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64"),
        ({"data_base64": "A"}, "data_base64"),
        ({"data_base64": "A A="}, "data_base64"),
        ({"data_base64": "é"}, "data_base64"),
        ({"data_base64": 5}, "data_base64"),
        ({"data_base64": "ew==", "datacontenttype": "application/json"}, "data"),
    ],
)
def test_bad_members_are_named(members: dict[str, Any], field: str) -> None:
    bad = {**LEAST, **members}
    refused(field, from_json, bad)
    refused(field, from_json, json.dumps(bad))
    in_batch = refused(f"[1].{field}", from_json_batch, json.dumps([LEAST, bad]))
    assert "[1]" in in_batch.message


@pytest.mark.parametrize("name", ["id", "priority", "x", "data"])
def test_members_given_twice(name: str) -> None:
    text = json.dumps({**LEAST, name: "1"})[:-1] + f', "{name}": "2"}}'
    refused(name, from_json, text)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"[]", b"1", b"null", b'"x"', b"{}}", b"{'id': 1}", b'{"a": NaN}', b"\xff", b'{"a": "\xff"}',
        b'{"\xff": 1}', b'{"a": "\\ud800"}', b'{"a": 1e999}', b'{"a": ' + b"1" * 5000 + b"}", b"[" * 200_000,
        b'{"a":' * 200_000, b'{"data":' + b"[" * 200_000, '{"a": "\ud800"}', 7, None, [1],
    ],
)  # fmt: skip
def test_not_an_event(raw: Any) -> None:
    refused(None, from_json, raw)


def test_nesting_below_the_decoders_limit_is_refused_by_ours() -> None:
    data = "[" * 300 + "]" * 300
    refused("data", from_json, json.dumps(LEAST)[:-1] + f', "data": {data}}}')


def test_bad_json_has_a_position() -> None:
    assert refused(None, from_json, '{"id": tru}').position == 10


def test_big_integers_survive_in_data() -> None:
    event = Event("t", "s", data={"n": 10**40, "m": -(2**64)})
    assert from_json(to_json(event)) == event


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite_is_refused_by_place(value: float) -> None:
    in_data = Event("t", "s", data={"x": {"y": [None, "null", value]}})
    in_attributes = Event("t", "s", attributes={"v": value})
    for write in (to_json, to_http):
        field = refused("data.x.y[2]", write, in_data).field
        assert field == "data.x.y[2]"
        refused("attributes.v", write, in_attributes)
    refused("[1].data", to_json_batch, [Event("t", "s"), Event("t", "s", data=value)])
    refused("d.a", encode_json, {"a": value}, "d")


def test_null_is_no_nan() -> None:
    assert encode_json({"a": None, "b": "null"}, "data") == b'{"a":null,"b":"null"}'


def test_data_changed_after_the_fact_is_refused_when_written() -> None:
    data: dict[str, Any] = {}
    event = Event("t", "s", data=data)
    for bad in (object(), "\ud800", 10**5000):
        data["a"] = bad
        refused("data", to_json, event)
    data["a"] = data
    refused("data", to_json, event)


# --- batch ---


def test_empty_batch() -> None:
    assert to_json_batch([]) == b"[]"
    assert from_json_batch(b" [] ") == []


@pytest.mark.parametrize("raw", [b"{}", b"", b"[", b"[{}", b"1", b"[" * 200_000, "\ud800"])
def test_not_a_batch(raw: Any) -> None:
    refused(None, from_json_batch, raw)


@pytest.mark.parametrize("raw", [b"[1]", b"[[]]", b"[null]", [1], [None]])
def test_batch_of_something_else_names_the_index(raw: Any) -> None:
    refused("[0]", from_json_batch, raw)


# --- binary ---


def test_binary_form() -> None:
    event = Event(
        "t", "s", "1", data={"a": 1}, attributes={"flag": True, "n": 7, "f": 1.5, "empty": ""}, ttl=60,
        persistent=False, correlation_id="c", offset=3, arrived=NOON,
    )  # fmt: skip
    headers, body = to_http(event)
    assert body == b'{"a":1}'
    assert headers == {
        **LEAST_HEADERS, "content-type": "application/json", "ce-priority": "5", "ce-ttl": "60",
        "ce-persistent": "false", "ce-correlationid": "c", "ce-offset": "3", "ce-arrived": "2026-01-31T12:00:00Z",
        "ce-flag": "true", "ce-n": "7", "ce-f": "1.5", "ce-empty": "",
    }  # fmt: skip


def test_no_payload_has_no_content_type() -> None:
    assert to_http(Event("t", "s", "1")) == ({**LEAST_HEADERS, "ce-priority": "5"}, b"")


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),  # the example of the HTTP binding
        ('a "b" 100%', "a%20%22b%22%20100%25"),
        ("tab\tnewline\r\n", "tab%09newline%0D%0A"),
        ("/a?b=c&d#e+f,g;h\\i~", "/a?b=c&d#e+f,g;h\\i~"),
    ],
)
def test_percent_encoding(text: str, header: str) -> None:
    headers, _ = to_http(Event("t", "s", attributes={"x": text}))
    assert headers["ce-x"] == header
    event = from_http({**LEAST_HEADERS, "ce-x": header}, b"")
    assert isinstance(event, Event)
    assert event.attributes == {"x": text}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ('"a \\"b\\" c"', 'a "b" c'),
        (" padded ", "padded"),
        ("%e2%82%ac", "€"),
        ("%41", "A"),
        ("%2520", "%20"),
        ("100%", "100%"),
        ('half"', 'half"'),
    ],
)
def test_headers_of_other_senders(header: str, text: str) -> None:
    event = from_http({**LEAST_HEADERS, "ce-x": header}, b"")
    assert isinstance(event, Event)
    assert event.attributes == {"x": text}


def test_names_in_any_case_and_other_headers_ignored() -> None:
    headers = [("CE-Id", "1"), ("Ce-Source", "s"), ("ce-TYPE", "t"), ("CE-SpecVersion", "1.0"), ("Host", "é")]
    assert from_http(headers, b"") == Event("t", "s", "1")


@pytest.mark.parametrize(
    ("media_type", "body", "data", "kept"),
    [
        ("application/json", b'{"a":1}', {"a": 1}, "application/json"),
        ("application/json", b"null", None, "application/json"),
        ("application/json", b"", None, "application/json"),
        ("text/xml", b"<a/>", "<a/>", "text/xml"),
        ("text/plain", b"", "", "text/plain"),
        ("image/png", b"\xff", b"\xff", "image/png"),
        (None, b"\xff", b"\xff", "application/octet-stream"),
        (None, b"", None, None),
    ],
)
def test_bodies(media_type: str | None, body: bytes, data: Any, kept: str | None) -> None:
    headers = LEAST_HEADERS if media_type is None else {**LEAST_HEADERS, "Content-Type": media_type}
    event = from_http(headers, body)
    assert isinstance(event, Event)
    assert (event.data, event.datacontenttype) == (data, kept)


@pytest.mark.parametrize(
    ("headers", "body", "field"),
    [
        ({"ce-priority": "high"}, b"", "priority"),
        ({"ce-priority": "11"}, b"", "priority"),
        ({"ce-priority": "5.0"}, b"", "priority"),
        ({"ce-priority": "٥"}, b"", "priority"),
        ({"ce-priority": "1_0"}, b"", "priority"),
        ({"ce-ttl": "soon"}, b"", "ttl"),
        ({"ce-ttl": "1e999"}, b"", "ttl"),
        ({"ce-ttl": "nan"}, b"", "ttl"),
        ({"ce-ttl": "9" * 10_000}, b"", "ttl"),
        ({"ce-persistent": "yes"}, b"", "persistent"),
        ({"ce-offset": "-1"}, b"", "offset"),
        ({"ce-ack": "x"}, b"", "ack"),
        ({"ce-time": "now"}, b"", "time"),
        ({"ce-id": ""}, b"", "id"),
        ({"ce-id": "a%0Ab"}, b"", "id"),
        ({"ce-specversion": "2.0"}, b"", "specversion"),
        ({"ce-x": "%ff"}, b"", "x"),
        ({"ce-x": "é"}, b"", "x"),
        ({"ce-x": "%ED%A0%80"}, b"", "x"),
        ({"ce-a-b": "1"}, b"", "attributes.a-b"),
        ({"ce-": "1"}, b"", "attributes."),
        ({"ce-data": "1"}, b"", "data"),
        ({"ce-data_base64": "AA=="}, b"", "data_base64"),
        ({"ce-datacontenttype": "text/plain"}, b"", "datacontenttype"),
        ({"CE-ID": "2"}, b"", "id"),
        ({"content-type": "text/plain", "Content-Type": "text/plain"}, b"", "datacontenttype"),
        ({"content-type": "nonsense"}, b"x", "datacontenttype"),
        ({"content-type": "application/json"}, b"{", "data"),
        ({"content-type": "text/plain"}, b"\xff", "data"),
        ({"content-type": "application/cloudevents+avro"}, b"", "datacontenttype"),
    ],
)
def test_bad_messages_are_named(headers: dict[str, str], body: bytes, field: str) -> None:
    refused(field, from_http, {**LEAST_HEADERS, **headers}, body)


@pytest.mark.parametrize("name", LEAST)
def test_required_headers(name: str) -> None:
    headers = dict(LEAST_HEADERS)
    del headers[f"ce-{name}"]
    refused(name, from_http, headers, b"")


def test_plain_json_is_not_an_event() -> None:
    error = refused("specversion", from_http, {"content-type": "application/json"}, json.dumps(LEAST).encode())
    assert STRUCTURED in str(error)


def test_what_cannot_travel_in_headers() -> None:
    assert STRUCTURED in str(refused("attributes.Big", to_http, Event("t", "s", attributes={"Big": 1})))
    inner = Event("t", "s", data=json.loads(to_json(Event("t", "s"))), datacontenttype=STRUCTURED)
    refused("datacontenttype", to_http, inner)
    assert from_json(to_json(inner)) == inner


def test_alert_fields_keep_their_types_in_headers() -> None:
    event = Event("t", "s", "1", priority=9, ttl=1.5, persistent=False, offset=4, arrived=NOON, time=NOON)
    back = from_http(*to_http(event))
    assert isinstance(back, Event)
    assert exact(back) == exact(event)

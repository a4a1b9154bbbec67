"""Groups: what the next view is, and what the journal holds of sessions."""

from __future__ import annotations

import pytest

from tocsin.errors import GroupError
from tocsin.filters.filter import Filter
from tocsin.model import Event
from tocsin.peers import groups, records
from tocsin.peers.advertisements import Resource
from tocsin.peers.groups import Groups, Message, Plan, View


def test_a_plan_holds_when_it_is_installed() -> None:
    all = Groups()
    plan = all.join("g", "1", "ann")
    assert all.view("g") is None and all.of("1") == []
    all.install(plan, 7)
    assert all.view("g") == View("g", ("ann",), ("ann",), (), 7) and all.of("1") == ["g"]
    all.install(all.join("g", "2", "bob"), 8)
    assert all.view("g") == View("g", ("ann", "bob"), ("bob",), (), 8)
    all.install(all.leave("g", "1"), 9)
    assert all.view("g") == View("g", ("bob",), (), ("ann",), 9)
    all.install(all.leave("g", "2"), 10)
    assert all.view("g") is None and all.of("2") == []


def test_a_name_is_in_a_group_once() -> None:
    all = Groups()
    all.install(all.join("g", "1", "ann"), 1)
    for session, name in (("1", "ann"), ("2", "ann"), ("1", "bob")):
        with pytest.raises(GroupError, match="already"):
            all.join("g", session, name)
    all.join("h", "1", "ann")


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_MEMBERS", 1)
    monkeypatch.setattr(groups, "MAX_GROUPS", 1)
    all = Groups()
    all.install(all.join("g", "1", "ann"), 1)
    with pytest.raises(GroupError, match="1 members"):
        all.join("g", "2", "bob")
    with pytest.raises(GroupError, match="at most 1 groups"):
        all.join("h", "1", "ann")


def test_records_say_what_views_and_messages_are() -> None:
    record = records.view(Plan("g", {"1": "ann", "2": "bob"}, joined=("bob",)))
    view = View.of(Event(record.type, record.source, subject=record.subject, data=record.data, offset=5))
    assert view == View("g", ("ann", "bob"), ("bob",), (), 5)
    record = records.cast("g", "ann", {"x": 1})
    assert Message.of(record, view) == Message({"x": 1}, "ann", view, 0)


def test_the_filter_of_a_group_takes_its_records_only() -> None:
    wanted = Filter(records.filter_of_group("it's"))
    assert wanted.matches(records.cast("it's", "ann", 1)) and wanted.matches(records.view(Plan("it's", {})))
    assert not wanted.matches(records.cast("its", "ann", 1))
    assert not wanted.matches(records.session("1", "ann", "began"))


def test_what_a_crash_leaves_is_withdrawn() -> None:
    events, served = Resource("a / 2 > 1"), Resource("params/m7", served=True)
    state = {
        records.key("1"): b"ann",
        records.key("2"): "bøb".encode(),
        records.resource_key("1", events): b"",
        records.resource_key("2", served): b"",
        records.group_key("1", "line/7"): b"",
        records.group_key("2", "line/7"): b"",
    }
    found = [(each.type, each.subject, each.data) for each in records.withdrawals(state)]
    about = {"session": "1", "name": "ann", "resource": "a / 2 > 1", "served": False}
    other = {"session": "2", "name": "bøb", "resource": "params/m7", "served": True}
    assert found == [
        ("tocsin.unadvertised", None, about),
        ("tocsin.unadvertised", None, other),
        ("tocsin.view", "line/7", {"members": [], "joined": [], "left": ["ann", "bøb"]}),
        ("tocsin.session", None, {"session": "1", "name": "ann", "state": "crashed"}),
        ("tocsin.session", None, {"session": "2", "name": "bøb", "state": "crashed"}),
    ]

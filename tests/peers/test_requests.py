"""Which server is asked, and how a request ends, told by hand what happens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import (
    EventError,
    NoServer,
    OverloadError,
    PeerError,
    RequestError,
    RequestFailed,
    RequestTimeout,
    ServerLost,
)
from tocsin.peers import requests, servers
from tocsin.peers.requests import MAX_ATTEMPTS, Call, check_name, pack, unpack
from tocsin.peers.servers import Server, Servers


def pool(count: int, resource: str = "r") -> tuple[Servers, list[Server]]:
    all = Servers()
    made = [Server(resource, f"s{n}", f"n{n}", lambda request: None) for n in range(count)]
    for server in made:
        all.add(server)
    return all, made


def call(policy: str = "one", data: Any = None) -> Call:
    return Call("r", pack(data), "me", policy)


# Choice


def test_idle_servers_take_turns() -> None:
    all, made = pool(3)
    asked = []
    for _ in range(9):
        [server] = call().start(all)
        server.in_hand.clear()
        asked.append(server)
    assert asked == made * 3


def test_fewest_in_hand_first() -> None:
    all, made = pool(3)
    all.take(made[0], "x")
    all.take(made[0], "y")
    all.take(made[1], "z")
    assert [call().start(all) for _ in range(3)] == [[made[2]], [made[1]], [made[2]]]


@given(st.lists(st.integers(0, 3), max_size=40))
def test_load_never_differs_by_more_than_one(endings: list[int]) -> None:
    """As long as servers only get requests: their loads are level. When one is done it is preferred."""
    all, made = pool(4)
    for _ in endings:
        call().start(all)
    loads = [len(server.in_hand) for server in made]
    assert max(loads) - min(loads) <= 1
    for place in endings:
        made[place].in_hand.clear()
        [asked] = call().start(all)
        assert len(asked.in_hand) == 1 + min(len(server.in_hand) - (server is asked) for server in made)


def test_a_full_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MAX_IN_HAND", 2)
    all, made = pool(2)
    assert Counter(call().start(all)[0].name for _ in range(4)) == {"n0": 2, "n1": 2}
    with pytest.raises(OverloadError, match="no room") as error:
        call().start(all)
    assert error.value.help
    made[0].in_hand.clear()
    assert call("first").start(all) == [made[0]]
    with pytest.raises(OverloadError):  # all means all
        call("all").start(all)


def test_one_session_serves_a_resource_once() -> None:
    all, _ = pool(1)
    all.check("r", "s1")
    with pytest.raises(PeerError, match="already"):
        all.check("r", "s0")


# Policies


def test_one() -> None:
    all, [server, _] = pool(2)
    asking = call(data={"x": 1})
    assert asking.start(all) == [server] and not asking.is_over
    assert asking.request().data == {"x": 1} and asking.request().sender == "me"
    asking.replied(server, pack([2]))
    assert asking.is_over and asking.result() == [2]


def test_first_reply_wins_and_later_ones_are_dropped() -> None:
    all, [a, b, c] = pool(3)
    asking = call("first")
    assert asking.start(all) == [a, b, c]
    asking.failed(a, "no")
    assert not asking.is_over
    asking.replied(c, pack("c"))
    asking.replied(b, pack("b"))
    assert asking.is_over and asking.result() == "c"


def test_first_fails_when_all_have() -> None:
    all, [a, b] = pool(2)
    asking = call("first")
    asking.start(all)
    asking.failed(a, "one")
    asking.failed(b, "two")
    assert asking.is_over
    with pytest.raises(RequestFailed, match="'n1' failed to answer for 'r': two"):
        asking.result()


def test_all_gives_replies_in_order_of_servers() -> None:
    all, [a, b, c] = pool(3)
    asking = call("all")
    asking.start(all)
    for server in (c, a, b):
        assert not asking.is_over
        asking.replied(server, pack(server.name))
    assert asking.result() == ["n0", "n1", "n2"]


def test_all_with_one_that_fails_or_is_lost_says_so_and_keeps_the_rest() -> None:
    for how, kind in ((lambda each, server, _: each.failed(server, "no"), RequestFailed), (Call.lost, ServerLost)):
        all, [a, b, c] = pool(3)
        asking = call("all")
        asking.start(all)
        asking.replied(c, pack(3))
        all.remove(b)
        how(asking, b, all)
        asking.replied(a, pack(None))
        with pytest.raises(kind) as error:
            asking.result()
        assert error.value.replies == [None, 3]


def test_nobody_serves() -> None:
    with pytest.raises(NoServer, match="nobody serves 'r'") as error:
        call().start(Servers())
    assert error.value.help


# Servers that go


@pytest.mark.parametrize("policy", ["one", "first"])
def test_a_lost_request_goes_to_another(policy: str) -> None:
    all, [a] = pool(1)
    asking = call(policy)
    asking.start(all)
    late = Server("r", "late", "late", lambda request: None)
    all.add(late)
    all.remove(a)
    assert asking.lost(a, all) == [late] and not asking.is_over
    again = asking.request()
    assert again.attempt == 2 and again.id == asking.id
    asking.replied(a, pack("too late: it was lost"))
    assert not asking.is_over
    asking.replied(late, pack("here"))
    assert asking.result() == "here"


def test_lost_and_no_other() -> None:
    all, [a] = pool(1)
    asking = call()
    asking.start(all)
    all.remove(a)
    assert asking.lost(a, all) == [] and asking.is_over
    with pytest.raises(ServerLost, match="'n0' was lost") as error:
        asking.result()
    assert "twice" in str(error.value.help)


def test_a_request_that_kills_servers_does_not_kill_all_of_them() -> None:
    all, made = pool(10)
    asking = call()
    asked = asking.start(all)
    lost = 0
    while asked:
        [server] = asked
        all.remove(server)
        asked = asking.lost(server, all)
        lost += 1
    assert lost == MAX_ATTEMPTS and asking.is_over


def test_time_up() -> None:
    all, [a, b] = pool(2)
    asking = call("all")
    asking.start(all)
    asking.replied(a, pack(1))
    error = asking.timed_out(2.0)
    assert isinstance(error, RequestTimeout | TimeoutError)
    assert error.replies == [1] and "'n1' did not answer for 'r' within 2 s" in str(error)


@given(st.sampled_from(["one", "first", "all"]), st.lists(st.tuples(st.sampled_from("rfl"), st.integers(0, 3))))
def test_it_always_ends(policy: str, happenings: list[tuple[str, int]]) -> None:
    """Whatever happens to servers, a call is over with a result or a typed error once all of them have answered."""
    all, made = pool(4)
    asking = call(policy)
    waiting = list(asking.start(all))
    for what, place in [*happenings, *(("l", n) for n in range(4))]:
        server = made[place]
        if what == "r":
            asking.replied(server, pack(place))
        elif what == "f":
            asking.failed(server, "no")
        else:
            all.remove(server)
            waiting += asking.lost(server, all)
    assert asking.is_over
    try:
        asking.result()
    except RequestError as error:
        assert isinstance(error, RequestFailed | ServerLost)


# What may be asked


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", 7, None])
def test_names(name: Any) -> None:
    with pytest.raises(PeerError, match="no name for a resource"):
        check_name(name)


def test_policies() -> None:
    with pytest.raises(PeerError, match="policy is 'some'") as error:
        call("some")
    assert error.value.field == "policy"


def test_data_travels_as_a_copy() -> None:
    for data in ({"a": [1, 2.5, None, "é"]}, b"\x00", "text", None, True):
        assert unpack(pack(data)) == data
    data = [1]
    assert unpack(pack(data)) is not data
    assert unpack(pack((1, 2))) == [1, 2]


@pytest.mark.parametrize("data", [object(), {1: 2}, 2**70, {"a": b"x"}, "x" * (requests.MAX_BYTES + 1)])
def test_what_cannot_travel_is_refused(data: Any) -> None:
    with pytest.raises(EventError) as error:
        pack(data)
    assert error.value.help


def test_a_long_message_is_cut() -> None:
    all, [a] = pool(1)
    asking = call()
    asking.start(all)
    asking.failed(a, "x" * 100_000)
    with pytest.raises(RequestFailed) as error:
        asking.result()
    assert len(str(error.value)) < 3000

"""The past: what a bound selects, how little is read for it, and scanning forward.

Scenarios S11 to S44 are those of the digest on subscribing into the past.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.past import MINUTE, NOON, SECOND, LostBlock, PastJournal, stored
from tocsin.clock import ManualClock, as_datetime
from tocsin.errors import TrimmedError
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.journal import history, rows
from tocsin.journal.bounds import Bound, last, parse, retained, since, within
from tocsin.journal.contract import Request
from tocsin.journal.history import Report
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.sqlite import SqliteJournal
from tocsin.journal.window import HotWindow
from tocsin.model import Event

RATES = Filter("type = 'rate' AND pair = 'USD/EUR'")
ALL = Filter("TRUE")


def rate(value: float, pair: str = "USD/EUR") -> Event:
    return Event("rate", "desk", data={"pair": pair, "value": value})


def search(journal: PastJournal, wanted: Filter, bound: Bound | str, now: int = NOON, **options: object) -> list[int]:
    found = parse(bound) if isinstance(bound, str) else bound
    options = {"upto": journal.head} | options
    return history.search(journal, wanted, found, now=now, **options)  # type: ignore[arg-type]


def minutes(*before_noon: float, size: int = 100) -> PastJournal:
    """Rates that arrived so many minutes before noon."""
    times = [NOON - round(each * MINUTE) for each in before_noon]
    return PastJournal(stored([rate(1)] * len(times), arrived=times), size)


# -- scenarios of the digest


@pytest.mark.parametrize("size", [1, 2, 100])
def test_s11_the_newest_rate_comes_first(size: int) -> None:
    journal = PastJournal(stored([rate(1.30), rate(1.31), rate(1.32)]), size)
    assert search(journal, RATES, last(1)) == [3]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_s12_ten_and_twenty_of_fifteen_oldest_first(size: int) -> None:
    journal = PastJournal(stored([rate(number) for number in range(15)]), size)
    assert search(journal, RATES, last(10)) == list(range(6, 16))
    assert search(journal, RATES, last(20)) == list(range(1, 16))


@pytest.mark.parametrize("size", [1, 100])
def test_s13_five_minutes_at_noon(size: int) -> None:
    journal = minutes(6, 4, 1, size=size)
    assert search(journal, RATES, "5m") == [2, 3]


def test_s13_the_border_is_inside() -> None:
    assert search(minutes(5, 4), RATES, "5m") == [1, 2]
    assert search(minutes(5 + 1e-6, 4), RATES, "5m") == [2]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_s14_ten_within_five_minutes(size: int) -> None:
    many = minutes(*(4 - number / 10 for number in range(30)), size=size)
    assert search(many, RATES, "10,5m") == list(range(21, 31))
    few = minutes(9, 8, 7, 6, 4, 3, 2, 1, size=size)
    assert search(few, RATES, "10,5m") == [5, 6, 7, 8]


def test_s14_the_search_stops_at_the_first_older_arrival() -> None:
    journal = minutes(*(60 - number / 2 for number in range(60)), *(4, 3, 2, 1), size=4)
    before = journal.reads
    report = Report()
    assert len(search(journal, RATES, "10,5m", report=report)) == 4
    assert report.read == 1
    assert journal.reads - before <= 3  # finding the moment reads too, in this journal


def test_s15_nothing_there() -> None:
    for journal in (PastJournal(), PastJournal(stored([Event("other", "s")]))):
        for text in ("1", "5m", "10,5m", "since:0", "since:1", "since:2026-01-01T00:00:00Z", "retained"):
            assert search(journal, RATES, text) == []


@pytest.mark.parametrize("size", [3, 50, 2000])
def test_s18_frequent_events_do_not_drive_out_rare_ones(size: int) -> None:
    rare = [rate(number, "USD/ISK") for number in range(5)]
    journal = PastJournal(stored(rare + [rate(number) for number in range(1000)]), size)
    assert search(journal, Filter("pair = 'USD/ISK'"), last(10)) == [1, 2, 3, 4, 5]
    assert search(journal, Filter("pair = 'USD/ISK'"), last(2)) == [4, 5]


@pytest.mark.parametrize("size", [2, 100])
def test_s20_a_filter_never_asked_before_sees_its_own_events_only(size: int) -> None:
    """F lies within G and H, which overlap: its past is in arrival order, without doubles and without the rest."""
    f, g, h = Filter("value > 5 AND value < 8"), Filter("value > 5"), Filter("value < 8")
    journal = PastJournal(stored([rate(value) for value in (6, 9, 7, 1, 7, 12, 6)]), size)
    assert search(journal, g, last(99)) == [1, 2, 3, 5, 6, 7]
    assert search(journal, h, last(99)) == [1, 3, 4, 5, 7]
    assert search(journal, f, last(99)) == [1, 3, 5, 7]
    assert search(journal, f, last(3)) == [3, 5, 7]


# -- what a bound selects


def test_n_counts_events_that_match_this_filter() -> None:
    events = [rate(number, "USD/EUR" if number % 3 == 0 else "USD/CHF") for number in range(30)]
    journal = PastJournal(stored(events), 8)
    assert search(journal, RATES, last(3)) == [22, 25, 28]


def test_since_is_inclusive() -> None:
    journal = minutes(4, 3, 2, 1, size=3)
    assert search(journal, RATES, since(3)) == [3, 4]
    assert search(journal, RATES, since(0)) == [1, 2, 3, 4]
    assert search(journal, RATES, since(5)) == []
    assert search(journal, RATES, since(as_datetime(NOON - 3 * MINUTE))) == [2, 3, 4]
    assert search(journal, RATES, since(as_datetime(NOON - 3 * MINUTE + 1))) == [3, 4]


def test_nothing_beyond_upto_counts() -> None:
    journal = PastJournal(stored([rate(number) for number in range(20)]), 8)
    assert search(journal, RATES, last(3), upto=10) == [8, 9, 10]
    assert search(journal, RATES, retained(), upto=4) == [1, 2, 3, 4]
    assert search(journal, RATES, since(3), upto=4) == [3, 4]
    assert search(journal, RATES, last(3), upto=0) == []


@pytest.mark.parametrize("size", [1, 40])
def test_retained_is_what_has_not_expired(size: int) -> None:
    lives = [None, 60, 120, 121, 0.5, None] * 6
    events = [Event("a", "s", ttl=ttl) for ttl in lives]
    journal = PastJournal(stored(events, arrived=[NOON] * len(events)), size)
    now = NOON + 120 * SECOND  # a time to live of 120 s is over at this very moment
    found = search(journal, Filter("type = 'a'"), retained(), now)
    assert found == [place + 1 for place, ttl in enumerate(lives) if ttl in (None, 121)]
    assert len(search(journal, Filter("type = 'a'"), last(99), now)) == 36  # other bounds leave it to `alive`


def test_blocks_whose_events_have_all_expired_are_not_read() -> None:
    events = [Event("a", "s", ttl=5)] * 200 + [Event("a", "s")] * 50
    journal = PastJournal(stored(events, arrived=[NOON] * 250), 50)
    report = Report()
    assert len(search(journal, Filter("type = 'a'"), retained(), NOON + 6 * SECOND, report=report)) == 50
    assert (report.skipped, report.read) == (4, 1)


@pytest.mark.parametrize("size", [1, 64])
def test_the_dead_do_not_count(size: int) -> None:
    journal = PastJournal(stored([rate(number) for number in range(60)]), size)
    asked: list[int] = []

    def alive(event: Event) -> bool:
        asked.append(event.offset or 0)
        assert event.arrived is not None
        return (event.offset or 0) % 2 == 1

    assert search(journal, RATES, last(3), alive=alive) == [55, 57, 59]
    assert min(asked) > 20  # not everything is asked
    assert search(journal, RATES, retained(), alive=alive) == list(range(1, 60, 2))


@pytest.mark.parametrize("size", [1, 64])
def test_system_records_are_hidden_unless_asked_for(size: int) -> None:
    events = [Event("tocsin.clock" if number % 2 else "a", "s") for number in range(40)]
    journal = PastJournal(stored(events), size)
    assert search(journal, ALL, last(3)) == [35, 37, 39]
    assert search(journal, ALL, last(3), system=True) == [38, 39, 40]
    assert search(journal, Filter("type = 'tocsin.clock'"), last(1)) == []
    assert search(journal, Filter("type = 'tocsin.clock'"), last(1), system=True) == [40]


def test_what_was_trimmed_is_passed_over() -> None:
    journal = PastJournal(stored([rate(number) for number in range(100)]), 30)
    journal.trim(40)
    for bound in (last(1000), since(0), since(5), since(31), retained()):
        assert search(journal, RATES, bound)[0] == 31
    assert search(journal, RATES, since(32))[0] == 32


def test_trimming_may_come_between() -> None:
    class Hasty(PastJournal):
        """It is trimmed just after it was asked where it begins."""

        def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False):
            if self.first == 1:
                self.trim(70)
            return super().blocks(first, last, backwards=backwards)

    journal = Hasty(stored([rate(number) for number in range(100)]), 30)
    assert search(journal, RATES, since(5))[0] == 61
    with pytest.raises(TrimmedError):
        journal.blocks(5)


@pytest.mark.parametrize("large", [False, True])
def test_trimming_may_overtake_a_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """What is left is found, the rest is passed over: who trims knows that nobody needs it."""
    monkeypatch.setattr("tocsin.journal.reader._PAGE", 4)
    padding = "x" * 100_000 if large else ""  # a large block is read when its events are asked for, not before
    with SqliteJournal(tmp_path / "j.db", merge=False) as journal:

        def trimming(event: Event) -> bool:
            """Trim up to 10 before the end, as soon as anything was found."""
            journal.trim(50)
            return True

        for number in range(60):
            journal.append([Event("rate", "desk", data={"pair": "USD/EUR", "value": number, "more": padding})])
        scan = history.scan(journal, {0: RATES}, 2, journal.head)
        first, *_ = next(scan)
        journal.trim(30)
        assert (first, [offset for offset, *_ in scan][-31:]) == (2, list(range(30, 61)))
        pieces = history.pieces(journal, RATES, since(31), now=NOON, upto=60)
        assert next(pieces) == [31]
        journal.trim(40)
        assert [offset for piece in pieces for offset in piece][-21:] == list(range(40, 61))
        found = history.search(journal, RATES, last(60), now=NOON, upto=60, alive=trimming)
        assert found[-11:] == list(range(50, 61))


def test_a_lost_block_holds_nothing() -> None:
    events = stored([rate(number) for number in range(90)])
    journal = PastJournal(events, 30)
    journal.parts[1] = LostBlock(events[30:60])
    assert search(journal, RATES, last(50)) == [*range(11, 31), *range(61, 91)]
    assert [offset for offset, _, _ in history.scan(journal, {1: RATES}, 25, 65)] == [*range(25, 31), *range(61, 66)]


# -- what it costs


def test_last_reads_the_newest_block_and_little_of_it() -> None:
    journal = PastJournal(stored([rate(number) for number in range(2000)]), 500)
    report = Report()
    assert search(journal, RATES, last(5), report=report) == [1996, 1997, 1998, 1999, 2000]
    assert (report.read, report.found, report.made) == (1, 5, 0)
    assert report.decoded == 64


def test_tests_of_the_envelope_decode_nothing() -> None:
    events = [Event(f"t{number % 4}", "s", priority=1 + number % 10, subject="x") for number in range(400)]
    journal = PastJournal(stored(events), 100)
    report = Report()
    text = "type IN ('t1', 't3') AND priority > 5 AND endswith(subject, 'x') AND ttl IS NULL AND persistent"
    found = search(journal, Filter(text), retained(), report=report)
    assert found == [place + 1 for place, each in enumerate(events) if each.type in ("t1", "t3") and each.priority > 5]
    assert (report.decoded, report.made, report.rows) == (0, 0, 400)


def test_only_rows_that_the_envelope_admits_are_decoded() -> None:
    journal = PastJournal(stored([Event(f"t{number % 4}", "s", data={"x": number}) for number in range(400)]), 100)
    report = Report()
    assert search(journal, Filter("type = 't1' AND x > 200"), retained(), report=report) == list(range(202, 401, 4))
    assert report.decoded == 50
    assert report.skipped == 2


def test_a_filter_of_many_alternatives() -> None:
    """Asked by an index over them, and the same answer."""
    events = [Event(f"t{number % 3}", "s", data={"x": number, "y": number % 7}) for number in range(200)]
    wanted = Filter(" OR ".join(f"(type = 't{n % 3}' AND x > {5 * n} AND y = {n % 7})" for n in range(30)))
    journal = PastJournal(stored(events), 100)
    found = [place + 1 for place, event in enumerate(events) if wanted.matches(event)]
    assert 0 < len(found) < 150
    assert search(journal, wanted, retained()) == found
    assert search(journal, wanted, last(4)) == found[-4:]


def test_blocks_that_cannot_match_are_not_read() -> None:
    journal = PastJournal(stored([rate(number) for number in range(1000)]), 50)
    before, report = journal.reads, Report()
    assert search(journal, Filter("value BETWEEN 100 AND 120"), last(5), report=report) == [117, 118, 119, 120, 121]
    assert (report.skipped, report.read) == (17, 1)
    assert journal.reads - before == 1
    untold = PastJournal(stored([rate(number) for number in range(1000)]), 50, told=False)
    assert search(untold, Filter("value BETWEEN 100 AND 120"), last(5)) == [117, 118, 119, 120, 121]


def test_pieces_are_small_and_in_order() -> None:
    journal = PastJournal(stored([rate(number) for number in range(3000)]), 500)
    for bound in (retained(), last(2500), since(10)):
        found = history.pieces(journal, RATES, bound, now=NOON, upto=journal.head)
        lists = list(found)
        assert max(map(len, lists)) <= 500
        assert [each for piece in lists for each in piece] == search(journal, RATES, bound)
    assert next(history.pieces(journal, RATES, retained(), now=NOON, upto=3000))[0] == 1


# -- scanning forward


@pytest.mark.parametrize("size", [1, 10, 60])
@pytest.mark.parametrize("extra", [0, 30])
def test_scan_gives_events_with_their_keys(size: int, extra: int) -> None:
    events = stored([rate(number, "A" if number % 2 else "B") for number in range(100)])
    journal = PastJournal(events, size)
    filters = {"a": Filter("pair = 'A'"), "high": Filter("value >= 90")}
    filters |= {f"never {number}": Filter(f"value = {1000 + number}") for number in range(extra)}
    found = [(offset, event, sorted(keys)) for offset, event, keys in history.scan(journal, filters, 31, 95)]
    expected = [
        (event.offset, event, keys)
        for event in events[30:95]
        if (keys := [key for key, each in sorted(filters.items()) if each.matches(event)])
    ]
    assert found == expected


def test_scan_takes_a_matcher() -> None:
    journal = PastJournal(stored([rate(number) for number in range(100)]), 40)
    matcher = Matcher([(7, "value > 95"), (8, "value > 97")])
    found = [(offset, sorted(keys)) for offset, _, keys in history.scan(journal, matcher, 1, 99)]
    assert found == [(97, [7]), (98, [7]), (99, [7, 8])]


@pytest.mark.parametrize("size", [1, 40])
def test_scan_of_some_priorities(size: int) -> None:
    events = [Event("tocsin.x" if number == 9 else "a", "s", priority=1 + number // 10) for number in range(100)]
    journal = PastJournal(stored(events), size)
    report = Report()
    wanted = {1: Filter("type LIKE '%'")}
    found = [each[0] for each in history.scan(journal, wanted, 1, 100, [10, 1], report=report)]
    assert found == [*range(1, 10), *range(91, 101)]
    assert report.found == 19
    assert [each[0] for each in history.scan(journal, wanted, 1, 100, 3)] == list(range(21, 31))
    if size == 40:
        assert report.skipped == 1
    assert len(list(history.scan(journal, wanted, 1, 100, system=True))) == 100


def test_scan_skips_blocks() -> None:
    journal = PastJournal(stored([rate(number) for number in range(1000)]), 50)
    report = Report()
    filters = {1: Filter("value = 120"), 2: Filter("value = 910")}
    assert [each[0] for each in history.scan(journal, filters, 1, 1000, report=report)] == [121, 911]
    assert (report.skipped, report.read, report.made) == (18, 2, 2)
    assert list(history.scan(journal, {}, 1, 1000)) == []


def test_a_journal_in_memory_has_a_past_too() -> None:
    clock = ManualClock(as_datetime(NOON))
    journal = MemoryJournal(clock=clock)
    for number in range(5):
        journal.submit(Request(NOON + number * MINUTE, [rate(number), rate(number, "USD/CHF")]))
    now = NOON + 5 * MINUTE
    assert history.search(journal, RATES, last(2), now=now, upto=journal.head) == [7, 9]
    assert history.search(journal, RATES, parse("2m"), now=now, upto=journal.head) == [7, 9]
    assert history.search(journal, RATES, within(3 * parse("1m").t), now=now, upto=8) == [5, 7]


def test_a_journal_on_disk_merged_or_not(tmp_path: Path) -> None:
    events = [rate(number, "A" if number % 2 else "B") for number in range(600)]
    with SqliteJournal(tmp_path / "past.db", merge=False) as journal:
        for start in range(0, 600, 40):
            if start == 400:
                assert journal.merge_now()
            journal.submit(Request(NOON + start * SECOND, events[start : start + 40]))
            journal.append([])  # wait for it
        for text, bound in (
            ("pair = 'A'", "5"),
            ("value < 30", "3"),
            ("value > 590", "retained"),
            ("TRUE", "since:399"),
        ):
            report, wanted = Report(), Filter(text)
            found = history.search(
                journal, wanted, parse(bound), now=NOON + 600 * SECOND, upto=journal.head, report=report
            )
            plain = [place + 1 for place, event in enumerate(events) if wanted.matches(event)]
            expected = {"5": plain[-5:], "3": plain[-3:], "retained": plain, "since:399": plain[398:]}[bound]
            assert found == expected
            assert report.read <= 6
        assert history.search(journal, ALL, parse("50s"), now=NOON + 600 * SECOND, upto=600) == list(range(561, 601))
        window = HotWindow(0, journal)
        assert [event and event.data["value"] for event in window.get_many([1, 399, 600, 601])] == [0, 398, 599, None]
        assert [each[0] for each in history.scan(journal, {1: Filter("value IN (7, 410)")}, 1, 600)] == [8, 411]


def test_expires() -> None:
    (event,) = stored([Event("a", "s", ttl=1.5)], arrived=[NOON])
    assert rows.expires(event) == NOON + 1_500_000
    assert rows.expires(event.replace(ttl=None)) is None
    assert rows.expires(Event("a", "s", ttl=1)) is None

"""The file of tokens: what is kept, who is let in, what happens to a file that is damaged."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tocsin.clock import as_micros
from tocsin.errors import TokenError
from tocsin.security import tokens
from tocsin.security.limits import Allowance
from tocsin.security.tokens import Denied, TokenStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = as_micros(NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def why(store: TokenStore, text: str | None, now: int = MOMENT) -> str:
    try:
        store.find(text, now)
    except Denied as denied:
        return denied.why
    return "let in"


def test_a_token_is_found_again_also_by_another_store(path: Path) -> None:
    text, token = TokenStore(path).add("line-7", ["publish:machine."], clearance="secret", limits=Allowance(events=5))
    assert TokenStore(path).find(text, MOMENT) == token
    assert (token.name, token.rights, token.clearance, token.limits.events) == (
        "line-7", ["publish:machine."], "secret", 5,
    )  # fmt: skip


def test_256_random_bits(path: Path) -> None:
    store = TokenStore(path)
    texts = [store.add("a", ["metrics"])[0] for _ in range(20)]
    secrets = [text.split("_")[2] for text in texts]
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets) and len(set(secrets)) == 20
    assert len({text.split("_")[1] for text in texts}) == 20


def test_neither_the_file_nor_a_repr_holds_the_secret(path: Path) -> None:
    store = TokenStore(path)
    text, token = store.add("ops", ["subscribe:*"])
    kept = path.read_text()
    assert text not in kept and text.split("_")[2] not in kept
    assert token.digest == hashlib.sha256(text.encode()).hexdigest() and token.digest in kept
    for shown in (repr(token), repr(store), str(Denied("wrong").error)):
        assert text.split("_")[2] not in shown and token.digest not in shown


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        TokenStore(path).add("ops", ["metrics"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir() if "tokens" in each.name and each != path] == [
        "tokens.json.lock"
    ]


def test_who_is_not_let_in(path: Path) -> None:
    store = TokenStore(path)
    text, token = store.add("ops", ["metrics"], expires=NOW + timedelta(days=1), now=NOW)
    other, _ = store.add("other", ["metrics"])
    assert why(store, text) == "let in"
    assert why(store, None) == why(store, "") == "missing"
    mark, id, secret = text.split("_")
    mixed = f"{mark}_{id}_{other.split('_')[2]}"
    flipped = f"{text[:-1]}{'0' if text[-1] != '0' else '1'}"
    for wrong in (mixed, flipped, text[:-1], text + "0", text.upper(), f" {text}", id, secret, token.digest, "x",
                  "_" * 9, "toc__", "\ud800", "é" * 1000, "0" * 64):  # fmt: skip
        assert why(store, wrong) == "wrong", wrong
    assert why(store, text, MOMENT + 86_400 * 10**6 - 1) == "let in"
    assert why(store, text, MOMENT + 86_400 * 10**6) == "expired"
    assert [each.id for each in store.revoke("ops")] == [token.id]
    assert why(store, text) == "revoked" and why(store, other) == "let in"
    assert store.revoke("ops") == []  # again does no harm


def test_digests_are_compared_in_constant_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for an id that nobody has: so time does not tell which there are."""
    store = TokenStore(path)
    text, token = store.add("ops", ["metrics"])
    asked: list[tuple[Any, Any]] = []

    def compare(a: Any, b: Any) -> bool:
        asked.append((a, b))
        return hmac.compare_digest(a, b)

    class Spied:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(tokens, "hmac", Spied)
    assert why(store, text) == "let in"
    assert why(store, "toc_000000000000_" + "0" * 64) == "wrong"
    assert why(store, "nothing like it") == "wrong"
    assert len(asked) == 3 and all(len(a) == len(b) == 64 for a, b in asked)
    assert asked[0] == (token.digest, token.digest)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b'{"version": 1}',
        b'{"version": 2, "tokens": []}',
        b'{"version": 1, "tokens": [{"id": "a"}]}',
        b"[]",
        b"\xff\xfe",
        b"null",
        "half",
        "rights",
        "clearance",
        "unknown",
        "writable",
        "gone",
        "directory",
    ],
)
def test_a_damaged_file_lets_nobody_in(path: Path, damaged: bytes | str) -> None:
    store = TokenStore(path)
    text, _ = store.add("ops", ["metrics"])
    whole = path.read_bytes()
    if damaged == "half":
        path.write_bytes(whole[: len(whole) // 2])
    elif damaged == "rights":
        path.write_bytes(whole.replace(b"metrics", b"magic"))
    elif damaged == "clearance":
        path.write_bytes(whole.replace(b'"rights"', b'"clearance": "cosmic", "rights"'))
    elif damaged == "unknown":  # somebody means something by it that this program does not know
        path.write_bytes(whole.replace(b'"rights"', b'"only_from": "10.0.0.1", "rights"'))
    elif damaged == "writable":
        path.chmod(0o666)
    elif damaged in ("gone", "directory"):
        path.unlink()
        if damaged == "directory":
            path.mkdir()
    else:
        assert isinstance(damaged, bytes)
        path.write_bytes(damaged)
    store.look(now=True)
    assert why(store, text) == why(store, None) == "unreadable"
    assert store.is_used and store.problem is not None and str(path) in store.problem.message
    with pytest.raises(TokenError):
        store.add("more", ["metrics"])  # it would overwrite what may be mended
    if damaged != "gone":
        with pytest.raises(TokenError):
            TokenStore(path)
    if path.is_dir():
        path.rmdir()
    path.write_bytes(whole)
    path.chmod(0o600)
    store.look(now=True)
    assert why(store, text) == "let in"


def test_changes_of_another_process_are_seen_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    served, other = TokenStore(path), TokenStore(path)
    assert why(served, None) == "missing"
    text, _ = other.add("ops", ["metrics"])
    moment[0] += 0.49
    assert why(served, text) == "wrong"  # not looked at again yet
    moment[0] += 0.01
    assert why(served, text) == "let in" and served.is_used
    other.revoke("ops")
    moment[0] += 0.5
    assert why(served, text) == "revoked"


def test_writers_take_turns(path: Path) -> None:
    stores = [TokenStore(path) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda store=store: [store.add("ops", ["metrics"]) for _ in range(10)])
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(json.loads(path.read_bytes())["tokens"]) == 40


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"rights": []}, "rights"),
        ({"rights": ["publish"]}, "rights"),
        ({"clearance": "cosmic"}, "clearance"),
        ({"expires": NOW}, "expires"),
    ],
)
def test_a_token_that_means_nothing_is_not_made(path: Path, change: dict[str, Any], field: str) -> None:
    given = {"name": "ops", "rights": ["metrics"], **change}
    with pytest.raises(TokenError) as raised:
        TokenStore(path).add(given.pop("name"), given.pop("rights"), now=NOW, **given)
    assert raised.value.field == field and not path.exists()

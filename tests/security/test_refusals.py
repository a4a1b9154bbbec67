"""What is written down of refusals, how much of it, and that no secret is."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect as ws_connect

import tocsin
from tests.helpers import event, soon, testing
from tests.security.keys import guarded, http, stranger
from tocsin.errors import ForbiddenError, TocsinError, UnauthorizedError
from tocsin.net.refusals import MOST


async def test_a_refusal_is_logged_counted_and_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path, listens=False) as node:
        caller = node.caller("line-7", "publish:machine.")
        with pytest.raises(ForbiddenError):
            await caller.bus.publish(event("1", type="door.open"))
        [record] = await node.refused()
        token = caller.principal.token
        assert record == {
            "why": "right",
            "what": "your token has no right to publish:door.open",
            "name": "line-7",
            "token": token.id,
            "where": "127.0.0.1",
            "suppressed": 0,
        }
        [line] = [each.getMessage() for each in caplog.records if each.name == "tocsin.audit"]
        assert "line-7" in line and "door.open" in line and token.id in line
        assert node.server.gate.refusals.counts == {"right": 1}


async def test_a_flood_does_not_fill_the_journal(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        gate = node.server.gate
        one, two = node.caller("one", "publish:machine."), node.caller("two", "publish:machine.")
        for number in range(500):
            for caller in (one, two):
                with pytest.raises(ForbiddenError):
                    await caller.bus.publish(event("1", type=f"door.{number}"))
            with pytest.raises(UnauthorizedError):  # strangers, each under a name of its own
                gate.admit(f"toc_{number}_x", f"name-{number}", f"10.0.0.{number}", "x")
        assert len(await node.refused()) == 3 * MOST
        assert gate.refusals.counts == {"right": 1000, "wrong": 500}
        node.clock.advance(60)
        with pytest.raises(ForbiddenError):
            await one.bus.publish(event("1", type="door.x"))
        assert (await node.refused())[-1]["suppressed"] == 490
        assert len(gate.refusals._kinds) == 3


async def test_what_strangers_say_is_cut_to_size(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        node.server.gate.refusals.note("wrong", "x\n\x1b[2Jfake line\r" + "y" * 10_000, name="n\u2028\x00", where="w")
        [record] = await node.refused()
        assert len(record["what"]) == 200 and record["what"].isprintable() and record["name"].isprintable()


async def test_a_refusal_that_cannot_be_stored_is_a_refusal_all_the_same(tmp_path: Path) -> None:
    async with guarded(tmp_path, listens=False) as node:
        caller = node.caller("a", "publish:machine.")
        await testing.crash(node.bus)
        with pytest.raises(ForbiddenError):
            await caller.bus.publish(event("1", type="door.x"))


async def test_no_secret_is_logged_or_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the loudest level, in good and bad times, over every way in."""
    for logger in ("", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        caplog.set_level(1, logger)
    url = f"file:{tmp_path / 'plant.db'}"
    async with guarded(tmp_path, url=url) as node:
        token = node.token("a", "subscribe:*", "publish:machine.")
        secret = token.split("_")[2]
        wrong = token[:-4] + "beef"
        async with node.connect(token) as bus:
            await bus.publish(event("1", type="machine.a"))
            with pytest.raises(ForbiddenError) as refused:
                await bus.publish(event("1", type="door.a"))
            shown = [repr(bus), repr(vars(bus)["_link"]), str(refused.value), repr(refused.value)]
        for bad in (wrong, token[:-1]):
            with pytest.raises(UnauthorizedError) as raised:
                async with node.connect(bad):
                    pass
            shown += [str(raised.value), repr(raised.value.as_dict())]
            await http(node.url + "/alerts", token=bad)
            await http(f"{node.url}/subscribe?token={bad}")
            await http(f"{node.url}/alerts?token={token}")
            async with ws_connect(f"{node.url}/bus?token={token}", compression=None) as socket:
                await socket.send('{"op": "hello", "version": 1}')
                assert "is needed" in str(await soon(socket.recv())), "in a url it does not count"
            async with stranger(node.url, None) as raw:
                await raw.say(op="hullo", version=1, token=bad)
                shown.append(str(await raw.hear()))
        await http(node.url + "/alerts", token=token)
        await http(node.url + "/alerts", token=token + " \x7f")
        node.store.revoke("a")
        with pytest.raises(TocsinError):
            async with node.connect(token):
                pass
        records = str(await node.refused())
    server = [each for each in caplog.records if not each.name.startswith("websockets")]
    assert any(each.name == "tocsin.audit" for each in server)
    text = "\n".join(f"{each.getMessage()} {each.exc_text or ''}" for each in server)
    for piece in (secret, secret[:-4], secret[8:40]):
        assert piece not in text and piece not in records and not any(piece in each for each in shown)
    assert not [name for name, content in _files(tmp_path).items() if secret[8:40].encode() in content]
    assert "plant.db" in _files(tmp_path)


def _files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}


async def test_a_token_over_the_open_network_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(tocsin.NetworkError):
        async with tocsin.connect("ws://192.0.2.1.invalid:1", token="toc_hush_hush"):
            pass
    assert "without TLS" in caplog.text and "hush" not in caplog.text

"""Tokens: who may come in, kept in one file beside the journal.

A token is `toc_`, an id, `_` and 256 random bits. Kept is the SHA-256 of it and nothing it could be made of again. A
slow hash, as passwords need, would protect nothing more: what it makes dear is trying likely secrets, and among 2^256
random ones none is likely. So checking a token costs microseconds, and nobody can wear the node out with wrong ones.

The file is written whole or not at all, for its owner's eyes alone, by one writer at a time. A node looks at it every
half second, so what is added or revoked by the command line holds at once, without a restart.

Promised: once a store has had a token, it is never as if there were none: a file that is gone or cannot be read lets
nobody in. A revoked token stays in the file, so that what it did can still be told by its id.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from tocsin.clock import as_micros
from tocsin.errors import TokenError, UnauthorizedError
from tocsin.journal import durably
from tocsin.security.limits import Allowance
from tocsin.security.rights import Rights
from tocsin.security.scope import check_clearance

__all__ = ["FILE", "LOOK", "Denied", "Refused", "Token", "TokenStore", "check_name", "refusal"]

FILE: Final = "tokens.json"
"""What the file is called, in a node's data directory."""
LOOK: Final = 0.5
"""Seconds between looks at the file."""
Refused = Literal["missing", "wrong", "expired", "revoked", "unreadable"]
"""Why somebody is not let in; in the audit, never told to who is refused but for what it knows already."""
_VERSION: Final = 1
_MARK: Final = "toc"
_NOBODY: Final = "0" * 64
_LONGEST: Final = 200  # characters of a token that are looked at
_SAID: Final = {
    "missing": ("a token is needed here", "connect with token=…, or set TOCSIN_TOKEN; `tocsin token add` makes one"),
    "wrong": ("this token is not known here", "is it whole, and of this node?"),
    "expired": ("this token has expired", "ask who runs the node for another"),
    "revoked": ("this token was revoked", "ask who runs the node for another"),
    "unreadable": ("nobody is let in at the moment", "tell who runs the node to look at its log"),
}


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is kept of a token."""

    id: str
    name: str
    digest: str
    """SHA-256 of the whole token, in hex."""
    rights: list[str]
    clearance: str = "unclassified"
    limits: Allowance = Allowance()
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def __repr__(self) -> str:
        """Show who, and not what it is checked against."""
        return f"Token({self.id!r}, name={self.name!r}, rights={self.rights!r}, clearance={self.clearance!r})"

    def state(self, now: int) -> Literal["valid", "expired", "revoked"]:
        """Does it hold, at a time in microseconds?"""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and as_micros(self.expires) <= now else "valid"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tokens: list[Token]


def refusal(why: Refused) -> UnauthorizedError:
    """The error for who is not let in."""
    message, help = _SAID[why]
    return UnauthorizedError(message, field="token", help=help)


def check_name(name: str) -> str:
    """A token's name. It has no slash: what stands behind one is for its holder to choose.

    Raises:
        TokenError: it is none.
    """
    if not 0 < len(name) <= 128 or not name.isprintable() or "/" in name:
        raise TokenError(
            f"{name[:80]!r} is no name", field="name", help="use 1 to 128 printable characters, without a slash"
        )
    return name


class TokenStore:
    """The tokens of a node."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look after the file at `path`, which need not be there yet.

        Raises:
            TokenError: it is there and cannot be read.
        """
        self.path = os.fspath(path)
        self.problem: TokenError | None = None
        """Why the file cannot be used now; None: it can."""
        self._tokens: dict[str, Token] = {}
        self._seen: tuple[int, ...] | None = None
        self._looked = 0.0
        self._was_used = False
        self.look(now=True)
        if self.problem is not None:
            raise self.problem

    @property
    def is_used(self) -> bool:
        """Is a token needed? Once there was one it always is, also if all are revoked."""
        return self._was_used

    def all(self) -> list[Token]:
        """Every token, oldest first."""
        return list(self._tokens.values())

    def get(self, id: str) -> Token | None:
        """The token of an id."""
        return self._tokens.get(id)

    # -- letting in

    def look(self, *, now: bool = False) -> bool:
        """Read the file if it has changed, at most every half second; tells whether it was read.

        Args:
            now: look at once.
        """
        moment = time.monotonic()
        if not now and moment - self._looked < LOOK:
            return False
        self._looked = moment
        try:
            about = os.stat(self.path)
        except FileNotFoundError:
            if self._was_used and self.problem is None:
                self.problem = _unreadable(self.path, "it is gone")
            self._seen = None
            return False
        except OSError as error:
            self.problem = _unreadable(self.path, error.strerror or str(error))
            return False
        seen = (about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._tokens = _read(self.path, about.st_mode)
        except TokenError as error:
            self.problem, self._was_used = error, True
        else:
            self.problem = None
            self._was_used = self._was_used or bool(self._tokens)
        return True

    def find(self, text: str | None, now: int) -> Token:
        """The token that somebody shows, at a time in microseconds.

        Raises:
            Denied: it is missing, wrong, expired or revoked, or the file cannot be read.
        """
        self.look()
        if self.problem is not None:
            raise Denied("unreadable")
        if not text:
            raise Denied("missing")
        id = _id_of(text)
        known = self._tokens.get(id)
        # The same work for an id that is not known, so that time does not tell which are.
        is_right = hmac.compare_digest(_digest(text[:_LONGEST]), known.digest if known is not None else _NOBODY)
        if known is None or not is_right:
            raise Denied("wrong")
        state = known.state(now)
        if state != "valid":
            raise Denied(state, known)
        return known

    # -- changing

    def add(
        self,
        name: str,
        rights: Sequence[str],
        *,
        clearance: str = "unclassified",
        limits: Allowance | None = None,
        expires: datetime | None = None,
        now: datetime | None = None,
    ) -> tuple[str, Token]:
        """Make a token; returns its text, which is told once and kept nowhere, and what is kept of it.

        A name may have several: so one can be replaced by the next before it is revoked.

        Raises:
            TokenError: name, rights, clearance or expiry mean nothing, or the file cannot be read.
        """
        check_name(name)
        Rights(rights)
        check_clearance(clearance)
        if not rights:
            raise TokenError("a token without rights is of no use", field="rights", help="give one, as subscribe:*")
        moment = now if now is not None else datetime.now(UTC)
        if expires is not None and expires <= moment:
            raise TokenError("it would have expired already", field="expires", help="give a time to come, as 30d")
        with self._changing():
            id = secrets.token_hex(6)
            text = f"{_MARK}_{id}_{secrets.token_hex(32)}"
            token = Token(
                id=id,
                name=name,
                digest=_digest(text),
                rights=list(rights),
                clearance=clearance,
                limits=limits if limits is not None else Allowance(),
                created=moment,
                expires=expires,
            )
            self._write([*self._tokens.values(), token])
        return text, token

    def revoke(self, who: str, *, now: datetime | None = None) -> list[Token]:
        """Let a token, or all of a name, not hold any more; returns those that did.

        Args:
            who: an id or a name.
            now: when.

        Raises:
            TokenError: there is none, or the file cannot be read.
        """
        moment = now if now is not None else datetime.now(UTC)
        with self._changing():
            meant = [each for each in self._tokens.values() if who in (each.id, each.name)]
            if not meant:
                raise TokenError(f"there is no token {who[:80]!r}", field="who", help="see tocsin token list")
            changed = {each.id: msgspec.structs.replace(each, revoked=moment) for each in meant if each.revoked is None}
            if changed:
                self._write([changed.get(each.id, each) for each in self._tokens.values()])
        return list(changed.values())

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One writer at a time, who has seen what the one before has written."""
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.look(now=True)
            if self.problem is not None:
                raise self.problem
            yield
        finally:
            os.close(lock)

    def _write(self, tokens: list[Token]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_File(_VERSION, tokens)), indent=1)
        durably.replace(self.path, data, mode=0o600)
        self.look(now=True)


class Denied(Exception):
    """Somebody is not let in; inside only. `error` is what it is told."""

    def __init__(self, why: Refused, token: Token | None = None) -> None:
        """Say why, and whose token it was if that is known for certain."""
        super().__init__(why)
        self.why, self.token = why, token
        self.error = refusal(why)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _id_of(text: str) -> str:
    parts = text[:_LONGEST].split("_")
    return parts[1] if len(parts) == 3 and parts[0] == _MARK else ""


def _read(path: str, mode: int) -> dict[str, Token]:
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unreadable(path, "others may write to it", f"chmod 600 {path}")
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_File)
        for token in found.tokens:
            check_name(token.name)
            Rights(token.rights)
            check_clearance(token.clearance)
            for moment in (token.created, token.expires, token.revoked):
                if moment is not None and moment.tzinfo is None:
                    raise TokenError(f"token {token.id} has a time without a timezone")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, TokenError) as error:
        raise _unreadable(path, str(error)) from None
    if found.version != _VERSION:
        raise _unreadable(path, f"it has version {found.version}, this program knows {_VERSION}")
    return {token.id: token for token in found.tokens}


def _unreadable(path: str, why: str, help: str = "") -> TokenError:
    return TokenError(
        f"the tokens in {path} cannot be read: {why}",
        field="tokens",
        help=help or "bring back a copy of the file; until then nobody is let in",
    )

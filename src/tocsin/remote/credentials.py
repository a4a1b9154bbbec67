"""What a client shows to be let in, and how it makes sure whom it shows it to.

Promised: a certificate that cannot be verified ends the attempt before anything is said; the token is in no `repr`.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Final
from urllib.parse import urlsplit

from tocsin.errors import NetworkError

__all__ = ["NONE", "Credentials"]

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_log = logging.getLogger("tocsin.remote")


class Credentials:
    """A token, and whom to trust; both may be missing."""

    __slots__ = ("_ca", "token")

    def __init__(self, token: str | None = None, ca: str | os.PathLike[str] | None = None) -> None:
        """Keep a token, and the path of certificates to trust instead of the system's."""
        self.token, self._ca = token, ca

    def context(self, url: str) -> ssl.SSLContext | None:
        """How to make sure of the server of a url; None for one without TLS.

        Raises:
            NetworkError: the certificates to trust cannot be read.
        """
        if not url.startswith("wss:"):
            if self.token is not None and urlsplit(url).hostname not in _LOCAL:
                _log.warning("the token goes to %s without TLS: whoever listens has it; use wss://", url)
            return None
        try:
            return ssl.create_default_context(cafile=self._ca)
        except (OSError, ssl.SSLError) as error:
            raise NetworkError(
                f"the certificates in {os.fspath(self._ca or '')!r} cannot be read: {error.strerror or error}",
                field="ca",
                help="give the path of a PEM file",
            ) from None


NONE: Final = Credentials()

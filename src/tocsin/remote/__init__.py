"""A node elsewhere: the verbs of `tocsin.client` over a connection."""

from tocsin.remote.bus import RemoteBus
from tocsin.remote.credentials import Credentials
from tocsin.remote.spool import open_spool

__all__ = ["Credentials", "RemoteBus", "open_spool"]

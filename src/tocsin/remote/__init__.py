"""A node elsewhere: the verbs of `tocsin.client` over a connection."""

from tocsin.remote.bus import RemoteBus

__all__ = ["RemoteBus"]

"""How it travels: the protocol, and the server that speaks it."""

from tocsin.net.server import Server, run, serve

__all__ = ["Server", "run", "serve"]

"""The node's page: what a browser gets at `/`. The files in `static` are the source; nothing is built."""

from tocsin.web.assets import Asset, page

__all__ = ["Asset", "page"]

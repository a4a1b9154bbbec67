"""THE NODE: the pipeline (`pipeline`, start there), what handles ask (`post`), consumers, and the life of alerts."""

from tocsin.node.pipeline import Node, Published

__all__ = ["Node", "Published"]

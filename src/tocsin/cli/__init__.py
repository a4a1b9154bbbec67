"""THE COMMAND LINE: `tocsin VERB …`. Each verb parses, calls one function of a lower layer, and prints."""

from tocsin.cli.entry import main

__all__ = ["main"]

"""`make cluster`. See `__main__`."""

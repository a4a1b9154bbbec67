"""`make demo`. See `__main__`."""

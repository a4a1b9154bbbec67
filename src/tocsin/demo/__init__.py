"""`tocsin demo` and `make demo`: a plant at work, and everything Tocsin promises happening to it. See `run`.

`cluster/` is `make cluster`.
"""

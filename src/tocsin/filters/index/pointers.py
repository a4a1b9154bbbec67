"""Addresses as arrays, for the Numba kernels of this folder.

`i32(address)` is an array without an end: kernels know their bounds, out-of-range reads are not checked.

Numba keeps compiled code by the file a function stands in, and does not see that a function it calls from another file
has changed. Whoever imports kernels from another file therefore puts `source_of` it into a closure of its own, which
is part of what Numba compares. (This file is left out of that: it has nothing to change.)
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import inspect
import zlib
from types import ModuleType

from numba import carray, njit, types
from numba.extending import intrinsic

__all__ = ["f64", "i32", "i64", "source_of", "u8", "u32", "u64"]

_ENDLESS = 1 << 40


def source_of(*modules: ModuleType) -> int:
    """A number that is another one when a module's text is."""
    return zlib.crc32("".join(inspect.getsource(module) for module in modules).encode())


def _pointer_to(item):
    @intrinsic
    def convert(typing_context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), generate

    return convert


_p32, _p64, _pu8, _pu32, _pu64, _pf64 = map(
    _pointer_to, (types.int32, types.int64, types.uint8, types.uint32, types.uint64, types.float64)
)


@njit(inline="always")
def i32(address):
    """32-bit whole numbers."""
    return carray(_p32(address), _ENDLESS)


@njit(inline="always")
def i64(address):
    """64-bit whole numbers."""
    return carray(_p64(address), _ENDLESS)


@njit(inline="always")
def u8(address):
    """Bytes."""
    return carray(_pu8(address), _ENDLESS)


@njit(inline="always")
def u32(address):
    """32-bit whole numbers without a sign: as an index they need no look at whether they are negative."""
    return carray(_pu32(address), _ENDLESS)


@njit(inline="always")
def u64(address):
    """64-bit whole numbers without a sign."""
    return carray(_pu64(address), _ENDLESS)


@njit(inline="always")
def f64(address):
    """Doubles."""
    return carray(_pf64(address), _ENDLESS)

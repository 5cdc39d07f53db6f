"""AMQP 1.0 values to bytes (the standard, part 1, "Types")."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from localazure.servicebus.amqp import constructors as c
from localazure.servicebus.amqp.errors import EncodeError
from localazure.servicebus.amqp.types import (
    Array,
    Char,
    Described,
    Symbol,
)

_SMALL = 256  # the first size or count that needs more than one byte

# Constructors of zeros and empty lists without data, by the full-width constructor.
_ZEROS = {c.UINT: c.UINT0, c.ULONG: c.ULONG0, c.LIST32: c.LIST0}
# Constructors of one-byte numbers and the range of these numbers, by the full-width constructor.
_SHORT_NUMBERS = {
    c.UINT: (c.SMALL_UINT, range(_SMALL)),
    c.ULONG: (c.SMALL_ULONG, range(_SMALL)),
    c.INT: (c.SMALL_INT, range(-128, 128)),
    c.LONG: (c.SMALL_LONG, range(-128, 128)),
}


def encode(value: Any) -> bytes:
    """Return the shortest encoding of a value.

    Raises:
        EncodeError: the value, or a value inside it, has no AMQP type or is out of range.
    """
    kind = type(value)
    if kind is Described:
        return bytes([c.DESCRIBED]) + encode(value.descriptor) + encode(value.value)
    if kind is bool:
        return bytes([c.TRUE if value else c.FALSE])
    wide = _WIDE.get(kind)
    if wide is None:
        raise EncodeError(f"no AMQP type for {kind.__name__}")
    code, data_of = wide
    if not value and code in _ZEROS:
        return bytes([_ZEROS[code]])
    try:
        data = data_of(value)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{kind.__name__} out of range: {error}") from None
    if code in _SHORT_NUMBERS:
        short, numbers = _SHORT_NUMBERS[code]
        return bytes([short, data[-1]]) if value in numbers else bytes([code]) + data
    return _with_short_sizes(code, data)


def _with_short_sizes(code: int, data: bytes) -> bytes:
    """Constructor and data. A size and a count that fit into one byte each take one byte."""
    match code & 0xF0:
        case 0xB0 if len(data) < 4 + _SMALL:
            return bytes([code - 0x10, len(data) - 4]) + data[4:]
        case 0xD0 | 0xF0 if len(data) < 7 + _SMALL and not any(data[4:7]):
            # The size includes the bytes of the count.
            return bytes([code - 0x10, len(data) - 7, data[7]]) + data[8:]
        case _:
            return bytes([code]) + data


def _map_data(value: dict[Any, Any]) -> bytes:
    return b"".join(part for pair in value.items() for part in map(encode, pair))


def _array_data(value: Array) -> bytes:
    """Constructor and items of an array; every item in the full width of their common type."""
    if not value.items:
        return bytes([c.NULL])
    constructor = _array_constructor(value.items)
    return constructor + b"".join(map(_bare, value.items))


def _array_constructor(items: tuple[Any, ...]) -> bytes:
    first = items[0]
    if any(type(item) is not type(first) for item in items):
        raise EncodeError("the items of an array must be of one type")
    if isinstance(first, Described):
        if any(item.descriptor != first.descriptor for item in items):
            raise EncodeError("the items of an array must have one descriptor")
        inner = _array_constructor(tuple(item.value for item in items))
        return bytes([c.DESCRIBED]) + encode(first.descriptor) + inner
    wide = _WIDE.get(type(first))
    if wide is None:
        raise EncodeError(f"no AMQP type for {type(first).__name__}")
    return bytes([wide[0]])


def _bare(item: Any) -> bytes:
    if isinstance(item, Described):
        return _bare(item.value)
    return _WIDE[type(item)][1](item)


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _counted(count: int, data: bytes) -> bytes:
    return struct.pack(">II", len(data) + 4, count) + data


def _utf32(value: str) -> bytes:
    return value.encode("utf-32-be")


# Python type -> constructor of its full-width form, and the function that encodes its data.
_WIDE: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    type(None): (c.NULL, lambda _: b""),
    bool: (c.BOOLEAN, lambda value: b"\x01" if value else b"\x00"),
    Char: (c.CHAR, _utf32),
    uuid.UUID: (c.UUID, lambda value: value.bytes),
    bytes: (c.BINARY32, _sized),
    str: (c.STRING32, lambda value: _sized(value.encode())),
    Symbol: (c.SYMBOL32, lambda value: _sized(value.encode("ascii"))),
    list: (c.LIST32, lambda value: _counted(len(value), b"".join(map(encode, value)))),
    dict: (c.MAP32, lambda value: _counted(2 * len(value), _map_data(value))),
    Array: (c.ARRAY32, lambda value: _counted(len(value.items), _array_data(value))),
    **{kind: (code, struct.Struct(layout).pack) for code, layout, kind in c.NUMBERS},
    **{kind: (code, bytes) for code, _, kind in c.DECIMALS},
}

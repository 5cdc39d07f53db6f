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
    Int,
    Symbol,
    UInt,
    ULong,
)

_SMALL = 256  # the first size or count that needs more than one byte


def encode(value: Any) -> bytes:
    """The bytes of a value in its shortest encoding.

    Raises:
        EncodeError: the value, or something within it, has no AMQP type or is out of its range.
    """
    encoder = _COMPACT.get(type(value))
    if encoder is None:
        raise EncodeError(f"no AMQP type for {type(value).__name__}")
    try:
        return encoder(value)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{type(value).__name__} out of range: {error}") from None


def _compact_number(
    code: int, layout: str, short: tuple[int, range, int | None] | None
) -> Callable[[Any], bytes]:
    pack = struct.Struct(layout).pack
    prefix = bytes([code])
    if short is None:
        return lambda value: prefix + pack(value)
    short_code, short_range, zero_code = short

    def compact(value: Any) -> bytes:
        if value == 0 and zero_code is not None:
            return bytes([zero_code])
        if value in short_range:
            return bytes([short_code, value & 0xFF])
        return prefix + pack(value)

    return compact


def _variable(code8: int, code32: int, data: bytes) -> bytes:
    if len(data) < _SMALL:
        return bytes([code8, len(data)]) + data
    return bytes([code32]) + struct.pack(">I", len(data)) + data


def _compound(code8: int, code32: int, count: int, data: bytes) -> bytes:
    if len(data) + 1 < _SMALL and count < _SMALL:
        return bytes([code8, len(data) + 1, count]) + data
    return bytes([code32]) + struct.pack(">II", len(data) + 4, count) + data


def _encode_list(value: list[Any]) -> bytes:
    if not value:
        return bytes([c.LIST0])
    return _compound(c.LIST8, c.LIST32, len(value), b"".join(map(encode, value)))


def _map_data(value: dict[Any, Any]) -> bytes:
    return b"".join(part for pair in value.items() for part in map(encode, pair))


def _encode_described(value: Described) -> bytes:
    return bytes([c.DESCRIBED]) + encode(value.descriptor) + encode(value.value)


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


# For arrays: constructor of the full-width form, and the data without it.
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

_SHORT_NUMBERS: dict[type, tuple[int, range, int | None]] = {
    UInt: (c.SMALL_UINT, range(_SMALL), c.UINT0),
    ULong: (c.SMALL_ULONG, range(_SMALL), c.ULONG0),
    Int: (c.SMALL_INT, range(-128, 128), None),
    int: (c.SMALL_LONG, range(-128, 128), None),
}

_COMPACT: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: bytes([c.NULL]),
    bool: lambda value: bytes([c.TRUE if value else c.FALSE]),
    Char: lambda value: bytes([c.CHAR]) + _utf32(value),
    uuid.UUID: lambda value: bytes([c.UUID]) + value.bytes,
    bytes: lambda value: _variable(c.BINARY8, c.BINARY32, value),
    str: lambda value: _variable(c.STRING8, c.STRING32, value.encode()),
    Symbol: lambda value: _variable(c.SYMBOL8, c.SYMBOL32, value.encode("ascii")),
    list: _encode_list,
    dict: lambda value: _compound(c.MAP8, c.MAP32, 2 * len(value), _map_data(value)),
    Array: lambda value: _compound(c.ARRAY8, c.ARRAY32, len(value.items), _array_data(value)),
    Described: _encode_described,
    **{
        kind: _compact_number(code, layout, _SHORT_NUMBERS.get(kind))
        for code, layout, kind in c.NUMBERS
    },
    **{
        kind: (lambda value, prefix=bytes([code]): prefix + bytes(value))
        for code, _, kind in c.DECIMALS
    },
}

"""Bytes to AMQP 1.0 values (the standard, part 1, "Types").

Decoding keeps the AMQP type (see `types`) and is safe on hostile bytes: nesting and element counts
are bounded, and every fault is a `DecodeError`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from localazure.servicebus.amqp import constructors as c
from localazure.servicebus.amqp.errors import DecodeError
from localazure.servicebus.amqp.types import (
    Array,
    Char,
    Described,
    Symbol,
    UInt,
    ULong,
)

# Deeper values are refused, so that hostile bytes cannot exhaust the stack. The limit is that of
# Microsoft.Azure.Amqp for .NET.
MAX_NESTING = 64
# Most elements of one list, map or array; the limit of azure-uamqp-c.
MAX_ELEMENTS = 65536

# The bytes before the data of a variable-width value, by the high half of its constructor:
# bytes of the size field, or the fixed width itself.
_FIXED_WIDTHS = {0x40: 0, 0x50: 1, 0x60: 2, 0x70: 4, 0x80: 8, 0x90: 16}
_SIZE_FIELDS = {0xA0: 1, 0xB0: 4, 0xC0: 1, 0xD0: 4, 0xE0: 1, 0xF0: 4}


def decode(data: bytes, start: int = 0) -> tuple[Any, int]:
    """The value that starts at `start`, and the position after it.

    Raises:
        DecodeError: there is no well-formed value at `start`.
    """
    try:
        return _decode(data, start, 0)
    except (struct.error, IndexError):
        raise DecodeError(f"the value at byte {start} is cut short") from None


def skip(data: bytes, start: int) -> int:
    """The position after the value that starts at `start`, which is not decoded.

    Raises:
        DecodeError: the value is cut short or its constructor is unknown.
    """
    try:
        code = data[start]
        if code == c.DESCRIBED:
            return skip(data, skip(data, start + 1))
        kind = code & 0xF0
        if kind in _FIXED_WIDTHS:
            end = start + 1 + _FIXED_WIDTHS[kind]
        elif kind in _SIZE_FIELDS:
            width = _SIZE_FIELDS[kind]
            end = start + 1 + width + int.from_bytes(data[start + 1 : start + 1 + width], "big")
        else:
            raise DecodeError(f"unknown constructor 0x{code:02x} at byte {start}")
    except (IndexError, RecursionError):
        raise DecodeError(f"the value at byte {start} is cut short") from None
    if end > len(data):
        raise DecodeError(f"the value at byte {start} is cut short")
    return end


def _decode(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    code = data[position]
    if code == c.DESCRIBED:
        if depth >= MAX_NESTING:
            raise DecodeError(f"a value is nested more than {MAX_NESTING} deep")
        descriptor, position = _decode(data, position + 1, depth + 1)
        value, position = _decode(data, position, depth + 1)
        return Described(descriptor, value), position
    return _decode_as(code, data, position + 1, depth)


def _decode_as(code: int, data: bytes, position: int, depth: int) -> tuple[Any, int]:
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise DecodeError(f"unknown constructor 0x{code:02x} before byte {position}")
    return decoder(data, position, depth)


_Decoder = Callable[[bytes, int, int], tuple[Any, int]]


def _constant(value: Any) -> _Decoder:
    return lambda _data, position, _depth: (value, position)


def _number(layout: str, kind: type) -> _Decoder:
    unpack_from = struct.Struct(layout).unpack_from
    width = struct.calcsize(layout)
    if kind is int or kind is float:
        return lambda data, position, _: (unpack_from(data, position)[0], position + width)
    return lambda data, position, _: (kind(unpack_from(data, position)[0]), position + width)


def _take(data: bytes, position: int, width: int) -> bytes:
    end = position + width
    if end > len(data):
        raise DecodeError(f"{width} bytes announced at byte {position}, fewer are there")
    return data[position:end]


def _fixed(width: int, kind: Callable[[bytes], Any]) -> _Decoder:
    return lambda data, position, _: (kind(_take(data, position, width)), position + width)


def _sized_value(size_layout: str, convert: Callable[[bytes], Any]) -> _Decoder:
    unpack_from = struct.Struct(size_layout).unpack_from
    size_width = struct.calcsize(size_layout)

    def decoder(data: bytes, position: int, _depth: int) -> tuple[Any, int]:
        (width,) = unpack_from(data, position)
        start = position + size_width
        raw = _take(data, start, width)
        try:
            return convert(raw), start + width
        except UnicodeDecodeError as error:
            raise DecodeError(f"invalid text at byte {start}: {error.reason}") from None

    return decoder


def _boolean(data: bytes, position: int, _depth: int) -> tuple[bool, int]:
    if data[position] > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {data[position]} at byte {position}")
    return data[position] == 1, position + 1


def _char(raw: bytes) -> Char:
    try:
        return Char(raw.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise DecodeError(f"{raw.hex()} is not a Unicode character") from None


def _compound_decoder(layout: str, read: _Items) -> _Decoder:
    unpack_from = struct.Struct(layout).unpack_from
    width = struct.calcsize(layout) // 2

    def decoder(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        if depth >= MAX_NESTING:
            raise DecodeError(f"a value is nested more than {MAX_NESTING} deep")
        size, count = unpack_from(data, position)
        start, end = position + 2 * width, position + width + size
        if end > len(data) or start > end:
            raise DecodeError(f"{size} bytes announced at byte {position}, fewer are there")
        if count > MAX_ELEMENTS:
            raise DecodeError(f"{count} elements at byte {position}; at most {MAX_ELEMENTS}")
        value, position = read(data, start, count, depth + 1)
        if position != end:
            raise DecodeError(f"a compound should end at byte {end} and ends at {position}")
        return value, end

    return decoder


_Items = Callable[[bytes, int, int, int], tuple[Any, int]]


def _list_items(data: bytes, position: int, count: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    for _ in range(count):
        item, position = _decode(data, position, depth)
        items.append(item)
    return items, position


def _map_items(data: bytes, position: int, count: int, depth: int) -> tuple[dict[Any, Any], int]:
    items, position = _list_items(data, position, count, depth)
    if count % 2:
        raise DecodeError("a map has a key without a value")
    try:
        pairs = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise DecodeError("a map has a compound value for a key") from None
    if len(pairs) != count // 2:
        raise DecodeError("a map has the same key twice")
    return pairs, position


def _array_items(data: bytes, position: int, count: int, depth: int) -> tuple[Array, int]:
    descriptors: list[Any] = []
    while data[position] == c.DESCRIBED:
        if depth + len(descriptors) >= MAX_NESTING:
            raise DecodeError(f"a value is nested more than {MAX_NESTING} deep")
        descriptor, position = _decode(data, position + 1, depth)
        descriptors.append(descriptor)
    code = data[position]
    position += 1
    items: list[Any] = []
    for _ in range(count):
        item, position = _decode_as(code, data, position, depth + len(descriptors))
        for descriptor in reversed(descriptors):
            item = Described(descriptor, item)
        items.append(item)
    return Array(tuple(items)), position


_DECODERS: dict[int, _Decoder] = {
    c.NULL: _constant(None),
    c.TRUE: _constant(True),  # noqa: FBT003 - the value of the constructor
    c.FALSE: _constant(False),  # noqa: FBT003 - the same
    c.UINT0: _constant(UInt(0)),
    c.ULONG0: _constant(ULong(0)),
    c.LIST0: lambda _data, position, _depth: ([], position),
    c.BOOLEAN: _boolean,
    c.CHAR: _fixed(4, _char),
    c.UUID: _fixed(16, lambda raw: uuid.UUID(bytes=raw)),
    c.BINARY8: _sized_value(">B", bytes),
    c.BINARY32: _sized_value(">I", bytes),
    c.STRING8: _sized_value(">B", bytes.decode),
    c.STRING32: _sized_value(">I", bytes.decode),
    c.SYMBOL8: _sized_value(">B", lambda raw: Symbol(raw.decode("ascii"))),
    c.SYMBOL32: _sized_value(">I", lambda raw: Symbol(raw.decode("ascii"))),
    c.LIST8: _compound_decoder(">BB", _list_items),
    c.LIST32: _compound_decoder(">II", _list_items),
    c.MAP8: _compound_decoder(">BB", _map_items),
    c.MAP32: _compound_decoder(">II", _map_items),
    c.ARRAY8: _compound_decoder(">BB", _array_items),
    c.ARRAY32: _compound_decoder(">II", _array_items),
    **{code: _number(layout, kind) for code, layout, kind in c.NUMBERS + c.SHORT_FORMS},
    **{code: _fixed(width, kind) for code, width, kind in c.DECIMALS},
}

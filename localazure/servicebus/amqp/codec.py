"""The AMQP 1.0 type system: values to bytes and back (the standard, part 1, "Types").

Decoding keeps the AMQP type (see `types`) and is safe on hostile bytes: nesting and element counts
are bounded, and every fault is a `DecodeError`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from localazure.servicebus.amqp.errors import DecodeError, EncodeError
from localazure.servicebus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

# Deeper values are refused, so that hostile bytes cannot exhaust the stack (Microsoft.Azure.Amqp
# for .NET draws the line at 64 as well).
MAX_NESTING = 64
# Elements of one list, map or array; azure-uamqp-c allows as many.
MAX_ELEMENTS = 65536

_SMALL = 256  # what a one-byte size or count can say, plus one

DESCRIBED, NULL, TRUE, FALSE = 0x00, 0x40, 0x41, 0x42
UINT0, ULONG0, LIST0 = 0x43, 0x44, 0x45
SMALL_UINT, SMALL_ULONG, SMALL_INT, SMALL_LONG, BOOLEAN = 0x52, 0x53, 0x54, 0x55, 0x56
CHAR, UUID = 0x73, 0x98
BINARY8, STRING8, SYMBOL8 = 0xA0, 0xA1, 0xA3
BINARY32, STRING32, SYMBOL32 = 0xB0, 0xB1, 0xB3
LIST8, MAP8, LIST32, MAP32, ARRAY8, ARRAY32 = 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0

# Fixed-width numbers in their full width: constructor, layout, Python type.
_NUMBERS: tuple[tuple[int, str, type], ...] = (
    (0x50, ">B", UByte),
    (0x60, ">H", UShort),
    (0x70, ">I", UInt),
    (0x80, ">Q", ULong),
    (0x51, ">b", Byte),
    (0x61, ">h", Short),
    (0x71, ">i", Int),
    (0x81, ">q", int),
    (0x72, ">f", Float32),
    (0x82, ">d", float),
    (0x83, ">q", Timestamp),
)
_DECIMALS: tuple[tuple[int, int, type], ...] = (
    (0x74, 4, Decimal32),
    (0x84, 8, Decimal64),
    (0x94, 16, Decimal128),
)
# Numbers that have a one-byte form besides.
_SHORT_FORMS: tuple[tuple[int, str, type], ...] = (
    (SMALL_UINT, ">B", UInt),
    (SMALL_ULONG, ">B", ULong),
    (SMALL_INT, ">b", Int),
    (SMALL_LONG, ">b", int),
)
# What precedes the data of a variable-width value, by the high half of its constructor:
# bytes of the size field, or the fixed width itself.
_FIXED_WIDTHS = {0x40: 0, 0x50: 1, 0x60: 2, 0x70: 4, 0x80: 8, 0x90: 16}
_SIZE_FIELDS = {0xA0: 1, 0xB0: 4, 0xC0: 1, 0xD0: 4, 0xE0: 1, 0xF0: 4}


# --- encoding -----------------------------------------------------------------------------------


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
        return bytes([LIST0])
    return _compound(LIST8, LIST32, len(value), b"".join(map(encode, value)))


def _map_data(value: dict[Any, Any]) -> bytes:
    return b"".join(part for pair in value.items() for part in map(encode, pair))


def _encode_described(value: Described) -> bytes:
    return bytes([DESCRIBED]) + encode(value.descriptor) + encode(value.value)


def _array_data(value: Array) -> bytes:
    """Constructor and items of an array; every item in the full width of their common type."""
    if not value.items:
        return bytes([NULL])
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
        return bytes([DESCRIBED]) + encode(first.descriptor) + inner
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
    type(None): (NULL, lambda _: b""),
    bool: (BOOLEAN, lambda value: b"\x01" if value else b"\x00"),
    Char: (CHAR, _utf32),
    uuid.UUID: (UUID, lambda value: value.bytes),
    bytes: (BINARY32, _sized),
    str: (STRING32, lambda value: _sized(value.encode())),
    Symbol: (SYMBOL32, lambda value: _sized(value.encode("ascii"))),
    list: (LIST32, lambda value: _counted(len(value), b"".join(map(encode, value)))),
    dict: (MAP32, lambda value: _counted(2 * len(value), _map_data(value))),
    Array: (ARRAY32, lambda value: _counted(len(value.items), _array_data(value))),
    **{kind: (code, struct.Struct(layout).pack) for code, layout, kind in _NUMBERS},
    **{kind: (code, bytes) for code, _, kind in _DECIMALS},
}

_SHORT_NUMBERS: dict[type, tuple[int, range, int | None]] = {
    UInt: (SMALL_UINT, range(_SMALL), UINT0),
    ULong: (SMALL_ULONG, range(_SMALL), ULONG0),
    Int: (SMALL_INT, range(-128, 128), None),
    int: (SMALL_LONG, range(-128, 128), None),
}

_COMPACT: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: bytes([NULL]),
    bool: lambda value: bytes([TRUE if value else FALSE]),
    Char: lambda value: bytes([CHAR]) + _utf32(value),
    uuid.UUID: lambda value: bytes([UUID]) + value.bytes,
    bytes: lambda value: _variable(BINARY8, BINARY32, value),
    str: lambda value: _variable(STRING8, STRING32, value.encode()),
    Symbol: lambda value: _variable(SYMBOL8, SYMBOL32, value.encode("ascii")),
    list: _encode_list,
    dict: lambda value: _compound(MAP8, MAP32, 2 * len(value), _map_data(value)),
    Array: lambda value: _compound(ARRAY8, ARRAY32, len(value.items), _array_data(value)),
    Described: _encode_described,
    **{
        kind: _compact_number(code, layout, _SHORT_NUMBERS.get(kind))
        for code, layout, kind in _NUMBERS
    },
    **{
        kind: (lambda value, prefix=bytes([code]): prefix + bytes(value))
        for code, _, kind in _DECIMALS
    },
}


# --- decoding -----------------------------------------------------------------------------------


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
    """The position after the value that starts at `start`, which is measured and not read.

    Raises:
        DecodeError: the value is cut short or its constructor is unknown.
    """
    try:
        code = data[start]
        if code == DESCRIBED:
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
    if code == DESCRIBED:
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
        raise DecodeError(f"{raw.hex()} is no Unicode character") from None


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
    while data[position] == DESCRIBED:
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
    NULL: _constant(None),
    TRUE: _constant(True),  # noqa: FBT003 - the value of the constructor
    FALSE: _constant(False),  # noqa: FBT003 - the same
    UINT0: _constant(UInt(0)),
    ULONG0: _constant(ULong(0)),
    LIST0: lambda _data, position, _depth: ([], position),
    BOOLEAN: _boolean,
    CHAR: _fixed(4, _char),
    UUID: _fixed(16, lambda raw: uuid.UUID(bytes=raw)),
    BINARY8: _sized_value(">B", bytes),
    BINARY32: _sized_value(">I", bytes),
    STRING8: _sized_value(">B", bytes.decode),
    STRING32: _sized_value(">I", bytes.decode),
    SYMBOL8: _sized_value(">B", lambda raw: Symbol(raw.decode("ascii"))),
    SYMBOL32: _sized_value(">I", lambda raw: Symbol(raw.decode("ascii"))),
    LIST8: _compound_decoder(">BB", _list_items),
    LIST32: _compound_decoder(">II", _list_items),
    MAP8: _compound_decoder(">BB", _map_items),
    MAP32: _compound_decoder(">II", _map_items),
    ARRAY8: _compound_decoder(">BB", _array_items),
    ARRAY32: _compound_decoder(">II", _array_items),
    **{code: _number(layout, kind) for code, layout, kind in _NUMBERS + _SHORT_FORMS},
    **{code: _fixed(width, kind) for code, width, kind in _DECIMALS},
}

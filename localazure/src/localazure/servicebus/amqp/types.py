"""Python types for AMQP's primitive types: a decoded value can be encoded again without loss.

| AMQP                                   | Python                                         |
|----------------------------------------|------------------------------------------------|
| null, boolean, long, double            | None, bool, int, float                         |
| string, binary, uuid, list, map        | str, bytes, uuid.UUID, list, dict              |
| every other primitive type             | a class of this module                         |
| described type, array                  | `Described`, `Array`                           |

The numeric classes are subclasses of int and float, Symbol is one of str. So readers need no
unwrapping, and a plain string finds a map's symbol key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UByte(int):
    """ubyte: 0 to 2**8 - 1."""


class UShort(int):
    """ushort: 0 to 2**16 - 1."""


class UInt(int):
    """uint: 0 to 2**32 - 1."""


class ULong(int):
    """ulong: 0 to 2**64 - 1."""


class Byte(int):
    """byte: -2**7 to 2**7 - 1."""


class Short(int):
    """short: -2**15 to 2**15 - 1."""


class Int(int):
    """int: -2**31 to 2**31 - 1. A plain Python int is a long."""


class Timestamp(int):
    """timestamp: milliseconds since the Unix epoch, UTC."""


class Float32(float):
    """float: IEEE 754 binary32. A plain Python float is a double."""


class Char(str):
    """char: one Unicode character."""

    __slots__ = ()


class Symbol(str):
    """symbol: ASCII text from a constrained domain."""

    __slots__ = ()


class Decimal32(bytes):
    """decimal32: 4 bytes, IEEE 754 decimal32, carried and not interpreted."""


class Decimal64(bytes):
    """decimal64: 8 bytes, IEEE 754 decimal64, carried and not interpreted."""


class Decimal128(bytes):
    """decimal128: 16 bytes, IEEE 754 decimal128, carried and not interpreted."""


@dataclass(frozen=True, slots=True)
class Array:
    """array: items of the same AMQP type."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, usually a ULong or a Symbol, that gives it meaning."""

    descriptor: Any
    value: Any

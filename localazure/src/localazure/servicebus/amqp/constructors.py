"""The constructors of AMQP 1.0's types: the byte before a value that gives its layout.

The constants have the standard's values (part 1, section 1.6).
"""

from __future__ import annotations

from localazure.servicebus.amqp.types import (
    Byte,
    Decimal32,
    Decimal64,
    Decimal128,
    Float32,
    Int,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

DESCRIBED, NULL, TRUE, FALSE = 0x00, 0x40, 0x41, 0x42
UINT0, ULONG0, LIST0 = 0x43, 0x44, 0x45
UINT, ULONG, INT, LONG = 0x70, 0x80, 0x71, 0x81
SMALL_UINT, SMALL_ULONG, SMALL_INT, SMALL_LONG, BOOLEAN = 0x52, 0x53, 0x54, 0x55, 0x56
CHAR, UUID = 0x73, 0x98
BINARY8, STRING8, SYMBOL8 = 0xA0, 0xA1, 0xA3
BINARY32, STRING32, SYMBOL32 = 0xB0, 0xB1, 0xB3
LIST8, MAP8, LIST32, MAP32, ARRAY8, ARRAY32 = 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0

# Numbers in their full width: constructor, layout, Python type.
NUMBERS: tuple[tuple[int, str, type], ...] = (
    (0x50, ">B", UByte),
    (0x60, ">H", UShort),
    (UINT, ">I", UInt),
    (ULONG, ">Q", ULong),
    (0x51, ">b", Byte),
    (0x61, ">h", Short),
    (INT, ">i", Int),
    (LONG, ">q", int),
    (0x72, ">f", Float32),
    (0x82, ">d", float),
    (0x83, ">q", Timestamp),
)
DECIMALS: tuple[tuple[int, int, type], ...] = (
    (0x74, 4, Decimal32),
    (0x84, 8, Decimal64),
    (0x94, 16, Decimal128),
)
# One-byte forms of numbers: constructor, layout, Python type.
SHORT_FORMS: tuple[tuple[int, str, type], ...] = (
    (SMALL_UINT, ">B", UInt),
    (SMALL_ULONG, ">B", ULong),
    (SMALL_INT, ">b", Int),
    (SMALL_LONG, ">b", int),
)

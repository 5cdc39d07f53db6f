"""The AMQP type system, as properties over all its types."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.servicebus.amqp.decoding import MAX_NESTING, decode, skip
from localazure.servicebus.amqp.encoding import encode
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


def integers(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


TEXT = st.text(st.characters(codec="utf-8"))
PRIMITIVES: list[st.SearchStrategy[Any]] = [
    st.none(),
    st.booleans(),
    integers(UByte, 8, signed=False),
    integers(UShort, 16, signed=False),
    integers(UInt, 32, signed=False),
    integers(ULong, 64, signed=False),
    integers(Byte, 8, signed=True),
    integers(Short, 16, signed=True),
    integers(Int, 32, signed=True),
    integers(int, 64, signed=True),
    integers(Timestamp, 64, signed=True),
    st.floats(width=32, allow_nan=False).map(Float32),
    st.floats(allow_nan=False),
    st.characters(codec="utf-8").map(Char),
    st.uuids(),
    st.binary(max_size=300),
    TEXT,
    st.text(st.characters(codec="ascii")).map(Symbol),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
]


def arrays(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=4).map(lambda values: Array(tuple(values)))


ARRAYS = st.one_of(
    *[arrays(items) for items in PRIMITIVES],
    arrays(st.lists(st.one_of(PRIMITIVES), max_size=3)),
    arrays(st.dictionaries(TEXT, st.one_of(PRIMITIVES), max_size=3)),
    arrays(arrays(integers(UInt, 32, signed=False))),
    st.tuples(integers(ULong, 64, signed=False), st.lists(TEXT, max_size=3)).map(
        lambda pair: Array(tuple(Described(pair[0], text) for text in pair[1]))
    ),
)
VALUES = st.recursive(
    st.one_of(*PRIMITIVES, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(TEXT, integers(ULong, 64, signed=False)), inner, max_size=5),
        st.builds(Described, st.one_of(integers(ULong, 64, signed=False), TEXT), inner),
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """The value with all types inside it, since `UInt(1) == Int(1)`."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return {(type(key), key): shape(item) for key, item in value.items()}
    if isinstance(value, Array):
        return (Array, [shape(item) for item in value.items])
    if isinstance(value, Described):
        return (Described, shape(value.descriptor), shape(value.value))
    return (type(value), value)


@given(VALUES)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    data = encode(value)
    decoded, end = decode(data)
    assert shape(decoded) == shape(value)
    assert end == len(data)


@given(VALUES, st.binary(max_size=5), st.binary(max_size=5))
def test_skip_measures_what_decode_reads(value: Any, before: bytes, after: bytes) -> None:
    data = before + encode(value) + after
    assert skip(data, len(before)) == decode(data, len(before))[1] == len(data) - len(after)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_raise_the_typed_error(data: bytes) -> None:
    for read in (decode, skip):
        try:
            read(data, 0)
        except DecodeError:
            continue


@given(VALUES, st.data())
def test_damaged_values_decode_or_raise_the_typed_error(value: Any, choices: st.DataObject) -> None:
    data = bytearray(encode(value))
    for _ in range(choices.draw(st.integers(1, 3))):
        data[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    try:
        decode(bytes(data))
    except DecodeError:
        return


@given(VALUES, st.data())
def test_a_value_cut_short_is_refused(value: Any, choices: st.DataObject) -> None:
    data = encode(value)
    with pytest.raises(DecodeError):
        decode(data[: choices.draw(st.integers(0, len(data) - 1))])


@pytest.mark.parametrize("size", range(245, 260))
def test_sizes_and_counts_around_the_limit_of_one_byte(size: int) -> None:
    data = b"x" * size
    for value in (
        data,
        [data],
        {"": data},
        Array((data,)),
        Array((1,) * size),
        Array((None,) * size),
    ):
        assert decode(encode(value)) == (value, len(encode(value)))


def test_not_a_number_comes_back() -> None:
    for value in (math.nan, Float32(math.nan)):
        decoded, _ = decode(encode(value))
        assert math.isnan(decoded)
        assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        # Worked examples of the standard, part 1.
        (True, "41"),
        (UInt(0), "43"),
        (ULong(0), "44"),
        ([], "45"),
        (UInt(1), "5201"),
        (ULong(0x70), "5370"),
        (Symbol("amqp"), "a304616d7170"),
        ("é", "a102c3a9"),
        ({"a": 1}, "c1060 2a10161 5501".replace(" ", "")),
        (Array((UInt(1), UInt(2))), "e00a0270" + "00000001" + "00000002"),
        (uuid.UUID(int=1), "98" + "00" * 15 + "01"),
    ],
)
def test_encodings_match_the_standard(value: Any, data: str) -> None:
    assert encode(value).hex() == data


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "no AMQP type"),
        (UByte(256), "out of range"),
        (2**63, "out of range"),
        (Symbol("é"), "out of range"),
        ("\ud800", "out of range"),
        (Array((1, UInt(1))), "of one type"),
        (Array((Described("a", 1), Described("b", 1))), "one descriptor"),
    ],
)
def test_values_without_an_encoding_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut short"),
        (b"\x3f", "unknown constructor 0x3f"),
        (b"\xa1\x05abc", "fewer are there"),
        (b"\xa1\x01\xff", "invalid text"),
        (b"\x56\x02", "0 or 1"),
        (b"\xc1\x02\x01\x40", "key without a value"),
        (b"\xc1\x05\x04\x40\x41\x40\x42", "same key twice"),
        (b"\xc1\x03\x02\x45\x40", "compound value for a key"),
        (b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", "at most 65536"),
        (b"\xc0\x03\x01\x40\x40", "should end at byte"),
        (b"\x00\x40" * (MAX_NESTING + 1) + b"\x40", "nested"),
        (b"\x73\x00\x11\x00\x00", "not a Unicode character"),
    ],
)
def test_malformed_bytes_raise_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode(data)

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.tfrecord import (
    RecordDamaged,
    decode_example,
    decode_records,
    encode_example,
    encode_record,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
FEATURES = st.dictionaries(st.text(max_size=8), st.binary(max_size=300) | INT64, max_size=5)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_records_come_back(records: list[bytes]) -> None:
    assert list(decode_records(b"".join(map(encode_record, records)))) == records


@given(FEATURES)
def test_examples_come_back(features: dict[str, bytes | int]) -> None:
    assert decode_example(encode_example(features)) == {
        name: [value] for name, value in features.items()
    }


def test_a_record_is_as_tensorflow_writes_it() -> None:
    # Computed by hand: CRC-32C of 123456789 is E3069283 (RFC 3720, B.4), masked as documented.
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    record = encode_record(b"123456789")
    assert record[:8] == bytes([9, 0, 0, 0, 0, 0, 0, 0])
    assert record[12:] == b"123456789" + struct.pack("<I", masked)


def test_an_example_is_as_protobuf_writes_it() -> None:
    feature = b"\x0a\x03\x0a\x01z"  # bytes_list { value: "z" }
    entry = b"\x0a\x01a" + b"\x12\x05" + feature
    assert encode_example({"a": b"z"}) == b"\x0a\x0c\x0a\x0a" + entry
    integer = b"\x1a\x04\x0a\x02\xac\x02"  # int64_list { value: 300 }
    entry = b"\x0a\x01a" + b"\x12\x06" + integer
    assert encode_example({"a": 300}) == b"\x0a\x0d\x0a\x0b" + entry


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (b"\x1a\x06\x08\x01\x08\xac\x02\x20", None),  # cut off within
        (b"\x1a\x05\x08\x01\x08\xac\x02", [1, 300]),  # not packed, as proto2 writers do
        (b"\x12\x06\x0a\x04" + struct.pack("<f", 1.5), [1.5]),
        (b"\x12\x05\x0d" + struct.pack("<f", 1.5), [1.5]),
        (b"\x20\x07", ()),  # a field of a later version
        (b"", ()),
    ],
)
def test_what_other_writers_may_write_is_read(feature: bytes, values: object) -> None:
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    example = b"\x0a" + bytes([len(features)]) + features
    if values is None:
        with pytest.raises(RecordDamaged):
            decode_example(example)
    else:
        assert decode_example(example) == {"a": values}


@given(st.binary(max_size=60), st.data())
def test_a_changed_bit_is_noticed(content: bytes, data: st.DataObject) -> None:
    record = bytearray(encode_record(content) * 2)
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RecordDamaged):
        list(decode_records(bytes(record)))


@given(st.binary(max_size=60), st.integers(1, 75))
def test_a_cut_is_noticed(content: bytes, length: int) -> None:
    record = encode_record(content)
    if length < len(record):
        with pytest.raises(RecordDamaged):
            list(decode_records(record[:length]))


@given(st.binary(max_size=100))
def test_noise_is_refused_never_worse(noise: bytes) -> None:
    with contextlib.suppress(RecordDamaged):
        list(decode_records(noise))
    with contextlib.suppress(RecordDamaged):
        decode_example(noise)

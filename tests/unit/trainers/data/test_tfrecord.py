from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.tfrecord import Example, decode_records, encode_record


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_records_come_back(records: list[bytes]) -> None:
    assert list(decode_records(b"".join(map(encode_record, records)))) == records


def test_a_record_is_as_tensorflow_writes_it() -> None:
    # Computed by hand: CRC-32C of 123456789 is E3069283 (RFC 3720, B.4), masked as documented.
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    record = encode_record(b"123456789")
    assert record[:8] == bytes([9, 0, 0, 0, 0, 0, 0, 0])
    assert record[12:] == b"123456789" + struct.pack("<I", masked)


@given(st.binary(max_size=60), st.data())
def test_a_changed_bit_is_noticed(content: bytes, data: st.DataObject) -> None:
    record = bytearray(encode_record(content) * 2)
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="byte"):
        list(decode_records(bytes(record)))


@given(st.binary(max_size=60), st.integers(1, 75))
def test_a_cut_is_noticed(content: bytes, length: int) -> None:
    record = encode_record(content)
    if length < len(record):
        with pytest.raises(ValueError, match="byte"):
            list(decode_records(record[:length]))


@given(st.binary(max_size=100))
def test_noise_is_refused_never_worse(noise: bytes) -> None:
    with contextlib.suppress(ValueError):
        list(decode_records(noise))


def _encoded(feature: bytes) -> bytes:
    """An Example with one feature, named a, encoded as the caller says."""
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x0a" + bytes([len(features)]) + features


def test_an_example_is_as_tensorflow_writes_it() -> None:
    # By hand, from feature.proto and protobuf.dev, "Encoding".
    example = Example()
    example.features.feature["a"].bytes_list.value.append(b"z")
    assert example.SerializeToString() == _encoded(b"\x0a\x03\x0a\x01z")


@pytest.mark.parametrize(
    "feature",
    [
        b"\x0a\x03\x0a\x01z\x20\x07",  # with a field of a later version
        b"\x0a\x06\x0a\x01z\x0a\x01y",  # with more than one value
    ],
)
def test_what_other_writers_may_write_is_read(feature: bytes) -> None:
    found = Example.FromString(_encoded(feature)).features.feature["a"]
    assert found.bytes_list.value[0] == b"z"

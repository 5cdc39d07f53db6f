from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.tfrecord import RecordDamaged, decode_records, encode_record


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

from __future__ import annotations

import contextlib
import struct
from random import Random

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


INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.dictionaries(st.text(max_size=8).map("b{}".format), st.binary(max_size=300), max_size=3)
INTEGERS = st.dictionaries(st.text(max_size=8).map("i{}".format), INT64, max_size=3)


def _example(feature: bytes) -> bytes:
    """An Example with one feature, named a, encoded as the caller says."""
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x0a" + bytes([len(features)]) + features


@given(BYTES, INTEGERS)
def test_values_come_back(of_bytes: dict[str, bytes], of_integers: dict[str, int]) -> None:
    found = decode_example(encode_example({**of_bytes, **of_integers}))
    assert {name: list(found[name].bytes_list.value) for name in of_bytes} == {
        name: [value] for name, value in of_bytes.items()
    }
    assert {name: list(found[name].int64_list.value) for name in of_integers} == {
        name: [value] for name, value in of_integers.items()
    }
    assert set(found) == {*of_bytes, *of_integers}


@given(BYTES, INTEGERS, st.randoms())
def test_the_order_of_names_changes_no_byte(
    of_bytes: dict[str, bytes], of_integers: dict[str, int], random: Random
) -> None:
    features = {**of_bytes, **of_integers}
    names = list(features)
    random.shuffle(names)
    assert encode_example({name: features[name] for name in names}) == encode_example(features)


def test_an_example_is_as_tensorflow_writes_it() -> None:
    # By hand, from feature.proto and protobuf.dev, "Encoding".
    assert encode_example({"a": b"z"}) == _example(b"\x0a\x03\x0a\x01z")  # bytes_list
    assert encode_example({"a": 300}) == _example(b"\x1a\x04\x0a\x02\xac\x02")  # int64_list


@pytest.mark.parametrize(
    "feature",
    [
        b"\x1a\x04\x0a\x02\xac\x02",
        b"\x1a\x03\x08\xac\x02",  # not packed, as proto2 writers do
        b"\x1a\x04\x0a\x02\xac\x02\x20\x07",  # with a field of a later version
        b"\x1a\x06\x0a\x04\xac\x02\xad\x02",  # with more than one value
    ],
)
def test_what_other_writers_may_write_is_read(feature: bytes) -> None:
    assert decode_example(_example(feature))["a"].int64_list.value[0] == 300


def test_what_is_cut_off_is_refused() -> None:
    with pytest.raises(RecordDamaged, match=r"no tf\.train\.Example"):
        decode_example(_example(b"\x1a\x04\x0a\x02\xac"))


@given(st.binary(max_size=100))
def test_noise_is_no_example_and_nothing_worse(noise: bytes) -> None:
    with contextlib.suppress(RecordDamaged):
        decode_example(noise)

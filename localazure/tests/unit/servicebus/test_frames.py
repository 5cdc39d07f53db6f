"""Frames and performatives: round trips, any chunking, hostile bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import AmqpError, DecodeError, FramingError
from localazure.servicebus.amqp.types import Described, Symbol, UInt, ULong

MAX_FRAME_SIZE = 4096

UINTS = st.integers(0, 2**32 - 1)
FLAGS = st.one_of(st.none(), st.booleans())
ERRORS = st.one_of(
    st.none(),
    st.builds(p.Error, st.just("amqp:not-found"), st.text(max_size=20), st.just({})),
)
STATES = st.one_of(
    st.none(),
    st.builds(p.Accepted),
    st.builds(p.Released),
    st.builds(p.Modified, FLAGS, FLAGS),
    st.builds(p.Rejected, ERRORS),
)
PERFORMATIVES: st.SearchStrategy[p.Composite] = st.one_of(
    st.builds(p.Open, st.text(max_size=20), idle_timeout_ms=st.one_of(st.none(), UINTS)),
    st.builds(
        p.Begin, st.none(), next_outgoing_id=UINTS, incoming_window=UINTS, outgoing_window=UINTS
    ),
    st.builds(
        p.Attach,
        st.text(max_size=20),
        UINTS,
        st.booleans(),
        source=st.builds(p.Source, st.text(max_size=20), outcomes=st.just(["amqp:accepted:list"])),
        target=st.builds(p.Target, st.text(max_size=20)),
        max_message_size=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    ),
    st.builds(
        p.Flow,
        st.none(),
        incoming_window=UINTS,
        next_outgoing_id=UINTS,
        outgoing_window=UINTS,
        drain=FLAGS,
    ),
    st.builds(p.Transfer, UINTS, UINTS, st.binary(max_size=32), settled=FLAGS, state=STATES),
    st.builds(p.Disposition, st.booleans(), UINTS, UINTS, FLAGS, STATES),
    st.builds(p.Detach, UINTS, FLAGS, ERRORS),
    st.builds(p.End, ERRORS),
    st.builds(p.Close, ERRORS),
    st.builds(p.SaslInit, st.just("PLAIN"), st.binary(max_size=40)),
)
FRAMES = st.builds(
    frames.Frame,
    st.just(frames.AMQP_FRAME),
    st.integers(0, 2**16 - 1),
    PERFORMATIVES,
    st.binary(max_size=50),
)


def decode_all(data: bytes, pieces: Iterator[int]) -> list[Any]:
    decoder = frames.FrameDecoder(MAX_FRAME_SIZE)
    decoded: list[Any] = []
    while data:
        size = next(pieces)
        decoder.feed(data[:size])
        data = data[size:]
        decoded.extend(decoder.frames())
    return decoded


def wire(frame: frames.Frame) -> bytes:
    assert frame.performative is not None
    return frames.encode_frame(frame.performative, frame.payload, channel=frame.channel)


@given(st.lists(FRAMES, max_size=6), st.data())
def test_any_chunking_gives_the_same_frames(
    sent: list[frames.Frame], choices: st.DataObject
) -> None:
    data = frames.AMQP_HEADER + b"".join(map(wire, sent)) + frames.HEARTBEAT
    expected = [
        frames.AMQP_HEADER,
        *sent,
        frames.Frame(frames.AMQP_FRAME, 0, None),
    ]
    pieces = choices.draw(st.lists(st.integers(1, 40), min_size=1, max_size=10))
    for sizes in (cycle(pieces), repeat(len(data)), repeat(1)):
        assert decode_all(data, sizes) == expected


@given(FRAMES, st.data())
def test_damaged_frames_give_frames_or_the_typed_error(
    frame: frames.Frame, choices: st.DataObject
) -> None:
    data = bytearray(wire(frame))
    for _ in range(choices.draw(st.integers(1, 3))):
        position = choices.draw(st.integers(frames.FRAME_HEADER_SIZE, len(data) - 1))
        data[position] = choices.draw(st.integers(0, 255))
    try:
        decode_all(bytes(data), repeat(len(data)))
    except AmqpError:
        return


def test_omitted_fields_read_as_their_defaults() -> None:
    described = Described(ULong(p.Open.code), ["me"])
    opened = p.from_described(described)
    assert opened == p.Open("me")
    assert isinstance(opened, p.Open)
    assert opened.max_frame_size == 2**32 - 1


def test_a_symbolic_descriptor_equals_its_code() -> None:
    assert p.from_described(Described(Symbol("amqp:end:list"), [])) == p.End()


def test_an_unknown_described_value_is_kept() -> None:
    coordinator = Described(ULong(0x30), [])
    assert p.from_described(coordinator) is coordinator


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "lacks its field container_id"),
        ([1], "container_id should be string, not int"),
        (["me", None, True], "max_frame_size should be uint, not bool"),
        (["me"] * 11, "at most 10"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: list[Any], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        p.Open.from_fields(fields)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\xff\xff\x02\x00\x00\x00", "at most 4096"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "data offset 4"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "data offset 12"),
        (b"\x00\x00\x00\x08\x02\x07\x00\x00", "unknown type 7"),
    ],
)
def test_a_malformed_stream_raises_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FramingError, match=reason):
        decode_all(data, repeat(8))


def test_a_frame_must_hold_a_known_performative() -> None:
    header = b"\x00\x00\x00\x0b\x02\x00\x00\x00"
    with pytest.raises(DecodeError, match="unknown performative"):
        decode_all(header + b"\x00\x44\x45", repeat(11))
    with pytest.raises(DecodeError, match="in place of a performative"):
        decode_all(b"\x00\x00\x00\x09\x02\x00\x00\x00\x43", repeat(9))


def test_numbers_decode_to_their_amqp_type() -> None:
    flow = p.Flow(None, incoming_window=1, next_outgoing_id=0, outgoing_window=2)
    assert flow.to_described().value == [None, UInt(1), UInt(0), UInt(2)]

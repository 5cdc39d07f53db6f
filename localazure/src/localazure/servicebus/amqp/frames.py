"""Decoding a byte stream into frames, and encoding frames (part 2 section 2.3, part 5 section 5.3).

A frame is 4 bytes size, 1 byte data offset in words of 4, 1 byte type (0 AMQP, 1 SASL), 2 bytes
channel, then one performative and, after a transfer, the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from localazure.servicebus.amqp.composite import Composite
from localazure.servicebus.amqp.decoding import decode
from localazure.servicebus.amqp.errors import DecodeError, FramingError
from localazure.servicebus.amqp.performatives import from_described
from localazure.servicebus.amqp.types import Described

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
FRAME_HEADER_SIZE = 8  # a protocol header has the same size
AMQP_FRAME, SASL_FRAME = 0, 1
# The smallest max-frame-size that a peer may announce (part 2 section 2.7.1).
MIN_MAX_FRAME_SIZE = 512

_FRAME_HEADER = struct.Struct(">IBBH")
HEARTBEAT = _FRAME_HEADER.pack(FRAME_HEADER_SIZE, 2, AMQP_FRAME, 0)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. The performative is None in a heartbeat."""

    kind: int
    channel: int
    performative: Composite | None
    payload: bytes = b""


def encode_frame(
    performative: Composite, payload: bytes = b"", *, channel: int = 0, kind: int = AMQP_FRAME
) -> bytes:
    """Return the bytes of one frame."""
    body = performative.encode()
    size = FRAME_HEADER_SIZE + len(body) + len(payload)
    return _FRAME_HEADER.pack(size, 2, kind, channel) + body + payload


class FrameDecoder:
    """Decodes protocol headers and frames from a byte stream in pieces of any size."""

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        self._buffer += data

    def frames(self) -> Iterator[bytes | Frame]:
        """Yield all complete protocol headers (as bytes) and frames, in order.

        Raises:
            FramingError: the stream is not a sequence of frames. The rest of it cannot be read.
            DecodeError: the body of a frame is not a performative.
        """
        while len(self._buffer) >= FRAME_HEADER_SIZE:
            if self._buffer.startswith(b"AMQP"):
                yield bytes(self._buffer[:FRAME_HEADER_SIZE])
                del self._buffer[:FRAME_HEADER_SIZE]
                continue
            size, offset, kind, channel = _FRAME_HEADER.unpack_from(self._buffer)
            if size > self._max_frame_size:
                raise FramingError(f"a frame of {size} bytes; at most {self._max_frame_size}")
            if offset < FRAME_HEADER_SIZE // 4 or offset * 4 > size:
                raise FramingError(f"a frame of {size} bytes with data offset {offset * 4}")
            if kind not in (AMQP_FRAME, SASL_FRAME):
                raise FramingError(f"a frame of the unknown type {kind}")
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[offset * 4 : size])
            del self._buffer[:size]
            yield _parse(kind, channel, body)


def _parse(kind: int, channel: int, body: bytes) -> Frame:
    if not body:
        return Frame(kind, channel, None)
    described, end = decode(body)
    if not isinstance(described, Described):
        raise DecodeError(f"a frame holds {type(described).__name__} in place of a performative")
    performative = from_described(described)
    if not isinstance(performative, Composite):
        raise DecodeError(f"unknown performative {described.descriptor!r}")
    return Frame(kind, channel, performative, body[end:])

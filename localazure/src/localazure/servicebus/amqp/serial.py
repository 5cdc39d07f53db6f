"""Serial numbers of transfers and deliveries: 32 bits that wrap around (RFC 1982)."""

from __future__ import annotations

SERIAL_MODULUS = 2**32


def signed_difference(later: int, earlier: int) -> int:
    """How far `later` is ahead of `earlier`; negative if it is behind."""
    difference = (later - earlier) % SERIAL_MODULUS
    return difference - SERIAL_MODULUS if difference >= SERIAL_MODULUS // 2 else difference

"""Partitions of a task hub, and the distribution of their leases among hosts.

Source: the Azure Storage provider, https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-azure-storage-provider#orchestrator-scale-out
(control queues with one lease each); its hash is FNV-1a of the instance id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DEFAULT_PARTITION_COUNT: Final = 4
MOST_PARTITIONS: Final = 16

_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The lease of one partition.

    Attributes:
        owner: the host that holds the lease, or held it last.
        epoch: increases each time another host takes the lease.
        expires_at_us: microseconds since the Unix epoch; from then on any host may take it.
    """

    partition: int
    owner: str
    epoch: int
    expires_at_us: int


def partition_of(target: str, count: int) -> int:
    """Return the partition of an instance or entity, from 0 to `count - 1`."""
    digest = _FNV_OFFSET
    for byte in target.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return digest % count


def to_take(leases: Sequence[Lease], host: str, now_us: int) -> list[int]:
    """Return the partitions whose leases a host should take now.

    Expired leases come first, up to the host's share. If there are none, and another host has at
    least two leases more than this one, the host takes one of them. With repeated calls, the
    shares converge until they differ by at most one.

    Args:
        leases: the leases of all partitions.
        host: the host that calls. It keeps and renews the leases that it holds.
        now_us: microseconds since the Unix epoch.
    """
    held = Counter(
        lease.owner for lease in leases if lease.expires_at_us > now_us or lease.owner == host
    )
    held[host] += 0  # counts as a host even without leases
    mine = held[host]
    share = -(-len(leases) // len(held))
    free = [
        lease.partition for lease in leases if lease.expires_at_us <= now_us and lease.owner != host
    ]
    if free:
        return free[: max(share - mine, 0)]
    busiest = max(held, key=lambda owner: (held[owner], owner))
    if held[busiest] - mine < 2:  # noqa: PLR2004 - with one it would go to and fro
        return []
    return [next(lease.partition for lease in leases if lease.owner == busiest)]

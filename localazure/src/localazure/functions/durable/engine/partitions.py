"""Partitions of a task hub, and which host should have the lease of which.

Source: the Azure Storage provider, https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-azure-storage-provider#orchestrator-scale-out
(control queues, one lease each); its hash is FNV-1a of the instance id.
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
        owner: the host that holds it, or held it last.
        epoch: grows whenever another host takes it.
        expires_at_us: microseconds since the Unix epoch; from then on any host may take it.
    """

    partition: int
    owner: str
    epoch: int
    expires_at_us: int


def partition_of(target: str, count: int) -> int:
    """The partition of an instance or an entity, among so many."""
    digest = _FNV_OFFSET
    for byte in target.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return digest % count


def to_take(leases: Sequence[Lease], host: str, now_us: int) -> list[int]:
    """The partitions whose leases a host should take now.

    What has expired comes first, up to the host's share. If there is none, and another host has at
    least two more than this one, it is robbed of one: repeated, this ends with shares that differ
    by one at most.

    Args:
        leases: of all partitions.
        host: who asks; it keeps what it has, and renews it.
        now_us: microseconds since the Unix epoch.
    """
    held = Counter(
        lease.owner for lease in leases if lease.expires_at_us > now_us or lease.owner == host
    )
    held[host] += 0  # it counts, even with none
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

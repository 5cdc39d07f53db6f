"""Leases in the store: who owns which partition, and whose activity runs where.

Functions of a connection, run within a transaction. The write lock of SQLite makes each of them
atomic among the processes of one task hub.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from localazure.errors import StartError
from localazure.functions.durable.engine.partitions import Lease, to_take
from localazure.functions.durable.store.records import Activity

Held = dict[int, int]
"""The partitions of a host, each with the epoch of its lease."""


class LeasesChanged(Exception):
    """A host has other partitions than it had: `held`. What it has in memory is void."""

    def __init__(self, held: Held) -> None:
        super().__init__(f"the partitions of this host are now {sorted(held)}")
        self.held = held


def prepare(connection: sqlite3.Connection, partition_count: int, now_us: int) -> None:
    """Make the table fit so many partitions, and have arrivals counted beyond all messages.

    Raises:
        StartError: a host with another `partitionCount` is at work.
    """
    leases = read(connection)
    if len(leases) != partition_count:
        if any(lease.expires_at_us > now_us for lease in leases):
            raise StartError(
                f"host.json: partitionCount is {partition_count}, but a host that runs on this "
                f"task hub has {len(leases)}: stop all of them first"
            )
        connection.execute("DELETE FROM leases")
        connection.executemany(
            "INSERT INTO leases VALUES (?, '', 0, 0)",
            [(number,) for number in range(partition_count)],
        )
    connection.execute(
        "UPDATE arrivals SET last = max(last, (SELECT coalesce(max(sequence), 0) FROM inbox))"
    )


def read(connection: sqlite3.Connection) -> list[Lease]:
    """All leases."""
    return [
        Lease(**dict(row))
        for row in connection.execute(
            "SELECT partition, owner, epoch, expires_at_us FROM leases ORDER BY partition"
        )
    ]


def renew(connection: sqlite3.Connection, host: str, now_us: int, until_us: int) -> Held:
    """Renew a host's leases and take those that it should have; what it holds then."""
    leases = read(connection)
    taken = to_take(leases, host, now_us)
    connection.executemany(
        "UPDATE leases SET owner = ?, epoch = epoch + 1 WHERE partition = ?",
        [(host, partition) for partition in taken],
    )
    connection.execute("UPDATE leases SET expires_at_us = ? WHERE owner = ?", (until_us, host))
    return {lease.partition: lease.epoch for lease in read(connection) if lease.owner == host}


def release(connection: sqlite3.Connection, host: str) -> None:
    """Give back a host's leases."""
    connection.execute("UPDATE leases SET expires_at_us = 0 WHERE owner = ?", (host,))


def fence(connection: sqlite3.Connection, host: str, partition: int, held: Held) -> None:
    """Refuse what a host that lost the lease of a partition wants to write.

    Raises:
        LeasesChanged: another host owns it, or owned it meanwhile.
    """
    row = connection.execute(
        "SELECT 1 FROM leases WHERE partition = ? AND owner = ? AND epoch = ?",
        (partition, host, held.get(partition)),
    ).fetchone()
    if row is None:
        raise LeasesChanged({one: epoch for one, epoch in held.items() if one != partition})


def advance(connection: sqlite3.Connection, partitions: Sequence[int]) -> None:
    """Void what the owners of partitions have in memory: their rows were changed by others."""
    connection.executemany(
        "UPDATE leases SET epoch = epoch + 1 WHERE partition = ?", [(one,) for one in partitions]
    )


def mark_arrivals(connection: sqlite3.Connection, instance_ids: Sequence[str]) -> None:
    """Number created instances, so that the hosts that own them find them."""
    for instance_id in instance_ids:
        connection.execute("UPDATE arrivals SET last = last + 1")
        connection.execute(
            "UPDATE instances SET arrival = (SELECT last FROM arrivals) WHERE instance_id = ?",
            (instance_id,),
        )


def claim_activities(
    connection: sqlite3.Connection, most: int, now_us: int, until_us: int
) -> list[Activity]:
    """Take activities that no host runs, oldest first: they are invisible until `until_us`."""
    rows = connection.execute(
        "UPDATE activities SET not_before_us = ? WHERE rowid IN"
        " (SELECT rowid FROM activities WHERE not_before_us <= ? ORDER BY rowid LIMIT ?)"
        " RETURNING instance_id, execution_id, event_id, name, input_json, not_before_us",
        (until_us, now_us, most),
    ).fetchall()
    return [Activity(**dict(row)) for row in rows]


def renew_claims(
    connection: sqlite3.Connection, activities: Sequence[Activity], until_us: int
) -> None:
    """Have running activities stay invisible to other hosts."""
    connection.executemany(
        "UPDATE activities SET not_before_us = ? WHERE execution_id = ? AND event_id = ?",
        [(until_us, activity.execution_id, activity.event_id) for activity in activities],
    )

"""Leases in the store, of partitions and of activities.

Each function runs within a transaction of its connection. SQLite's write lock makes it atomic among
the processes of one task hub.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from localazure.errors import StartError
from localazure.functions.durable.engine.partitions import Lease, to_take
from localazure.functions.durable.store.records import Activity

Held = dict[int, int]
"""The partitions of a host, with the epochs of their leases."""


class LeasesChanged(Exception):
    """The host's partitions have changed to `held`, so its memory is out of date."""

    def __init__(self, held: Held) -> None:
        super().__init__(f"the partitions of this host are now {sorted(held)}")
        self.held = held


def prepare(connection: sqlite3.Connection, partition_count: int, now_us: int) -> None:
    """Create a lease for each partition, and let arrival numbers continue after all messages.

    Raises:
        StartError: a running host has another `partitionCount`.
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
    """Renew a host's leases, take those that it should have, and return the leases it holds."""
    leases = read(connection)
    taken = to_take(leases, host, now_us)
    connection.executemany(
        "UPDATE leases SET owner = ?, epoch = epoch + 1 WHERE partition = ?",
        [(host, partition) for partition in taken],
    )
    connection.execute("UPDATE leases SET expires_at_us = ? WHERE owner = ?", (until_us, host))
    return {lease.partition: lease.epoch for lease in read(connection) if lease.owner == host}


def release(connection: sqlite3.Connection, host: str) -> None:
    """Release a host's leases."""
    connection.execute("UPDATE leases SET expires_at_us = 0 WHERE owner = ?", (host,))


def fence(connection: sqlite3.Connection, host: str, partition: int, held: Held) -> None:
    """Check that a host that is about to write still has the lease of a partition.

    Raises:
        LeasesChanged: another host owns the partition, or owned it meanwhile.
    """
    row = connection.execute(
        "SELECT 1 FROM leases WHERE partition = ? AND owner = ? AND epoch = ?",
        (partition, host, held.get(partition)),
    ).fetchone()
    if row is None:
        raise LeasesChanged({one: epoch for one, epoch in held.items() if one != partition})


def advance(connection: sqlite3.Connection, partitions: Sequence[int]) -> None:
    """Make the owners of partitions reload them, because others changed their rows."""
    connection.executemany(
        "UPDATE leases SET epoch = epoch + 1 WHERE partition = ?", [(one,) for one in partitions]
    )


def mark_arrivals(connection: sqlite3.Connection, instance_ids: Sequence[str]) -> None:
    """Give new instances arrival numbers, by which their hosts find them."""
    for instance_id in instance_ids:
        connection.execute("UPDATE arrivals SET last = last + 1")
        connection.execute(
            "UPDATE instances SET arrival = (SELECT last FROM arrivals) WHERE instance_id = ?",
            (instance_id,),
        )


def claim_activities(
    connection: sqlite3.Connection, most: int, now_us: int, until_us: int
) -> list[Activity]:
    """Claim activities that no host runs, oldest first, until `until_us`."""
    rows = connection.execute(
        "UPDATE activities SET not_before_us = ? WHERE rowid IN"
        " (SELECT rowid FROM activities WHERE not_before_us <= ? ORDER BY rowid LIMIT ?)"
        " RETURNING instance_id, execution_id, event_id, name, input_json, not_before_us,"
        " context_json",
        (until_us, now_us, most),
    ).fetchall()
    return [Activity(**dict(row)) for row in rows]


def renew_claims(
    connection: sqlite3.Connection, activities: Sequence[Activity], until_us: int
) -> None:
    """Keep running activities invisible to other hosts."""
    connection.executemany(
        "UPDATE activities SET not_before_us = ? WHERE execution_id = ? AND event_id = ?",
        [(until_us, activity.execution_id, activity.event_id) for activity in activities],
    )

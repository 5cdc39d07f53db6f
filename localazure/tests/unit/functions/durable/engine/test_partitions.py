from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.durable.engine.partitions import Lease, partition_of, to_take

LEASE_US = 30


def test_the_hash_is_fnv_1a_of_the_id() -> None:
    # http://www.isthe.com/chongo/tech/comp/fnv/: 32 bits of "foobar"
    assert partition_of("foobar", 1 << 32) == 0xBF9CF968
    assert {partition_of(f"{number}", 4) for number in range(100)} == {0, 1, 2, 3}


class Hosts:
    """Leases, and hosts that take turns to renew and take them."""

    def __init__(self, partitions: int) -> None:
        self.now_us = 1
        self.leases = [
            Lease(partition=number, owner="", epoch=0, expires_at_us=0)
            for number in range(partitions)
        ]

    def renew(self, host: str) -> None:
        taken = to_take(self.leases, host, self.now_us)
        self.leases = [
            replace(lease, owner=host, epoch=lease.epoch + (lease.owner != host), expires_at_us=end)
            if lease.partition in taken or lease.owner == host
            else lease
            for lease in self.leases
            for end in (self.now_us + LEASE_US,)
        ]

    def shares(self) -> Counter[str]:
        return Counter(lease.owner for lease in self.leases)


@given(partitions=st.integers(1, 16), hosts=st.integers(1, 5), seed=st.integers())
def test_hosts_end_with_equal_shares_whatever_the_order_of_their_renewals(
    partitions: int, hosts: int, seed: int
) -> None:
    chance = random.Random(seed)
    names = [f"host-{number}" for number in range(hosts)]
    some = Hosts(partitions)
    for _ in range(2 * partitions + 2):
        for name in chance.sample(names, hosts):
            some.renew(name)
            some.now_us += 1
    shares = [some.shares()[name] for name in names]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1
    before = some.leases
    for name in names:
        assert to_take(before, name, some.now_us) == []  # and the leases no longer move

from __future__ import annotations

from typing import cast

import pytest
from azure.ai.ml.entities import AmlCompute

from handlers.training.compute_clusters import Shortage, ensure_capacity, find_shortages, key_of
from harness.waiting import until
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.training import EnsureCapacity
from orchestrations.errors import QuotaExceeded
from tests.local.handlers.cloud import LIMITED_SIZE, Cloud


def ensure(cloud: Cloud, option: ComputeOption) -> AmlCompute:
    capacity = ensure_capacity(cloud.clients, EnsureCapacity(options=[option]))
    return cast("AmlCompute", cloud.clients.ml.compute.get(capacity.cluster))


def test_makes_a_cluster_and_lets_it_grow_but_never_shrink(cloud: Cloud) -> None:
    option = ComputeOption(
        cluster="growing",
        size="Standard_D4s_v5",
        priority="low_priority",
        nodes=2,
        idle_seconds_before_scale_down=90,
    )
    made = ensure(cloud, option)
    assert (made.size, made.tier, made.min_instances, made.max_instances) == (
        "Standard_D4s_v5",
        "low_priority",
        0,
        2,
    )
    assert made.idle_time_before_scale_down == 90
    assert ensure(cloud, option.model_copy(update={"nodes": 5})).max_instances == 5
    assert ensure(cloud, option).max_instances == 5


def test_more_nodes_than_the_quota_ever_allows_are_not_waited_for(cloud: Cloud) -> None:
    large = ComputeOption(cluster="large", size=LIMITED_SIZE, nodes=4)
    small = large.model_copy(update={"cluster": "small", "nodes": 3})
    assert ensure_capacity(cloud.clients, EnsureCapacity(options=[large, small])).nodes == 3
    # A cluster of that size can be made; its fourth node would never come.
    made = AmlCompute(name="large", size=LIMITED_SIZE, max_instances=4)
    cloud.clients.ml.compute.begin_create_or_update(made).result()
    with pytest.raises(QuotaExceeded, match=r"0 of 18 vCPUs .* 4 new nodes need 24"):
        ensure_capacity(cloud.clients, EnsureCapacity(options=[large]))
    for name in ("large", "small"):
        cloud.clients.ml.compute.begin_delete(name).result()


def test_options_are_measured_by_the_vcpus_of_the_sdks_answers(cloud: Cloud) -> None:
    ml = cloud.clients.ml

    def shortage(cluster: str, nodes: int) -> Shortage | None:
        option = ComputeOption(cluster=cluster, size=LIMITED_SIZE, nodes=nodes)
        return find_shortages(cloud.clients, [option]).get(key_of(option))

    quota = f"of 18 vCPUs of the quota {LIMITED_SIZE.lower()} are in use"
    assert shortage("idle", 3) is None
    assert shortage("idle", 4) == Shortage(f"0 {quota}, 4 new nodes need 24", is_lasting=True)
    made = AmlCompute(name="idle", size=LIMITED_SIZE, min_instances=2, max_instances=2)
    ml.compute.begin_create_or_update(made).result()
    until(lambda: shortage("idle", 3) is None, what="idle nodes, which a run of the cluster takes")
    assert shortage("other", 2) == Shortage(f"12 {quota}, 2 new nodes need 12", is_lasting=False)
    assert shortage("other", 1) is None
    ml.compute.begin_delete("idle").result()


def test_low_priority_nodes_of_all_sizes_share_one_quota(cloud: Cloud) -> None:
    sizes = {"small": "Standard_D4s_v5", "large": LIMITED_SIZE}
    options = [
        ComputeOption(cluster=name, size=size, priority="low_priority", nodes=nodes)
        for name, size in sizes.items()
        for nodes in (2, 8)
    ]
    for name, size in sizes.items():
        made = AmlCompute(name=name, size=size, tier="low_priority", max_instances=4)
        cloud.clients.ml.compute.begin_create_or_update(made).result()
    found = find_shortages(cloud.clients, options)
    # Nodes of other tests may be in use.
    said = "of 24 vCPUs of the quota TotalLowPriorityCores are in use, 8 new nodes need"
    assert {key: each.message.partition(" ")[2] for key, each in found.items()} == {
        ("small", 8): f"{said} 32",
        ("large", 8): f"{said} 48",
    }
    assert all(each.is_lasting for each in found.values())
    for name in sizes:
        cloud.clients.ml.compute.begin_delete(name).result()

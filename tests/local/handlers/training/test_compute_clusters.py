from __future__ import annotations

from typing import cast

import pytest
from azure.ai.ml.entities import AmlCompute

from handlers.training.compute_clusters import ensure_capacity
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.jobs import EnsureCapacity
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

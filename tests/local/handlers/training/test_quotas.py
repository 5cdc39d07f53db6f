from __future__ import annotations

from azure.ai.ml.entities import AmlCompute

from handlers.training.quotas import Shortage, find_shortages, key_of
from harness.waiting import until
from orchestrations.configuration.pipeline import ComputeOption
from tests.local.handlers.cloud import LIMITED_SIZE, Cloud


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

"""AmlCompute clusters: conversion between ARM documents and the types of `allocation`.

https://learn.microsoft.com/rest/api/azureml/compute
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from localazure.machinelearning.compute.allocation import Cluster, Node, NodeState
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.fields import read_seconds
from localazure.machinelearning.store import Resource, get_resource, list_resources
from localazure.runtime.identity import CLUSTER
from localazure.sqlite.query import Query

COMPUTES = "computes"
DEFAULT_IDLE_TIME = "PT2M"
LOW_PRIORITY = "LowPriority"
_VCPUS = re.compile(r"(?:standard|basic)_[a-z]+([1-9][0-9]*)", re.IGNORECASE)

SERVERLESS = Cluster(name="serverless", vm_size="", min_nodes=0, max_nodes=16, idle_seconds=0.0)
"""The cluster of jobs without compute. Their instance type has no effect here.

https://learn.microsoft.com/azure/machine-learning/how-to-use-serverless-compute
"""


def parse_cluster(name: str, document: dict[str, Any]) -> Cluster:
    """Check a compute's document.

    Raises:
        ArmError: 400, the compute is not an AmlCompute cluster, its name is reserved, or its scale
            settings are wrong.
    """
    if name.lower() == SERVERLESS.name:
        raise invalid(f"compute {name!r}: the name is reserved for jobs without compute")
    properties = document.get("properties") or {}
    if properties.get("computeType") != "AmlCompute":
        raise invalid(
            f"compute {name!r}: computeType {properties.get('computeType')!r} is not covered; "
            "the local workspace has AmlCompute clusters"
        )
    details = properties.get("properties") or {}
    scale = details.get("scaleSettings") or {}
    minimum, maximum = scale.get("minNodeCount", 0), scale.get("maxNodeCount", 1)
    if not (isinstance(minimum, int) and isinstance(maximum, int) and 0 <= minimum <= maximum):
        raise invalid(
            f"compute {name!r}: minNodeCount {minimum!r} and maxNodeCount {maximum!r} must be "
            "numbers, the first at most the second"
        )
    return Cluster(
        name=name,
        vm_size=details.get("vmSize") or "",
        min_nodes=minimum,
        max_nodes=maximum,
        vcpus=vcpus_of(details.get("vmSize") or ""),
        is_low_priority=details.get("vmPriority") == LOW_PRIORITY,
        idle_seconds=read_seconds(
            f"compute {name!r}: nodeIdleTimeBeforeScaleDown",
            scale.get("nodeIdleTimeBeforeScaleDown") or DEFAULT_IDLE_TIME,
        ),
    )


def list_clusters(query: Query) -> list[Cluster]:
    """All clusters, oldest first; the serverless one is last."""
    resources = reversed(list_resources(query, COMPUTES))
    clusters = [parse_cluster(resource.name, resource.document) for resource in resources]
    return [*clusters, SERVERLESS]


def vcpus_of(vm_size: str) -> int:
    """The vCPUs in a VM size's name: 24 for `Standard_NC24ads_A100_v4`, 1 without a number.

    The number in older names, such as `Standard_DS3_v2`, has another meaning.
    https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions
    """
    size = _VCPUS.match(vm_size)
    return int(size[1]) if size else 1


def is_low_priority(resource: Resource) -> bool:
    """Whether nodes of the cluster may be preempted."""
    return parse_cluster(resource.name, resource.document).is_low_priority


def identity_of(resource: Resource) -> str | None:
    """The principal of a cluster's default identity, with which jobs use data; None without one.

    It is the system-assigned one, or else the first user-assigned one.
    https://learn.microsoft.com/azure/machine-learning/how-to-create-attach-compute-cluster#set-up-managed-identity
    """
    identity = resource.document.get("identity") or {}
    if "systemassigned" in str(identity.get("type")).lower():
        return f"{COMPUTES}/{resource.name}"
    assigned = next(iter(identity.get("userAssignedIdentities") or ()), None)
    return None if assigned is None else assigned.rstrip("/").rpartition("/")[2]


def principal_on(query: Query, cluster: str) -> str | None:
    """The identity with which jobs on a cluster use data; None without one.

    On Azure, serverless jobs act as the person who submitted them; here they have one identity.
    """
    if cluster == SERVERLESS.name:
        return CLUSTER
    resource = get_resource(query, COMPUTES, cluster)
    return None if resource is None else identity_of(resource)


def check_quota(cluster: Cluster, others: list[Cluster], quotas: dict[str, int]) -> None:
    """Refuse a cluster whose minimum size or first node exceeds the quota.

    A larger maximum is accepted, as on Azure: the cluster then stops growing at the quota.

    Raises:
        ArmError: 400.
    """
    limit = quotas.get(cluster.quota)
    if limit is None:
        return
    sharing = [each for each in others if each.name != cluster.name] + [cluster]
    always_running = sum(
        each.min_nodes * each.quota_per_node for each in sharing if each.quota == cluster.quota
    )
    needed = max(cluster.quota_per_node, always_running)
    if needed > limit:
        what = "low-priority vCPUs" if cluster.is_low_priority else f"nodes of {cluster.vm_size}"
        raise ArmError(
            400,
            "ClusterMinNodesExceedCoreQuota",
            f"compute {cluster.name!r}: it needs a quota of at least {needed} {what}, the quota is "
            f"{limit}; lower min_instances, use another size, or ask for more quota",
        )


def runtime_properties(
    cluster: Cluster,
    nodes: list[Node],
    *,
    is_short_of_quota: bool,
    is_short_of_capacity: bool,
    modified_at: float,
) -> dict[str, Any]:
    """The run-time properties of a cluster that only GET returns: `properties.properties`."""
    counts = Counter(node.state for node in nodes)
    is_resizing = counts[NodeState.PREPARING] > 0
    transition_at = max((node.since for node in nodes), default=modified_at)
    errors: dict[str, str] = {}
    if is_short_of_quota:
        errors["ClusterCoreQuotaReached"] = (
            f"the quota {cluster.quota} does not allow another node of compute "
            f"{cluster.name!r}; jobs wait for nodes that become free"
        )
    if is_short_of_capacity:
        errors["AllocationFailed"] = (
            f"there is no capacity for another node of {cluster.vm_size} now; compute "
            f"{cluster.name!r} tries again, and its jobs wait"
        )
    return {
        "allocationState": "Resizing" if is_resizing else "Steady",
        "allocationStateTransitionTime": datetime.fromtimestamp(transition_at, tz=UTC).isoformat(),
        "currentNodeCount": len(nodes) - counts[NodeState.PREPARING],
        "targetNodeCount": len(nodes),
        "nodeStateCounts": {
            "idleNodeCount": counts[NodeState.IDLE],
            "runningNodeCount": counts[NodeState.RUNNING],
            "preparingNodeCount": counts[NodeState.PREPARING],
            "unusableNodeCount": 0,
            "leavingNodeCount": 0,
            "preemptedNodeCount": counts[NodeState.PREEMPTED],
        },
        "errors": [{"error": {"code": code, "message": errors[code]}} for code in errors] or None,
    }

"""Assigns nodes to jobs, and lets clusters grow and shrink. Pure: state in, state out.

Rules, in the order in which `allocate_nodes` applies them:

1. A node becomes idle after its provisioning time. A preempted node is removed when its job has
   released it.
2. A job whose cluster was deleted fails.
3. Each cluster serves its waiting jobs in the order of submission. A job that needs more nodes
   than the cluster's maximum waits and does not block other jobs (the cluster may be scaled up);
   every other job blocks the jobs behind it, so that large jobs do not starve.
4. Idle nodes that a waiting job needs are kept for it. Missing nodes are added, up to the
   cluster's maximum, but only if the quota (of the VM size, or of low-priority nodes) allows all
   of them: clusters that each had a part of their nodes would otherwise wait for each other
   forever.
5. Idle nodes beyond the maximum are removed immediately, others after the cluster's idle time,
   down to the minimum. The minimum is kept also without jobs.

https://learn.microsoft.com/azure/machine-learning/how-to-create-attach-compute-cluster
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from localazure.machinelearning.configuration import LOW_PRIORITY_QUOTA, Configuration

CAPACITY_RETRY_SECONDS = 1.0


class NodeState(StrEnum):
    """The states of a cluster's node, as `AmlCompute.nodeStateCounts` counts them."""

    PREPARING = "preparing"
    IDLE = "idle"
    RUNNING = "running"
    PREEMPTED = "preempted"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Scale settings of one AmlCompute cluster; times are in seconds."""

    name: str
    vm_size: str
    min_nodes: int
    max_nodes: int
    idle_seconds: float
    vcpus: int = 1
    """Of a node."""
    is_low_priority: bool = False

    @property
    def quota(self) -> str:
        """The name of the quota in which its nodes count."""
        return LOW_PRIORITY_QUOTA if self.is_low_priority else self.vm_size.lower()

    @property
    def quota_per_node(self) -> int:
        """What a node takes of it: sizes are counted in nodes, low priority in vCPUs."""
        return self.vcpus if self.is_low_priority else 1


@dataclass(frozen=True, kw_only=True)
class Node:
    """One allocated slot of a cluster."""

    cluster: str
    number: int
    state: NodeState
    since: float
    """When the node entered its state, epoch seconds."""
    job: str | None = None
    """The job whose attempt runs on the node."""


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job in Queued or Provisioning."""

    name: str
    cluster: str
    node_count: int


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What jobs, nodes and clusters become."""

    nodes: tuple[Node, ...]
    """All nodes after the rules were applied."""
    started: tuple[str, ...]
    """Jobs that got their nodes."""
    provisioning: tuple[str, ...]
    """Waiting jobs for which nodes are being allocated."""
    orphaned: tuple[WaitingJob, ...]
    """Waiting jobs whose cluster does not exist."""
    short_of_quota: tuple[str, ...]
    """Clusters that would grow further if the quota allowed it."""
    short_of_capacity: frozenset[str]
    """Clusters that would grow further if there were capacity."""
    grown: frozenset[str]
    """Clusters with new nodes."""
    wake_at: float | None
    """When the next timed change is due, epoch seconds."""


def allocate_nodes(
    *,
    clusters: tuple[Cluster, ...],
    nodes: tuple[Node, ...],
    waiting: tuple[WaitingJob, ...],
    configuration: Configuration,
    now: float,
    exhausted: frozenset[str] = frozenset(),
) -> Allocation:
    """Apply the rules once.

    Args:
        clusters: all clusters.
        nodes: all allocated nodes.
        waiting: waiting jobs, in the order of submission.
        configuration: the quotas, and the provisioning time of a node.
        now: epoch seconds.
        exhausted: clusters that cannot get new nodes now, independent of the quota; the next
            attempt is after `CAPACITY_RETRY_SECONDS`.
    """
    names = {cluster.name for cluster in clusters}
    provisioning_seconds = configuration.provisioning_seconds
    pool = _Pool(
        nodes=[
            _provisioned(node, provisioning_seconds, now)
            for node in nodes
            if (node.cluster in names or node.job is not None)
            and not (node.state is NodeState.PREEMPTED and node.job is None)
        ],
        clusters={cluster.name: cluster for cluster in clusters},
        quotas=configuration.quotas,
        now=now,
        exhausted=exhausted,
    )
    started: list[str] = []
    provisioning: list[str] = []
    short: list[str] = []
    short_of_capacity: set[str] = set()
    wake_at: list[float] = []
    for cluster in clusters:
        cluster_jobs = [job for job in waiting if job.cluster == cluster.name]
        queue = [job for job in cluster_jobs if job.node_count <= cluster.max_nodes]
        while queue and pool.assign(queue[0], cluster):
            started.append(queue.pop(0).name)
        servable = _head(queue, pool.unassigned(cluster.name) + pool.quota_left(cluster))
        demand = sum(job.node_count for job in servable)
        is_whole = pool.grow(cluster, demand) and len(servable) == len(queue)
        if not is_whole and cluster.name in exhausted:
            short_of_capacity.add(cluster.name)
            wake_at.append(now + CAPACITY_RETRY_SECONDS)
        elif not is_whole:
            short.append(cluster.name)
        provisioning.extend(job.name for job in _head(queue, pool.unassigned(cluster.name)))
        wake_at.extend(pool.shrink(cluster, demand))
    wake_at.extend(
        node.since + provisioning_seconds
        for node in pool.nodes
        if node.state is NodeState.PREPARING
    )
    return Allocation(
        nodes=tuple(pool.nodes),
        started=tuple(started),
        provisioning=tuple(provisioning),
        orphaned=tuple(job for job in waiting if job.cluster not in names),
        short_of_quota=tuple(short),
        short_of_capacity=frozenset(short_of_capacity),
        grown=frozenset(pool.grown),
        wake_at=min(wake_at, default=None),
    )


def release(nodes: tuple[Node, ...], job: str, now: float) -> tuple[Node, ...]:
    """Return the nodes after a job's attempt: its nodes are idle; preempted nodes are removed."""
    return tuple(
        replace(node, job=None, state=NodeState.IDLE, since=now) if node.job == job else node
        for node in nodes
        if not (node.job == job and node.state is NodeState.PREEMPTED)
    )


def _provisioned(node: Node, provisioning_seconds: float, now: float) -> Node:
    if node.state is NodeState.PREPARING and now >= node.since + provisioning_seconds:
        return replace(node, state=NodeState.IDLE, since=now)
    return node


def _head(queue: list[WaitingJob], node_count: float) -> list[WaitingJob]:
    """The jobs at the head of the queue that this number of nodes can serve together."""
    head: list[WaitingJob] = []
    for job in queue:
        node_count -= job.node_count
        if node_count < 0:
            break
        head.append(job)
    return head


@dataclass(kw_only=True)
class _Pool:
    """The working copy of the nodes in one allocation."""

    nodes: list[Node]
    clusters: Mapping[str, Cluster]
    """By name."""
    quotas: Mapping[str, int]
    """Name → limit, as in `Configuration.quotas`."""
    now: float
    exhausted: frozenset[str]
    grown: set[str] = field(default_factory=set[str])

    def unassigned(self, cluster: str) -> int:
        return sum(
            node.cluster == cluster and node.state in {NodeState.IDLE, NodeState.PREPARING}
            for node in self.nodes
        )

    def assign(self, job: WaitingJob, cluster: Cluster) -> bool:
        """Assign idle nodes to the job, if there are enough; return whether it has its nodes."""
        idle = [
            index
            for index, node in enumerate(self.nodes)
            if node.cluster == cluster.name and node.state is NodeState.IDLE
        ]
        if len(idle) < job.node_count:
            return False
        for index in idle[: job.node_count]:
            self.nodes[index] = replace(
                self.nodes[index], state=NodeState.RUNNING, since=self.now, job=job.name
            )
        return True

    def grow(self, cluster: Cluster, demand: int) -> bool:
        """Add nodes for the demand; return false if the quota or capacity prevents it."""
        present = self._count(cluster.name)
        target = max(
            cluster.min_nodes,
            min(cluster.max_nodes, present - self.unassigned(cluster.name) + demand),
        )
        missing = max(0, target - present)
        allowed = int(min(missing, self.quota_left(cluster)))
        if allowed:
            self.grown.add(cluster.name)
        numbers = {node.number for node in self.nodes if node.cluster == cluster.name}
        free_numbers = (number for number in range(len(numbers) + allowed) if number not in numbers)
        self.nodes.extend(
            Node(cluster=cluster.name, number=number, state=NodeState.PREPARING, since=self.now)
            for number, _ in zip(free_numbers, range(allowed), strict=False)
        )
        return allowed == missing

    def shrink(self, cluster: Cluster, demand: int) -> list[float]:
        """Remove idle nodes that are due, and return when the other idle nodes will be due."""
        spare = max(0, self.unassigned(cluster.name) - demand)
        beyond_minimum = max(0, self._count(cluster.name) - cluster.min_nodes)
        beyond_maximum = max(0, self._count(cluster.name) - cluster.max_nodes)
        removable = min(spare, beyond_minimum)
        idle = sorted(
            (
                node
                for node in self.nodes
                if node.cluster == cluster.name and node.state is NodeState.IDLE
            ),
            key=lambda node: (node.since, -node.number),
        )[:removable]
        due = [
            node
            for index, node in enumerate(idle)
            if index < beyond_maximum or self.now >= node.since + cluster.idle_seconds
        ]
        self.nodes = [node for node in self.nodes if node not in due]
        return [node.since + cluster.idle_seconds for node in idle if node not in due]

    def _count(self, cluster: str) -> int:
        return sum(node.cluster == cluster for node in self.nodes)

    def quota_left(self, cluster: Cluster) -> float:
        """How many nodes of the cluster the quota still allows."""
        if cluster.name in self.exhausted:
            return 0
        limit = self.quotas.get(cluster.quota)
        if limit is None:
            return math.inf
        others = [
            self.clusters[node.cluster] for node in self.nodes if node.cluster in self.clusters
        ]
        used = sum(each.quota_per_node for each in others if each.quota == cluster.quota)
        return max(0, (limit - used) // cluster.quota_per_node)

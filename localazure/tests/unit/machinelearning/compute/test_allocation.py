from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from localazure.machinelearning.compute.allocation import (
    Allocation,
    Cluster,
    Node,
    NodeState,
    WaitingJob,
    allocate_nodes,
    release,
)
from localazure.machinelearning.configuration import Configuration

CONFIGURATION = Configuration(
    quota={"scarce": 3}, total_low_priority_cores=16, provisioning_seconds=2.0
)


def cluster(name: str = "cpu", **fields: object) -> Cluster:
    standard = Cluster(name=name, vm_size="d2", min_nodes=0, max_nodes=4, idle_seconds=10)
    return replace(standard, **fields)  # pyright: ignore[reportArgumentType] - any field


def job(name: str, node_count: int = 1, on: str = "cpu") -> WaitingJob:
    return WaitingJob(name=name, cluster=on, node_count=node_count)


def idle(count: int) -> tuple[Node, ...]:
    return tuple(
        Node(cluster="cpu", number=number, state=NodeState.IDLE, since=0) for number in range(count)
    )


def allocate(
    clusters: list[Cluster],
    nodes: tuple[Node, ...],
    waiting: list[WaitingJob],
    now: float,
    exhausted: frozenset[str] = frozenset(),
) -> Allocation:
    return allocate_nodes(
        clusters=tuple(clusters),
        nodes=nodes,
        waiting=tuple(waiting),
        configuration=CONFIGURATION,
        now=now,
        exhausted=exhausted,
    )


def test_a_job_gets_new_nodes_once_they_are_provisioned() -> None:
    first = allocate([cluster()], (), [job("a", 2)], 0)
    assert first.provisioning == ("a",)
    assert [node.state for node in first.nodes] == [NodeState.PREPARING] * 2
    assert first.wake_at == 2
    early = allocate([cluster()], first.nodes, [job("a", 2)], 1)
    assert early.nodes == first.nodes
    ready = allocate([cluster()], first.nodes, [job("a", 2)], 2)
    assert ready.started == ("a",)
    assert [node.job for node in ready.nodes] == ["a", "a"]


def test_idle_nodes_are_removed_after_the_idle_time_down_to_the_minimum() -> None:
    before = allocate([cluster(min_nodes=1)], idle(3), [], 9)
    assert (before.nodes, before.wake_at) == (idle(3), 10)
    assert len(allocate([cluster(min_nodes=1)], idle(3), [], 10).nodes) == 1
    assert len(allocate([cluster(max_nodes=1)], idle(3), [], 1).nodes) == 1, "at once above it"


def test_a_large_job_is_not_starved_and_one_that_cannot_fit_blocks_no_other() -> None:
    for first, started in ((job("large", 2), ()), (job("never", 5), ("small",))):
        assert allocate([cluster()], idle(1), [first, job("small")], 1).started == started


def test_a_cluster_that_needs_more_than_the_quota_is_short_of_it() -> None:
    scarce = cluster(vm_size="Scarce", max_nodes=4)
    outcome = allocate([scarce], (), [job("a", 2), job("b", 4)], 0)
    assert len(outcome.nodes) == 2, "no node is held for a job that cannot have all of its own"
    assert outcome.short_of_quota == ("cpu",)
    assert outcome.provisioning == ("a",)


def test_low_priority_nodes_of_all_sizes_share_one_quota_of_vcpus() -> None:
    spot = {"is_low_priority": True, "max_nodes": 9}
    small = cluster("small", vm_size="Scarce", vcpus=4, **spot)
    large = cluster("large", vm_size="d8", vcpus=8, **spot)
    dedicated = cluster("dedicated", vm_size="scarce", vcpus=4)
    waiting = [job("a", 2, "small"), job("b", 1, "large"), job("c", 1, "large")]
    outcome = allocate([small, large, dedicated], (), [*waiting, job("d", 3, "dedicated")], 0)
    assert outcome.provisioning == ("a", "b", "d"), "low priority does not count in a size's quota"
    assert outcome.short_of_quota == ("large",)


def test_a_cluster_exhausted_keeps_what_it_has_and_is_tried_again() -> None:
    waiting = [job("a"), job("b", 2)]
    short = allocate([cluster()], idle(1), waiting, 1, frozenset({"cpu"}))
    assert (short.started, len(short.nodes), short.wake_at) == (("a",), 1, 2)
    assert (short.short_of_capacity, short.short_of_quota) == ({"cpu"}, ())
    again = allocate([cluster()], short.nodes, waiting[1:], 2)
    assert (again.grown, again.provisioning, len(again.nodes)) == ({"cpu"}, ("b",), 3)


def test_jobs_of_a_deleted_cluster_are_orphaned() -> None:
    assert allocate([], (), [job("a")], 0).orphaned == (job("a"),)


class Scheduling(RuleBasedStateMachine):
    """Jobs start and end, clusters change, nodes are lost, time passes: the rules always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.clusters = {
            "cpu": cluster("cpu"),
            "a": cluster("a", vm_size="scarce", max_nodes=3),
            "b": cluster("b", vm_size="Scarce", max_nodes=2, min_nodes=1),
        }
        self.nodes: tuple[Node, ...] = ()
        self.waiting: list[WaitingJob] = []
        self.running: dict[str, WaitingJob] = {}
        self.submitted = 0
        self.over_maximum: set[str] = set()

    @rule(on=st.sampled_from(["cpu", "a", "b"]), node_count=st.integers(1, 5))
    def submit(self, on: str, node_count: int) -> None:
        self.submitted += 1
        self.waiting.append(job(f"job-{self.submitted}", node_count, on))

    @rule(name=st.sampled_from(["cpu", "a"]), maximum=st.integers(0, 5))
    def scale(self, name: str, maximum: int) -> None:
        self.clusters[name] = replace(self.clusters[name], max_nodes=maximum)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_requeued=st.booleans())
    def end(self, data: st.DataObject, *, is_requeued: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        ended = self.running.pop(name)
        self.nodes = release(self.nodes, name, self.now)
        if is_requeued:
            self.waiting.insert(0, ended)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        lost = data.draw(st.sampled_from(self.nodes))
        preempted = replace(lost, state=NodeState.PREEMPTED, since=self.now)
        self.nodes = tuple(preempted if node == lost else node for node in self.nodes)

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._advance()

    def _advance(self) -> Allocation:
        before = {name: sum(node.cluster == name for node in self.nodes) for name in self.clusters}
        outcome = allocate(list(self.clusters.values()), self.nodes, self.waiting, self.now)
        self.nodes = outcome.nodes
        for name in outcome.started:
            started = next(entry for entry in self.waiting if entry.name == name)
            self.waiting.remove(started)
            self.running[name] = started
        for name, entry in self.clusters.items():
            present = sum(node.cluster == name for node in self.nodes)
            assert present <= max(entry.max_nodes, before[name]), "it grows to its maximum only"
        return outcome

    @invariant()
    def every_running_job_has_exactly_its_nodes(self) -> None:
        for name, entry in self.running.items():
            mine = [node for node in self.nodes if node.job == name]
            assert len(mine) == entry.node_count
            assert {node.cluster for node in mine} == {entry.cluster}
            assert {node.state for node in mine} <= {NodeState.RUNNING, NodeState.PREEMPTED}

    @invariant()
    def nodes_are_distinct_and_idle_ones_have_no_job(self) -> None:
        assert len({(node.cluster, node.number) for node in self.nodes}) == len(self.nodes)
        for node in self.nodes:
            if node.state in {NodeState.IDLE, NodeState.PREPARING}:
                assert node.job is None
            if node.job is not None:
                assert node.job in self.running

    @invariant()
    def the_quota_holds(self) -> None:
        assert sum(node.cluster in {"a", "b"} for node in self.nodes) <= 3

    def teardown(self) -> None:
        """Without further changes, every job that fits runs, and the clusters become empty."""
        for name, entry in self.clusters.items():
            self.clusters[name] = replace(entry, max_nodes=max(entry.max_nodes, entry.min_nodes))
        for _ in range(4 * (len(self.waiting) + len(self.running)) + 8):
            for name in list(self.running):
                del self.running[name]
                self.nodes = release(self.nodes, name, self.now)
            self.now += 20
            self._advance()
        for entry in self.waiting:
            fits = self.clusters[entry.cluster].max_nodes >= entry.node_count
            within_quota = entry.cluster == "cpu" or entry.node_count <= (
                2 if entry.cluster == "a" else 3
            )
            blocked = any(
                other.cluster == entry.cluster and other.node_count > 2 and other is not entry
                for other in self.waiting
            )
            assert not fits or not within_quota or blocked, f"{entry.name} was starved"


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=40, stateful_step_count=25)

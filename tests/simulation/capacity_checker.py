"""Invariants of nodes: runs of two pipelines wait for them in the queues of `queues.yml`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache

from handlers.platform.configuration.pipeline_files import load_queues
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import Admission
from orchestrations.names import alert_id
from orchestrations.training import accounts
from tests.simulation.evidence import Evidence
from tests.simulation.fakes.training import ENDED, JobLife
from tests.simulation.world import QUEUED_PIPELINES_FOLDER

# How a sentence about a waiting run begins: why it waits, or why that cannot be decided.
REASONS = ("waits in queue ", "cannot be decided yet: ")
# Amounts are sums of floats.
LEAST_AMOUNT = 1e-6


def nodes_are_never_above_their_limits(evidence: Evidence) -> Iterator[str]:
    """Check admitted nodes and used nodes, for each flavor and each queue."""
    for at, document in _documents(evidence):
        used: Counter[str] = Counter()
        for (queue, flavor), nodes in accounts.held(document).items():
            used[flavor] += nodes
            if nodes > document.queues.limit(queue, flavor):
                yield f"queue {queue} holds {nodes} nodes of {flavor} at {at:.0f} s"
        yield from _above(document.queues, used, f"are admitted at {at:.0f} s")
    if evidence.world.story.zone != "queued":
        return
    for life in evidence.world.cluster.lives.values():
        at = life.states[0][0]
        used = Counter[str]()
        for each in _living(evidence, at):
            used[each.cluster] += _nodes(evidence, each)
        yield from _above(_queues(), used, f"are used when job {life.name} is submitted")


def budgets_are_kept(evidence: Evidence) -> Iterator[str]:
    """No run is admitted if its expected cost exceeds the budget of its queue."""
    admitted: set[str] = set()
    for at, document in _documents(evidence):
        new = {each.run: each.queue for each in document.admitted if each.run not in admitted}
        admitted = {each.run for each in document.admitted}
        for run, name in new.items():
            queue, spending = document.queues.queue(name), accounts.spending_of(document, name)
            if queue is None or queue.budget is None or spending is None:
                continue
            reserved = sum(
                accounts.reserved(each, document.at)
                for each in document.admitted
                if each.queue == name
            )
            if spending.settled + reserved > queue.budget.amount + LEAST_AMOUNT:
                yield (
                    f"{run} was admitted at {at:.0f} s: {spending.settled:.2f} are spent and "
                    f"{reserved:.2f} reserved of {queue.budget.amount:.2f}"
                )


def jobs_hold_their_nodes(evidence: Evidence) -> Iterator[str]:
    """A run holds nodes while its job lives; at the end no run holds or waits for nodes."""
    documents = _documents(evidence)
    for at, document in documents:
        held = {each.run for each in document.admitted}
        for life in _living(evidence, at):
            if life.name not in held:
                yield f"job {life.name} lives at {at:.0f} s, and its run holds no nodes"
    if documents and evidence.world.is_idle:
        last = documents[-1][1]
        yield from (f"{each.run} holds nodes for ever" for each in last.admitted)
        yield from (f"{each.run} waits for nodes for ever" for each in last.waiting)


def waiting_runs_have_their_sentence(evidence: Evidence) -> Iterator[str]:
    """Each status of a run that waits says why."""
    for run in evidence.runs.values():
        for status in run.instance.statuses:
            reason = status.get("reason") or ""
            if status["state"] == "waiting_for_nodes" and not reason.startswith(REASONS):
                yield f"{run.id} waits for nodes because: {reason!r}"


def long_waits_are_alerted(evidence: Evidence) -> Iterator[str]:
    """A run that is marked as alerted has its alert, and one that waits for long is marked."""
    published = {message.message_id for message in evidence.alerts}
    alerted = {
        each.run
        for _, document in _documents(evidence)
        for each in document.waiting
        if each.alerted
    }
    for run in alerted:
        if alert_id("waiting-for-nodes", run) not in published:
            yield f"{run} is marked as alerted, and no alert came"


def _documents(evidence: Evidence) -> list[tuple[float, Admission]]:
    return [
        (at, Admission.from_dict(json.loads(content))) for at, content in evidence.world.admissions
    ]


def _living(evidence: Evidence, at: float) -> Iterator[JobLife]:
    for life in evidence.world.cluster.lives.values():
        ended = life.states[-1][0] if life.states[-1][1] in ENDED else None
        if life.states[0][0] <= at and (ended is None or at < ended):
            yield life


def _nodes(evidence: Evidence, life: JobLife) -> int:
    _, compute = evidence.requests[life.run].pipeline.jobs[life.stage]
    return next(option.nodes for option in compute if option.cluster == life.cluster)


def _above(queues: Queues, used: Counter[str], when: str) -> Iterator[str]:
    for name, nodes in used.items():
        flavor = queues.flavor(name)
        if flavor is None or nodes > flavor.nodes:
            yield f"{nodes} nodes of {name} {when}"


@cache
def _queues() -> Queues:
    queues = load_queues(QUEUED_PIPELINES_FOLDER)
    assert queues is not None
    return queues


INVARIANTS_OF_CAPACITY = (
    nodes_are_never_above_their_limits,
    budgets_are_kept,
    jobs_hold_their_nodes,
    waiting_runs_have_their_sentence,
    long_waits_are_alerted,
)

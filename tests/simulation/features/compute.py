"""`compute` and `queues.yml`: jobs run where there is quota, within limits and budgets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from handlers.training import admission, compute_clusters
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import Admission, NodesReturned, ReturnNodes
from orchestrations.errors import DataRejected, InvalidResults, QuotaExceeded
from orchestrations.names import alert_id
from orchestrations.training import accounts
from orchestrations.training.room import Reasons, Room
from tests.simulation.fakes.training import ENDED, JobLife
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.folders import QUEUED_PIPELINES_FOLDER
from tests.simulation.planting import body, both, round_without
from tests.simulation.scheduler import START
from tests.simulation.story import (
    DAY,
    HOUR,
    Item,
    JobEnd,
    JobFate,
    RivalUpload,
    Shortage,
    Terminate,
    Upload,
)
from tests.simulation.weeks import UPLOAD, UPLOADED_AT, first_job

if TYPE_CHECKING:
    from handlers.platform.clients import Clients
    from tests.simulation.evidence import Evidence
    from tests.simulation.subjects import Run


# Amounts are sums of floats.
LEAST_AMOUNT = 1e-6
# How a sentence about a waiting run begins: why it waits, or why that cannot be decided.
REASONS = ("waits in queue ", "cannot be decided yet: ")
# Trainers' mistakes that no other attempt can help, and what the run is rejected for then.
REJECTED_FOR: dict[str, tuple[JobEnd, ...]] = {
    DataRejected.__name__: ("rejects a file", "rejects all files"),
    InvalidResults.__name__: (
        "leaves no metrics",
        "leaves a null metric",
        "leaves a wrong comparison",
    ),
}


def _documents(evidence: Evidence) -> list[tuple[float, Admission]]:
    return [
        (at, Admission.from_dict(json.loads(content))) for at, content in evidence.world.admissions
    ]


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


def _living(evidence: Evidence, at: float) -> Iterator[JobLife]:
    for life in evidence.world.cluster.lives.values():
        ended = life.states[-1][0] if life.states[-1][1] in ENDED else None
        if life.states[0][0] <= at and (ended is None or at < ended):
            yield life


def _was_submitted_too_late(evidence: Evidence, life: JobLife) -> bool:
    """Whether its run had ended without a job: a slow execution submitted it, and cancelled it."""
    statuses = evidence.runs[life.run].instance.statuses
    return life.cancelled_at is not None and all(each["job"] is None for each in statuses)


def jobs_hold_their_nodes(evidence: Evidence) -> Iterator[str]:
    """A run holds nodes while its job lives; at the end no run holds or waits for nodes."""
    documents = _documents(evidence)
    for at, document in documents:
        held = {each.run for each in document.admitted}
        for life in _living(evidence, at):
            if life.name not in held and not _was_submitted_too_late(evidence, life):
                yield f"job {life.name} lives at {at:.0f} s, and its run holds no nodes"
    if documents and evidence.world.is_idle:
        last = documents[-1][1]
        yield from (f"{each.run} holds nodes for ever" for each in last.admitted)
        yield from (f"{each.run} waits for nodes for ever" for each in last.waiting)


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


def _above(queues: Queues, used: Counter[str], when: str) -> Iterator[str]:
    for name, nodes in used.items():
        flavor = queues.flavor(name)
        if flavor is None or nodes > flavor.nodes:
            yield f"{nodes} nodes of {name} {when}"


def _nodes(evidence: Evidence, life: JobLife) -> int:
    _, compute = evidence.requests[life.run].pipeline.jobs[life.stage]
    return next(option.nodes for option in compute if option.cluster == life.cluster)


@cache
def _queues() -> Queues:
    queues = load_queues(QUEUED_PIPELINES_FOLDER)
    assert queues is not None
    return queues


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


def waiting_runs_have_their_sentence(evidence: Evidence) -> Iterator[str]:
    """Each status of a run that waits says why."""
    for run in evidence.runs.values():
        for status in run.instance.statuses:
            reason = status.get("reason") or ""
            if status["state"] == "waiting_for_nodes" and not reason.startswith(REASONS):
                yield f"{run.id} waits for nodes because: {reason!r}"


def _shortages(evidence: Evidence) -> list[Shortage]:
    return [item for item in evidence.world.story.items if isinstance(item, Shortage)]


def jobs_run_where_there_is_quota(evidence: Evidence) -> Iterator[str]:
    """No job is submitted to a cluster that was deleted before its run began."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None:
            continue
        submitted = life.states[0][0]
        # An instance that was started again is younger than its job.
        began = min((run.instance.created_at - START).total_seconds(), submitted)
        for item in _shortages(evidence):
            lasts = item.at <= began and submitted < item.at + item.seconds
            if lasts and life.cluster in item.clusters:
                yield f"job {life.name} was submitted to {life.cluster}, which has no quota"


def _was_short(evidence: Evidence, run: Run) -> bool:
    began = (run.instance.created_at - START).total_seconds()
    ended = (run.instance.last_updated_at - START).total_seconds()
    short = {
        cluster
        for item in _shortages(evidence)
        if item.at <= ended and began <= item.at + item.seconds
        for cluster in item.clusters
    }
    stages = evidence.requests[run.id].pipeline.jobs.values()
    options = (compute[min(run.attempt, len(compute)) - 1 :] for _, compute in stages)
    return any(all(option.cluster in short for option in each) for each in options)


def rejections_have_their_cause(evidence: Evidence) -> Iterator[str]:
    """A run is rejected for its trainer's mistake, a replaced model, or a shortage everywhere."""
    for run in evidence.runs.values():
        if run.state != "rejected":
            continue
        error = run.instance.custom_status["error"]
        ends = {it.end for it in evidence.world.cluster.lives.values() if it.run == run.id}
        if error["type"] == QuotaExceeded.__name__:
            if not _was_short(evidence, run):
                yield f"{run.id} was rejected for want of quota, and there was some"
        elif any(f"/{run.id}/" in name for name in evidence.world.overwritten):
            if "not the model that was judged" not in error["message"]:
                yield f"{run.id} was rejected for another reason: {error['message'][:200]}"
        elif not ends & set(REJECTED_FOR.get(error["type"], ())):
            yield f"{run.id} was rejected: {error['type']}: {error['message'][:200]}"


def _keep_nodes(_clients: Clients, _request: ReturnNodes) -> NodesReturned:
    return NodesReturned(returned=True)


def _send_without_alerts(clients: Clients, place: Any, *messages: Any) -> None:
    if place != OPS_ALERTS:
        send_in_background(clients, place, *messages)


QUEUED_UPLOAD = Upload(at=UPLOADED_AT, path="day=2026-11-02/1.png", content="one")
# Together their runs want more nodes than there are.
TWO_BATCHES: list[Item] = [
    QUEUED_UPLOAD,
    Upload(at=UPLOADED_AT, path="day=2026-11-01/1.png", content="two"),
    *(RivalUpload(at=UPLOADED_AT + n, path="1.png", content=f"{n}") for n in (0, 900)),
]
LONG_JOBS = [*(JobFate(number=n, end="never ends") for n in (1, 2)), *TWO_BATCHES]

FEATURE = Feature(
    changes={
        # The first option is on another cluster; the second one needs more nodes of a known one.
        "compute": Change(
            weight=0.2,
            sections={
                "compute": [
                    {"cluster": "large", "size": "Standard_D16s_v5", "nodes": 1},
                    {
                        "cluster": "spot",
                        "size": "Standard_D4s_v5",
                        "priority": "low_priority",
                        "nodes": 2,
                    },
                ]
            },
        ),
    },
    invariants=(
        budgets_are_kept,
        jobs_hold_their_nodes,
        long_waits_are_alerted,
        nodes_are_never_above_their_limits,
        waiting_runs_have_their_sentence,
        jobs_run_where_there_is_quota,
        rejections_have_their_cause,
    ),
    mistakes={
        "a shortage ends the run": Mistake(
            plant=both(
                lambda: mock.patch.object(compute_clusters, "find_shortages", return_value={}),
                lambda: mock.patch.object(compute_clusters, "is_quota_error", return_value=False),
            ),
            found_by=rejections_have_their_cause,
            items=[Shortage(at=0, seconds=DAY, clusters=("spot",)), UPLOAD],
        ),
        "nodes are given back while the job lives": Mistake(
            plant=lambda: mock.patch.object(admission, "find_job_state", return_value=None),
            found_by=jobs_hold_their_nodes,
            items=[
                QUEUED_UPLOAD,
                first_job("never ends"),
                RivalUpload(at=UPLOADED_AT + HOUR, path="1.png", content="rival"),
                Terminate(at=UPLOADED_AT + 4 * HOUR - 20, orchestrator="retraining"),
            ],
            zone="queued",
        ),
        "nodes are not given back": Mistake(
            plant=both(body("return_nodes", _keep_nodes), round_without("check_nodes")),
            found_by=jobs_hold_their_nodes,
            items=[QUEUED_UPLOAD, RivalUpload(at=UPLOADED_AT, path="1.png", content="rival")],
            zone="queued",
        ),
        "queues have no limits": Mistake(
            plant=both(
                lambda: mock.patch.object(Room, "free", return_value=99),
                lambda: mock.patch.object(Queues, "limit", return_value=99),
            ),
            found_by=nodes_are_never_above_their_limits,
            items=TWO_BATCHES,
            zone="queued",
        ),
        "budgets are not looked at": Mistake(
            plant=lambda: mock.patch.object(Room, "is_affordable", return_value=True),
            found_by=budgets_are_kept,
            items=LONG_JOBS,
            zone="queued",
        ),
        "why a run waits is not said": Mistake(
            plant=lambda: mock.patch.object(Reasons, "of", return_value=""),
            found_by=waiting_runs_have_their_sentence,
            items=TWO_BATCHES,
            zone="queued",
        ),
        "operators are not alerted to long waits": Mistake(
            plant=lambda: mock.patch.object(admission, "send_in_background", _send_without_alerts),
            found_by=long_waits_are_alerted,
            items=LONG_JOBS,
            zone="queued",
        ),
    },
)

"""A cluster for a run's job: through the queue that the pipeline names, or by quota alone."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.capacity import (
    Admitted,
    Refusal,
    RequestNodes,
    ReturnNodes,
)
from orchestrations.contracts.runs import CancelRequest
from orchestrations.contracts.training import AwaitingNodes, Capacity, EnsureCapacity, RunInput
from orchestrations.errors import DeadlineExceeded, LandfallError, QuotaExceeded, TransientError
from orchestrations.platform.activities import Step, call
from orchestrations.platform.waiting import (
    CAPACITY_LIMIT_SECONDS,
    CAPACITY_POLL_SECONDS,
    FIRST_NODES_DELAY,
    NODES_GENERATION,
    POLL_FAILURES_ALLOWED,
    POLLS_PER_GENERATION,
    InterruptibleTimer,
    growing_delay,
)
from orchestrations.training.run_progress import RunProgress


def find_capacity(
    run: RunProgress, awaiting: AwaitingNodes
) -> Generator[Any, Any, Capacity | CancelRequest | None]:
    """Get a cluster for one compute option. Attempt n starts at option n, or at the last one.

    Without a queue, the first option that fits into the quota is taken. With a queue:

    1. Ask for the nodes of one option (`request_nodes`). A recorded request to cancel the run
       ends the wait.
    2. If admitted: scale the cluster. If Azure ML refuses because quota is short, go back to 1 and
       report the shortage, so that this option is skipped.
    3. If not admitted: show why, and wait for the external event `wake_up`, which follows when
       nodes are returned, or for a minute, then for growing delays. After `NODES_GENERATION` or
       `POLLS_PER_GENERATION` turns, return None: the run continues as new. If a landing waits for
       this instance, it ends instead, and goes on as an instance of its own with the same place
       (`RunProgress.hand_over`).

    `wake_up` may be lost, and nobody raises it for a raised budget or quota: the next turn reads
    them.

    Raises:
        QuotaExceeded: no option fits.
        DeadlineExceeded: the run waited for longer than `limits.waiting_seconds`.
        TransientError: the records or Azure ML were unreachable for too long.
    """
    compute = run.request.compute
    options = compute[min(run.request.attempt, len(compute)) - 1 :]
    queue = run.request.pipeline.queue
    if queue is None:
        return (yield from _ensure(run, options))
    timer, failures, undisturbed_since = InterruptibleTimer(run.context), 0, awaiting.since
    renew_at = run.context.current_utc_datetime + NODES_GENERATION
    for _ in range(POLLS_PER_GENERATION):
        request = RequestNodes(
            run=run.request.job,
            pipeline=run.request.pipeline.name,
            queue=queue,
            options=options,
            refusals=awaiting.refusals,
        )
        try:
            admitted = yield from call(run.context, request)
            failures = 0
        except TransientError as error:
            failures += 1
            if failures > POLL_FAILURES_ALLOWED:
                raise
            admitted = Admitted(reason=f"cannot be decided yet: {error}", since=awaiting.since)
        if admitted.cancel is not None:
            return admitted.cancel
        if admitted.option is not None:
            if run.status.state == "waiting_for_nodes":
                run.advance("nodes_admitted", reason=None)
            try:
                return (yield from _ensure(run, [admitted.option]))
            except QuotaExceeded as error:
                option = admitted.option
                refusal = Refusal(cluster=option.cluster, nodes=option.nodes, message=str(error))
                refusals = (*awaiting.refusals, refusal)
                awaiting = awaiting.model_copy(update={"refusals": refusals})
                continue
        awaiting = awaiting.model_copy(update={"since": admitted.since})
        yield from _show_wait(run, admitted)
        deadline = _check_wait(run, awaiting)
        now = run.context.current_utc_datetime
        delay = growing_delay(now - undisturbed_since, FIRST_NODES_DELAY)
        woken = yield from timer.wait(max(now, min(now + delay, renew_at, deadline)))
        now = run.context.current_utc_datetime
        undisturbed_since = now if woken else undisturbed_since
        if timer.restart_needed or now >= renew_at:
            break
    yield from _renew(run, awaiting)
    return None


def return_nodes(run: RunProgress) -> Generator[Any, Any, None]:
    """Return the nodes that a run holds or has requested, and record their cost.

    The run that supersedes it takes its place in the queue.

    If that fails, or if the job has not ended yet, reconciliation returns them.
    """
    if run.request.pipeline.queue is None or run.nodes_returned:
        return
    with contextlib.suppress(LandfallError):
        returned = yield from call(
            run.context, ReturnNodes(run=run.request.job, heir=run.known.superseded_by)
        )
        run.nodes_returned = returned.returned
        if returned.cost is not None:
            run.update(cost=returned.cost)


def _renew(run: RunProgress, awaiting: AwaitingNodes) -> Generator[Any, Any, None]:
    """Begin a new generation; if a landing waits for this one, as an instance of its own."""
    if run.context.parent_instance_id and (yield from run.hand_over(run.request)):
        return
    awaiting = awaiting.model_copy(update={"reason": run.status.reason, "checked": False})
    run.context.continue_as_new(RunInput(request=run.request, awaiting=awaiting).to_dict())


def _show_wait(run: RunProgress, admitted: Admitted) -> Generator[Any, Any, None]:
    if run.status.state != "waiting_for_nodes":
        run.advance("nodes_awaited", reason=admitted.reason)
        yield from run.record()
    elif admitted.reason != run.status.reason:
        run.update(reason=admitted.reason)


def _check_wait(run: RunProgress, awaiting: AwaitingNodes) -> datetime:
    """When the wait will have taken too long."""
    allowed = run.request.pipeline.limits.waiting_seconds
    if allowed is None:
        return datetime.max.replace(tzinfo=UTC)
    deadline = awaiting.since + timedelta(seconds=allowed)
    if run.context.current_utc_datetime >= deadline:
        raise DeadlineExceeded(
            f"run {run.id} has waited for nodes of queue {run.request.pipeline.queue} for more "
            f"than limits.waiting_seconds ({allowed:.0f} s): {run.status.reason}"
        )
    return deadline


def _ensure(run: RunProgress, options: Sequence[ComputeOption]) -> Step[Capacity]:
    started_at = run.context.current_utc_datetime
    requested: str | None = None
    while True:
        capacity = yield from call(
            run.context, EnsureCapacity(options=list(options), requested=requested)
        )
        if capacity.ready:
            return capacity
        if requested is None:
            yield from run.record()
        requested = capacity.cluster
        now = run.context.current_utc_datetime
        if now - started_at > timedelta(seconds=CAPACITY_LIMIT_SECONDS):
            raise TransientError(
                f"cluster {requested} is still being changed after {CAPACITY_LIMIT_SECONDS:.0f} s"
            )
        yield run.context.create_timer(now + timedelta(seconds=CAPACITY_POLL_SECONDS))

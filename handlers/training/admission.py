"""Activities `request_nodes` and `return_nodes`, and the document that admission decides on.

Every writer reads `capacity/admission.json` in the records container, applies a pure function, and
writes it with optimistic concurrency by its ETag. docs/decisions explains why it is a blob.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from handlers.notify.outbox import trouble
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml_jobs import find_job_state, job_seconds
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.message_outbox import send_in_background
from handlers.platform.run_records import add_to_record, read_cancel_request, read_run_record
from handlers.platform.service_bus import (
    JOB_EVENTS,
    NODES_OFFERED,
    OPS_ALERTS,
    Message,
    fit_message_id,
)
from handlers.training.compute_clusters import (
    OptionKey,
    Shortage,
    find_shortages,
    key_of,
    no_option_fits,
)
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import (
    Admission,
    Admitted,
    NodesReturned,
    NodesWanted,
    RequestNodes,
    ReturnNodes,
    WaitingRun,
)
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import RunRecord
from orchestrations.errors import InvalidQueues
from orchestrations.names import alert_id, run_of_job
from orchestrations.platform.waiting import ENDED
from orchestrations.training import accounts
from orchestrations.training.admission import Division, ask, divide, mark_alerted, withdraw

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

RECORD = "capacity/admission.json"
# Usage follows from the other fields and the time: a difference only there needs no write.
_DERIVED = frozenset({"at", "usage"})


def find_admission(clients: Clients, *, now: datetime) -> Admission | None:
    """The document with the deployed queues; None if there is no `queues.yml`."""
    queues = load_queues(clients.settings.pipelines_folder)
    return None if queues is None else read_admission(clients.records, queues, now=now)


def read_admission(records: ContainerClient, queues: Queues, *, now: datetime) -> Admission:
    """The document with the deployed queues; an empty one if none was written yet."""
    return _parse(record_store.read(records, RECORD), queues, now)


def change_admission(
    clients: Clients,
    queues: Queues,
    change: Callable[[Admission], Admission],
    *,
    now: datetime,
    asking: str | None = None,
) -> Division:
    """Change the document, admit the runs that fit then, write it, and wake those runs.

    `change` is pure: it is called again if another writer was faster. The run `asking` learns of
    its admission from the result. If the process dies before the others are woken, they learn of it
    from reconciliation, or when they ask again.

    Raises:
        TransientError: another writer was faster in every round.
    """
    division: Division | None = None

    def write(document: Any | None) -> Any | None:
        nonlocal division
        before = _parse(document, queues, now)
        division = divide(change(before), now)
        is_same = document is not None and _recorded(before) == _recorded(division.document)
        return None if is_same else division.document.to_dict()

    record_store.update(clients.records, RECORD, write)
    assert division is not None, "the document was read at least once"
    offer_nodes(clients, division.admitted - {asking}, now=now)
    return division


def offer_nodes(clients: Clients, runs: Collection[str], *, now: datetime) -> None:
    """Wake runs, so that they ask for nodes now; as a message, since activities have no client."""
    for run in sorted(runs):
        event = {
            "specversion": "1.0",
            "id": f"nodes:{run}:{now.isoformat()}",
            "type": NODES_OFFERED,
            "source": "landfall",
            "subject": f"experiments/queues/runs/{run}",
            "time": now.isoformat(),
        }
        message = Message(message_id=fit_message_id(event["id"]), body=json.dumps(event))
        send_in_background(clients, JOB_EVENTS, message)


def _parse(document: Any | None, queues: Queues, now: datetime) -> Admission:
    if document is None:
        return Admission(queues=queues, at=now)
    return Admission.from_dict(document).model_copy(update={"queues": queues})


def _recorded(document: Admission) -> dict[str, Any]:
    return document.model_dump(exclude=set(_DERIVED))


@activity
def request_nodes(clients: Clients, request: RequestNodes) -> Admitted:
    """Put a run into its queue, divide the nodes, and return whether the run was admitted.

    The request is idempotent. Other runs that are admitted with it are woken.

    1. If a request to cancel the run is recorded, return it.
    2. If the run was admitted before, and Azure ML has not refused that option, return the option.
    3. Read Azure ML's quota for each option. Options without quota are skipped, with the reason.
    4. Put the run into the admission document, and divide the nodes.
    5. Alert operators, once each, to a run that waits for long and to an exhausted budget.

    Raises:
        InvalidQueues: the queue, or every flavor of the run, was removed from `queues.yml`.
        QuotaExceeded: no option would fit into the quota even if nothing else used it.
    """
    now = datetime.now(UTC)
    cancel = read_cancel_request(clients, run_of_job(request.run))
    if cancel is not None:
        return Admitted(since=now, cancel=cancel)
    queues = deployed_queues(clients, request.queue)
    refused = {(each.cluster, each.nodes): each.message for each in request.refusals}
    known = read_admission(clients.records, queues, now=now)
    answer = _admitted(known, request, refused)
    if answer is not None:
        return answer
    shortages = find_shortages(
        clients, [each for each in request.options if key_of(each) not in refused]
    ) | {key: Shortage(message, is_lasting=True) for key, message in refused.items()}
    run = _waiting_run(request, queues, shortages, now)
    division = change_admission(
        clients, queues, lambda document: ask(document, run), now=now, asking=request.run
    )
    _alert(clients, queues, division, request.run, now)
    answer = _admitted(division.document, request, refused)
    if answer is not None:
        return answer
    waiting = next(each for each in division.document.waiting if each.run == request.run)
    return Admitted(reason=division.reasons[request.run], since=waiting.since)


def deployed_queues(clients: Clients, queue: str) -> Queues:
    """The queues of `queues.yml`.

    Raises:
        InvalidQueues: there is no `queues.yml`, or `queue` is not in it.
    """
    queues = load_queues(clients.settings.pipelines_folder)
    if queues is None or queues.queue(queue) is None:
        raise InvalidQueues(
            f"queue {queue} is not in queues.yml any more, and runs of it were under way: put it "
            "back, redrive, and take it out when no run uses it"
        )
    return queues


def _waiting_run(
    request: RequestNodes, queues: Queues, shortages: Mapping[OptionKey, Shortage], now: datetime
) -> WaitingRun:
    options: list[NodesWanted] = []
    for option in request.options:
        flavor = queues.flavor_of(option.cluster)
        if flavor is not None:
            short = shortages.get(key_of(option))
            options.append(
                NodesWanted(
                    flavor=flavor.name,
                    nodes=option.nodes,
                    shortage=None if short is None else short.message,
                )
            )
    if not options:
        clusters = ", ".join(each.cluster for each in request.options)
        raise InvalidQueues(
            f"queues.yml has no flavor for {clusters} any more: put it back, redrive"
        )
    lasting = {key: short.message for key, short in shortages.items() if short.is_lasting}
    if all(key_of(each) in lasting for each in request.options):
        raise no_option_fits((each, lasting[key_of(each)]) for each in request.options)
    return WaitingRun(
        run=request.run,
        pipeline=request.pipeline,
        queue=request.queue,
        options=tuple(options),
        since=now,
    )


def _admitted(
    document: Admission, request: RequestNodes, refused: Mapping[OptionKey, str]
) -> Admitted | None:
    entry = next((each for each in document.admitted if each.run == request.run), None)
    if entry is None:
        return None
    for option in request.options:
        flavor = document.queues.flavor_of(option.cluster)
        is_held = flavor is not None and (flavor.name, option.nodes) == (entry.flavor, entry.nodes)
        if is_held and key_of(option) not in refused:
            return Admitted(option=option, since=entry.since)
    return None


def _alert(clients: Clients, queues: Queues, division: Division, run: str, now: datetime) -> None:
    """Do step 5. Alerts are sent before they are recorded, so a crash can repeat them (same id)."""
    document = division.document
    late = [
        each
        for each in document.waiting
        if each.run == run
        and not each.alerted
        and now - each.since >= timedelta(seconds=queues.alert_after_seconds)
    ]
    spent = [
        each
        for each in document.spending
        if each.queue in division.over_budget and not each.alerted
    ]
    for waiting in late:
        alert = trouble(
            "waiting-for-nodes",
            alert_id=alert_id("waiting-for-nodes", run),
            severity="warning",
            at=now,
            data={"run": run_of_job(run), "reason": division.reasons[run]},
            pipeline=waiting.pipeline,
            run=run_of_job(run),
        )
        send_in_background(clients, OPS_ALERTS, alert)
    for spending in spent:
        queue = queues.queue(spending.queue)
        assert queue is not None, "spending is of queues that are there"
        assert queue.budget is not None, "and that have a budget"
        begins_at, next_at = accounts.period_of(queue.budget, now)
        alert = trouble(
            "budget-exhausted",
            alert_id=alert_id("budget-exhausted", spending.queue, begins_at.isoformat()),
            severity="warning",
            at=now,
            data={
                "queue": spending.queue,
                "budget": queue.budget.amount,
                "spent": spending.settled,
                "currency": queues.currency,
                "next_period_begins_at": next_at.isoformat(),
                "run": division.over_budget[spending.queue],
                "reason": division.reasons[division.over_budget[spending.queue]],
            },
        )
        send_in_background(clients, OPS_ALERTS, alert)
    if late or spent:
        runs, names = {each.run for each in late}, {each.queue for each in spent}
        change_admission(
            clients, queues, lambda document: mark_alerted(document, runs, names), now=now
        )


@activity
def return_nodes(clients: Clients, request: ReturnNodes) -> NodesReturned:
    """Remove a run from the admission document, if its job has ended or was never submitted.

    Runs that are admitted to its nodes are woken, and those for which Azure's quota was short.

    The cost is written into the run's record first: after a crash in between, the next call finds
    it there.
    """
    queues = load_queues(clients.settings.pipelines_folder)
    if queues is None:
        return NodesReturned(returned=True)
    now = datetime.now(UTC)
    document = read_admission(clients.records, queues, now=now)
    if any(each.run == request.run for each in document.waiting):
        document = change_admission(
            clients,
            queues,
            lambda admission: withdraw(admission, request.run, request.heir),
            now=now,
        ).document
    # The run may have been admitted before it could be withdrawn.
    entry = next((each for each in document.admitted if each.run == request.run), None)
    if entry is None:
        record = read_run_record(clients, request.run)  # the place of a check is no run
        return NodesReturned(returned=True, cost=record and record.cost)
    state = find_job_state(clients, request.run)
    if state is not None and state not in ENDED:
        return NodesReturned(returned=False)
    seconds = 0.0 if state is None else job_seconds(clients, request.run)
    cost = RunCost(
        queue=entry.queue,
        flavor=entry.flavor,
        nodes=entry.nodes,
        node_seconds=entry.nodes * seconds,
        price_per_node_hour=entry.price_per_node_hour,
        currency=queues.currency,
    )
    record = read_run_record(clients, request.run)
    if record is not None:
        add_to_record(clients, record.model_copy(update={"cost": cost}))
    document = change_admission(
        clients,
        queues,
        # Carried forward first: the cost belongs to the period and month in which the job ended.
        lambda admission: accounts.settle(
            accounts.carry_forward(admission, now), request.run, cost, _evictions(record)
        ),
        now=now,
    ).document
    # What Azure ML has left is read by the runs themselves.
    offer_nodes(clients, [each.run for each in document.waiting if each.lacks_quota], now=now)
    return NodesReturned(returned=True, cost=cost)


def _evictions(record: RunRecord | None) -> list[datetime]:
    """The times at which the job was queued again, because Azure had evicted nodes."""
    steps = () if record is None else record.steps
    return [
        later.began_at
        for step, later in pairwise(steps)
        if (step.state, later.state) == ("running", "queued")
    ]

"""Activity `request_nodes`: put a run into its queue for the nodes of one compute option."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from handlers.notify.outbox import trouble
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.message_outbox import send_in_background
from handlers.platform.run_records import read_cancel_request
from handlers.platform.service_bus import OPS_ALERTS
from handlers.training.capacity.admission_record import change_admission, read_admission
from handlers.training.quotas import OptionKey, Shortage, find_shortages, key_of, no_option_fits
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import (
    Admission,
    Admitted,
    NodesWanted,
    RequestNodes,
    WaitingRun,
)
from orchestrations.errors import InvalidQueues
from orchestrations.names import alert_id
from orchestrations.training.capacity import accounts
from orchestrations.training.capacity.admission import Division, ask, mark_alerted


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
    cancel = read_cancel_request(clients, request.run)
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
            data={"run": run, "reason": division.reasons[run]},
            pipeline=waiting.pipeline,
            run=run,
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

"""Activity `return_nodes`: return the nodes of a run, and settle their cost."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml_jobs import find_job_state, job_seconds
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.run_records import add_to_record, read_run_record
from handlers.training.capacity.admission_record import (
    change_admission,
    offer_nodes,
    read_admission,
)
from orchestrations.contracts.capacity import AdmittedRun, NodesReturned, ReturnNodes
from orchestrations.contracts.run_records import RunRecord
from orchestrations.contracts.runs import RunCost
from orchestrations.platform.waiting import ENDED
from orchestrations.training.capacity import accounts
from orchestrations.training.capacity.admission import withdraw


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
            lambda given: withdraw(given, request.run, request.heir),
            now=now,
        ).document
    # The run may have been admitted before it could be withdrawn.
    entry = next((each for each in document.admitted if each.run == request.run), None)
    if entry is None:
        known = read_run_record(clients, request.run)
        return NodesReturned(returned=True, cost=known and known.cost)
    state = find_job_state(clients, request.run)
    if state is not None and state not in ENDED:
        return NodesReturned(returned=False)
    seconds = 0.0 if state is None else job_seconds(clients, request.run)
    cost = _cost(entry, seconds, queues.currency)
    known = read_run_record(clients, request.run)
    if known is not None:
        add_to_record(clients, known.model_copy(update={"cost": cost}))
    document = change_admission(
        clients,
        queues,
        # Carried forward first: the cost belongs to the period and month in which the job ended.
        lambda given: accounts.settle(
            accounts.carry_forward(given, now), request.run, cost, _evictions(known)
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


def _cost(entry: AdmittedRun, seconds: float, currency: str) -> RunCost:
    node_seconds = entry.nodes * seconds
    return RunCost(
        queue=entry.queue,
        flavor=entry.flavor,
        nodes=entry.nodes,
        node_seconds=node_seconds,
        price_per_node_hour=entry.price_per_node_hour,
        amount=accounts.price_of(node_seconds, entry.price_per_node_hour),
        currency=currency,
    )

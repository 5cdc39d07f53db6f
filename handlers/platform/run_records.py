"""The records of a run: `runs/<run>/record.json` (`record_run`), results, a request to cancel it.

Every generation of a run adds its data to the record, and so does reconciliation. Additions are
idempotent, and late ones do not overwrite newer data. A run that misses the event of its
cancellation finds the request before its next effect.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handlers.platform import metrics, record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.instances import run_status
from handlers.platform.run_index import index_run, runs_of_training
from handlers.platform.spans import run_spans
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.base import Done
from orchestrations.contracts.landing import ClaimedRun
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, order_of
from orchestrations.contracts.runs import CancelRequest, RunCost, RunStatus
from orchestrations.contracts.training import RecordRun, RunRecord, RunStep, UsedCompute
from orchestrations.errors import InvalidQueues
from orchestrations.names import results_record

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus


@activity
def record_run(clients: Clients, request: RecordRun) -> Done:
    """Add the data of one generation to the record of its run."""
    add_to_record(clients, request.record)
    return Done()


def add_to_record(clients: Clients, added: RunRecord) -> None:
    """Add to the record of a run, then update the index from the record.

    Spans and metrics are sent if the run has ended.

    If the process dies in between, the caller runs again. If another caller changes the record
    meanwhile, the index is written again: the last caller has read the newest record.
    """
    name = _name(added.status.id)

    def add(document: Any | None) -> Any | None:
        known = None if document is None else RunRecord.from_dict(document)
        merged = add_cost(merge(known, added), clients.settings.pipelines_folder)
        return None if merged == known else merged.to_dict()

    record_store.update(clients.records, name, add)
    indexed: RunRecord | None = None
    while (record := read_run_record(clients, added.status.id)) != indexed:
        assert record is not None, f"{name} was written a moment ago"
        index_run(clients.records, record)
        indexed = record
    if indexed is not None:
        clients.telemetry.send(run_spans(indexed))
        clients.telemetry.record(metrics.run_measurements(indexed))


def read_claim(clients: Clients, name: str) -> ClaimedRun | None:
    """The claim in the record `names.claim_record`, if there is one.

    Raises:
        pydantic.ValidationError: its schema is unknown to this release.
    """
    document = record_store.read(clients.records, name)
    return None if document is None else ClaimedRun.from_dict(document)


def read_run_record(clients: Clients, run: str) -> RunRecord | None:
    """The record of a run, if there is one."""
    document = record_store.read(clients.records, _name(run))
    return None if document is None else RunRecord.from_dict(document)


def read_last_attempt(clients: Clients, pipeline: str, training: str) -> RunRecord | None:
    """The record of the last attempt in a round of training; None if there is none."""
    runs = runs_of_training(clients.records, pipeline, training)
    last = max(runs, key=lambda run: int(run.rpartition("-")[2]), default=None)
    return None if last is None else read_run_record(clients, last)


def record_of(instance: DurableOrchestrationStatus) -> RunRecord:
    """The record of a run as far as its instance's status has it.

    Raises:
        pydantic.ValidationError: this release does not know the schema of the status.
    """
    status = run_status(instance)
    created_at = instance.created_time
    assert created_at is not None, "an existing instance has its times"
    return RunRecord(
        status=status,
        started_at=created_at.replace(tzinfo=created_at.tzinfo or UTC),
        steps=(RunStep(state=status.state, began_at=status.since),),
    )


def merge(existing: RunRecord | None, added: RunRecord) -> RunRecord:
    """Merge two records. Pure and idempotent.

    The later status is kept (`order_of`). Consecutive steps in one state become one,
    because a new generation does not know the step before its own.
    """
    if existing is None:
        return added.model_copy(update={"steps": _ordered(added.steps)})
    is_late = _order(added.status) < _order(existing.status)
    newest = existing.status if is_late else added.status
    facts = {
        name: value
        for name in RunRecord.model_fields
        if (value := getattr(added, name)) is not None and not is_late
    }
    steps = _ordered((*existing.steps, *added.steps))
    return existing.model_copy(
        update={**facts, "status": newest, "started_at": existing.started_at, "steps": steps}
    )


def add_cost(record: RunRecord, pipelines_folder: Path) -> RunRecord:
    """A record with its cost, if the run has ended and `queues.yml` has a price for its nodes.

    The cost of a run in a queue is known before its end.
    """
    compute = record.compute
    if record.known_cost or compute is None or record.status.state not in TERMINAL_RUN_STATES:
        return record
    queues = None
    with contextlib.suppress(InvalidQueues):  # the app's start reports it
        queues = load_queues(pipelines_folder)
    cost = cost_by_size(queues or Queues(), compute, node_hours(record))
    return record.model_copy(update={"cost": cost})


def cost_by_size(queues: Queues, compute: UsedCompute, hours: float) -> RunCost | None:
    """The cost of node-hours in no queue; None if `queues.yml` has no price of the size. Pure."""
    price = queues.price(compute.size, compute.priority)
    return price and RunCost(
        queue=None,
        flavor=price.size,
        nodes=compute.nodes,
        node_seconds=hours * 3600,
        price_per_node_hour=price.price_per_node_hour,
        currency=queues.currency,
    )


def node_hours(record: RunRecord) -> float:
    """The time in which the training's job was running, times its nodes, in hours."""
    nodes = 0 if record.compute is None else record.compute.nodes
    ends = [*(step.began_at for step in record.steps[1:]), record.status.since]
    seconds = sum(
        (end - step.began_at).total_seconds()
        for step, end in zip(record.steps, ends, strict=True)
        if step.state == "running" and step.stage is None
    )
    return nodes * seconds / 3600


def _order(status: RunStatus) -> tuple[bool, datetime, int]:
    return order_of(status.state, status.since)


def _ordered(steps: tuple[RunStep, ...]) -> tuple[RunStep, ...]:
    kept: list[RunStep] = []
    for step in sorted(dict.fromkeys(steps), key=lambda it: order_of(it.state, it.began_at)):
        if not kept or kept[-1].state != step.state:
            kept.append(step)
    return tuple(kept)


def read_metrics(clients: Clients, record: str) -> dict[str, float]:
    """All metrics of a run, from the record that `read_results` wrote."""
    return _read_record(clients, record)["metrics"]


def read_model_hash(clients: Clients, record: str) -> str | None:
    """The hash of the model's files when its metrics were read; None if earlier releases read."""
    return _read_record(clients, record).get("model")


def read_bad_files(clients: Clients, run: str) -> dict[str, str]:
    """The files that a run's trainer refused: path in the manifest → reason.

    From the record that `read_results` wrote.
    """
    error = _read_record(clients, results_record(run))["error"]
    return {} if error is None else {each["path"]: each["reason"] for each in error["files"]}


def _read_record(clients: Clients, record: str) -> dict[str, Any]:
    document = record_store.read(clients.records, record)
    assert document is not None, f"{record} is written before it is read, and never deleted"
    return document


def request_cancel(clients: Clients, run: str, request: CancelRequest) -> None:
    """Record a request to cancel a run. Only the first request counts."""
    record_store.create(clients.records, _cancel_record(run), request.to_dict())


def read_cancel_request(clients: Clients, run: str) -> CancelRequest | None:
    """The request to cancel a run; None if there is none, or if it is too late."""
    document = record_store.read(clients.records, _cancel_record(run))
    if document is None or record_store.read(clients.records, _too_late_record(run)) is not None:
        return None
    return CancelRequest.from_dict(document)


def end_cancellation(clients: Clients, run: str) -> None:
    """Record that a run registers its model or schedules its next attempt: no cancel any more.

    Either can take effect without an answer. A run that then ended as cancelled would leave its
    model as the champion, or be followed by another attempt.
    """
    record_store.create(clients.records, _too_late_record(run), {})


def _name(run: str) -> str:
    return f"runs/{run}/record.json"


def _cancel_record(run: str) -> str:
    return f"runs/{run}/cancel"


def _too_late_record(run: str) -> str:
    return f"runs/{run}/too-late-to-cancel"

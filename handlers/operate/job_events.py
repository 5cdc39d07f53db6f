"""Events of Azure ML: wake runs whose job changed its state, start runs for signals of monitors.

An event is a hint; the state of the job, or of the queue, is read. The samples at
https://learn.microsoft.com/azure/event-grid/event-schema-machine-learning vary the case of keys, so
keys are compared without case; unknown keys are ignored.

A monitor tags its run if a signal breaches a threshold, and Event Grid delivers that run's status
change. The tag's text names the signal; the signal's name begins with the name of its pipeline.
https://learn.microsoft.com/azure/machine-learning/how-to-monitor-model-performance

Events of Key Vault come through the same queue, and are recorded for the alarms.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.rejected_events import RejectedEvent, keep_rejected
from handlers.operate import alarm_rules
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import (
    Delivered,
    EventEnvelope,
    delivery_id,
    lower_keys,
    parse_event,
)
from handlers.platform.instances import is_live, parsed, start_once, wake_up
from handlers.platform.service_bus import NODES_OFFERED
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import BatchTrace, LandingRequest
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS
from orchestrations.errors import InvalidEvent, shorten
from orchestrations.landing.landing import landing
from orchestrations.names import landing_instance, request_instance, run_of_job

logger = logging.getLogger(__name__)
EVENT_TYPES = frozenset(
    {
        "microsoft.machinelearningservices.runcompleted",
        "microsoft.machinelearningservices.runstatuschanged",
        NODES_OFFERED.lower(),
    }
)
_SUBJECT = re.compile(r"^/?experiments/[^/]+/runs/(?P<run>[^/]+)$", re.IGNORECASE)
# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_WORKSPACE = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)/?$",
    re.IGNORECASE,
)
THRESHOLD_TAG = "azureml_modelmonitor_threshold_breached"


@dataclass(frozen=True)
class MonitorSignal:
    """The breached threshold that a monitor's run reports."""

    run: str
    pipeline: str
    reason: str
    """The tag's text, cut if it is too long."""


async def handle_job_events(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    events: Sequence[Delivered],
    *,
    now: datetime,
) -> int:
    """Wake the runs of events, and start runs for signals of monitors. Return how many were woken.

    The events are messages of `job-events`, or delivered by Event Grid directly. Events of Key
    Vault are recorded.

    An event that cannot be parsed is recorded and counted; no error is raised, because a redelivery
    would not help, and the run's next poll reads its job. Operators are alerted to each cause.
    """
    runs: set[str] = set()
    signals: set[MonitorSignal] = set()
    rejected: list[RejectedEvent] = []
    for event in events:
        subject = ""
        try:
            envelope = parse_event(event, now=now)
            subject = envelope.subject
            if envelope.type.lower().startswith(alarm_rules.VAULT_PREFIX):
                found = alarm_rules.parse_vault_event(envelope)
                await BACKGROUND.ask(alarm_rules.keep_vault_object, clients, found)
                continue
            check_workspace(envelope, clients.settings)
            run = parse_job_event(envelope)
            runs.add(run_of_job(run))
            if (signal := parse_signal(run, envelope.data, pipelines)) is not None:
                signals.add(signal)
        except InvalidEvent as error:
            rejected.append(RejectedEvent.of(error, delivery_id(event), subject))
    for signal in sorted(signals, key=lambda each: each.run):
        trace = clients.telemetry.new_trace()
        await start_retraining(starter, pipelines[signal.pipeline], signal, trace)
    woken = sum([await _wake(starter, run) for run in sorted(runs)])
    if rejected:
        await BACKGROUND.ask(keep_rejected, clients.records, rejected, at=now)
    return woken


async def _wake(starter: DurableOrchestrationClient, run: str) -> bool:
    """Wake a run, if it is live. Jobs of other users, and ended runs, have no live instance.

    If an event is lost, the run notices the change at its next poll.
    """
    return is_live(await starter.get_status(run)) and await wake_up(starter, run)


def parse_job_event(event: EventEnvelope) -> str:
    """The run of an event: the name of its job, and also the id of its instance.

    Raises:
        InvalidEvent: the event is of another type, or names no run.
    """
    if event.type.lower() not in EVENT_TYPES:
        raise event.refusal(
            f"type {event.type!r} is neither RunCompleted nor RunStatusChanged "
            "of Microsoft.MachineLearningServices",
            cause="unknown-job-event-type",
        )
    run = lower_keys(event.data).get("runid")
    if run is None:
        match = _SUBJECT.match(event.subject)
        run = None if match is None else match["run"]
    if not isinstance(run, str) or _RUN.fullmatch(run) is None:
        raise event.refusal(
            f"neither data.runId {run!r} nor subject {event.subject!r} names a run",
            cause="no-run-named",
        )
    return run


def check_workspace(event: EventEnvelope, settings: Settings) -> None:
    """Check that the event does not come from another workspace than the one of the settings.

    Raises:
        InvalidEvent: the event names another workspace.
    """
    names = ("AZUREML_SUBSCRIPTION_ID", "AZUREML_RESOURCE_GROUP", "AZUREML_WORKSPACE_NAME")
    expected = [settings.required(name) for name in names]
    match = _WORKSPACE.search(event.source)
    if match is None:
        return
    named = (match["subscription"], match["group"], match["workspace"])
    if [each.lower() for each in named] != [each.lower() for each in expected]:
        raise event.refusal(
            f"topic {event.source!r} is not workspace {expected[2]!r} of resource group "
            f"{expected[1]!r}",
            cause="other-workspace",
        )


def parse_signal(run: str, data: object, pipelines: Iterable[str]) -> MonitorSignal | None:
    """The signal in the data of a run's event; None if it names none of the pipelines. Pure."""
    text = lower_keys(lower_keys(data).get("runtags")).get(THRESHOLD_TAG)
    if not isinstance(text, str) or not text:
        return None
    # Longest name first: `digits-live_drift` belongs to digits-live, not to digits.
    for pipeline in sorted(pipelines, key=len, reverse=True):
        if re.search(rf"(?<![\w-]){re.escape(pipeline)}(?=$|_|[^\w-])", text):
            return MonitorSignal(run, pipeline, shorten(text, START_REASON_LIMIT_CHARACTERS))
    logger.warning("run %s: the signal names no deployed pipeline: %s", run, shorten(text))
    return None


async def start_retraining(
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    signal: MonitorSignal,
    trace: BatchTrace | None = None,
) -> bool:
    """Freeze the zone and train on it, once per monitor run. Return whether this call started it.

    Nothing starts while the zone's landing trains: its model answers the signal. An upload that is
    under way is waited for. Content that was trained on before is trained on again, since the
    reason is a new one (`orchestrations.landing.decisions`).
    """
    zone = await starter.get_status(landing_instance(pipeline.name))
    shown = parsed(zone.custom_status) if is_live(zone) else None
    if shown and shown.get("phase") == "training":
        logger.info("%s: %s is training: %s", signal.run, pipeline.name, signal.reason)
        return False
    request = LandingRequest(
        pipeline=pipeline.name,
        opened_by="request",
        # Where each partition settles by itself, the zone as a whole has nothing to wait for.
        settled=pipeline.source.batch == "partition",
        reason=signal.reason,
        trace=trace,
    )
    instance = request_instance(pipeline.name, f"monitor {signal.run}")
    return await start_once(starter, landing.__name__, instance, request.to_dict())

"""Events of Azure ML: wake runs whose job changed its state, start runs for signals of monitors.

Events of Key Vault come through the same queue, and are recorded for the alarms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.monitor_signals import MonitorSignal, parse_signal, start_retraining
from handlers.landing.rejected_events import RejectedEvent, keep_rejected
from handlers.operate import alarm_rules
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import Delivered, delivery_id, parse_event
from handlers.platform.instances import is_live, wake_up
from handlers.training.job_events import check_workspace, parse_job_event
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.errors import InvalidEvent
from orchestrations.names import run_of_job


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

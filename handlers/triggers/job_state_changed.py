"""Events of Azure ML wake the runs that wait for their jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient
from azure.functions import EventGridEvent, ServiceBusMessage

from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live, wake_up
from handlers.triggers.event_envelope import EventEnvelope, from_message, from_trigger
from handlers.triggers.job_events import check_workspace, parse_job_event
from orchestrations.errors import InvalidEvent

logger = logging.getLogger(__name__)


async def handle_queued_job_events(
    clients: Clients, starter: DurableOrchestrationClient, messages: Sequence[ServiceBusMessage]
) -> int:
    """The door of the queue `job-events`: a message is one event; how many runs were woken."""
    runs: set[str] = set()
    for message in messages:
        try:
            runs.add(parse(clients, from_message(message.get_body())))
        except InvalidEvent as error:
            _log_ignored(error)
    return sum([await _wake(starter, run) for run in sorted(runs)])


async def handle_job_event(
    clients: Clients, starter: DurableOrchestrationClient, event: EventGridEvent, *, now: datetime
) -> bool:
    """The door of the Event Grid trigger; whether there was a run to wake."""
    try:
        run = parse(clients, from_trigger(event, now=now))
    except InvalidEvent as error:
        _log_ignored(error)
        return False
    return await _wake(starter, run)


def parse(clients: Clients, event: EventEnvelope) -> str:
    """The run that an event of our workspace is about.

    Raises:
        InvalidEvent: it is of another workspace, or names no run.
    """
    settings = clients.settings
    check_workspace(
        event.source,
        event_id=event.id,
        subscription_id=settings.required("AZUREML_SUBSCRIPTION_ID"),
        resource_group=settings.required("AZUREML_RESOURCE_GROUP"),
        workspace=settings.required("AZUREML_WORKSPACE_NAME"),
    )
    return parse_job_event(
        event_id=event.id, event_type=event.type, subject=event.subject, data=event.data
    )


async def _wake(starter: DurableOrchestrationClient, run: str) -> bool:
    """Wake a run, if there is one: jobs of others, and runs that have ended, have none.

    An event that is lost costs the time until the run's next poll.
    """
    return is_live(await starter.get_status(run)) and await wake_up(starter, run)


def _log_ignored(error: InvalidEvent) -> None:
    # To deliver it again could not help; the run's next poll finds its job.
    logger.warning("event of Azure ML ignored: %s", error)

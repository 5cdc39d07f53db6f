"""What an event of Azure ML leads to: the run that waits for that job looks at once."""

from __future__ import annotations

import logging

from azure.durable_functions import DurableOrchestrationClient
from azure.functions import EventGridEvent

from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live, wake_up
from handlers.triggers.job_events import check_workspace, parse_job_event
from orchestrations.errors import InvalidEvent

logger = logging.getLogger(__name__)


async def handle_job_event(
    clients: Clients, starter: DurableOrchestrationClient, event: EventGridEvent
) -> bool:
    """Wake the run of the job that the event speaks of; whether there was one to wake.

    An event of a job that is not ours, or of a run that has ended, is none of our business. One
    that gets lost costs the time until the run's next poll.
    """
    try:
        check_workspace(
            event.topic or "",
            event_id=event.id,
            subscription_id=clients.settings.required("AZUREML_SUBSCRIPTION_ID"),
            resource_group=clients.settings.required("AZUREML_RESOURCE_GROUP"),
            workspace=clients.settings.required("AZUREML_WORKSPACE_NAME"),
        )
        run = parse_job_event(
            event_id=event.id,
            event_type=event.event_type,
            subject=event.subject,
            data=event.get_json(),
        )
    except InvalidEvent as error:
        # To deliver it again could not help, and a poll finds out what it wanted to say.
        logger.warning("event of Azure ML ignored: %s", error)
        return False
    if not is_live(await starter.get_status(run)):
        return False
    return await wake_up(starter, run)

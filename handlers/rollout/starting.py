"""Start a rollout: activity `start_rollout` sends a message, and `handle_rollout` receives it.

The message is necessary because an activity has no durable client. The queue keeps the request
until the rollout has begun.
"""

from __future__ import annotations

import logging
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.notify.dead_letter_queue import reject_message
from handlers.platform.activity_adapter import activity
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.instances import start_once, wake_up
from handlers.platform.message_outbox import send_in_background
from handlers.platform.rollout_index import index_rollout
from handlers.platform.service_bus import ROLLOUTS, Message, fit_message_id, parse_body, traced
from handlers.platform.spans import below
from handlers.rollout.endpoint_claims import holder_of, newest_rollout, register
from handlers.rollout.observing import record_decision
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import (
    Decision,
    RolloutInput,
    RolloutRequest,
    RolloutStatus,
    StartRollout,
)
from orchestrations.errors import InvalidRequest
from orchestrations.names import deployment_name, is_rollout_of, rollout_id
from orchestrations.platform.retrying import describe
from orchestrations.rollout.rollout import rollout

logger = logging.getLogger("landfall")


@activity
def start_rollout(clients: Clients, request: StartRollout) -> Done:
    """Send the request to `rollouts`; the queue or `handle_rollout` drops a duplicate."""
    message = Message(
        message_id=fit_message_id(request.rollout),
        subject=request.rollout,
        properties={"run": request.request.run, **traced(request.request.traceparent)},
        body=request.request.model_dump_json(),
    )
    send_in_background(clients, ROLLOUTS, message)
    return Done()


async def handle_rollout(
    clients: Clients, starter: DurableOrchestrationClient, body: bytes | str, *, now: datetime
) -> str | None:
    """Start the rollout of a message, and return its id.

    A rollout that a person started is the newest one of its endpoint from here on. If it belongs to
    the rollback of a model whose rollout holds the endpoint, that rollout is rolled back. The
    rollout that holds the endpoint is woken up to see it. A malformed message is dead-lettered
    (None). If the process dies before the message is completed, it is delivered to this function
    again.
    """
    try:
        request = parse_body(RolloutRequest, body, queue=ROLLOUTS)
    except InvalidRequest as error:
        logger.warning("message rejected: %s", error)
        await SERVICE_BUS.ask(reject_message, clients, body, describe(error))
        return None
    deploy = request.pipeline.deploy
    assert deploy is not None, "a rollout is asked for by pipelines with deploy alone"
    instance = rollout_id(deploy.endpoint, request.model.version, request.attempt)
    asked = RolloutStatus(
        id=instance,
        pipeline=request.pipeline.name,
        run=request.run,
        model=request.model,
        endpoint=deploy.endpoint,
        deployment=deployment_name(request.model.version),
        state="waiting",
        since=now,
        step=0,
        steps=len(deploy.steps),
        at_once=request.at_once,
    )
    await BACKGROUND.ask(index_rollout, clients, asked)
    if request.attempt:
        await BACKGROUND.ask(_register, clients, request, instance)
    given = RolloutInput(request=request).to_dict()
    with below(request.traceparent):
        await start_once(starter, rollout.__name__, instance, given)
    holder = await BACKGROUND.ask(holder_of, clients, deploy.endpoint)
    if holder not in (None, instance):
        await wake_up(starter, holder)
    return instance


def _register(clients: Clients, request: RolloutRequest, rollout: str) -> None:
    """Record, once, what a person's rollout does to the other rollouts of its endpoint.

    The rollback of the holder is recorded first: as the newest one, this rollout would end it
    without a rollback if its model is live already.
    """
    deploy, change = request.pipeline.deploy, request.champion
    assert deploy is not None, "see handle_rollout"
    _, registered = newest_rollout(clients, deploy.endpoint)
    if registered >= request.attempt:
        return  # the holder may be a later rollout by now, which the person did not mean
    holder = holder_of(clients, deploy.endpoint)
    if (
        holder is not None
        and change is not None
        and change.verb == "rollback"
        and is_rollout_of(holder, deploy.endpoint, change.version)
    ):
        decision = Decision(verb="rollback", by=change.by, reason=change.reason, step=0)
        record_decision(clients, holder, decision)
    register(
        clients,
        deploy.endpoint,
        rollout,
        version=int(request.model.version),
        attempt=request.attempt,
    )

"""Reconciliation of rollouts whose instance has ended: their endpoint is free for the next one."""

from __future__ import annotations

from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.notify.outbox import publish_alert, trouble
from handlers.operate.reconciliation.rounds import Round
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, is_broken, is_live, parsed
from handlers.rollout.endpoint_claims import holder_of, holders, release
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.names import alert_id

ROLLOUT_BROKEN = "rollout-broken"


async def check_endpoints(current: Round) -> None:
    """Release every endpoint whose rollout has ended."""
    clients, starter, now = current.clients, current.starter, current.now
    for endpoint, rollout in await BACKGROUND.ask(lambda: list(holders(clients))):
        what = f"rollout {rollout}"
        if await current.attempt(what, close_rollout, clients, starter, endpoint, rollout, now=now):
            current.summary.endpoints_released.append(endpoint)


async def close_rollout(
    clients: Clients,
    starter: DurableOrchestrationClient,
    endpoint: str,
    rollout: str,
    *,
    now: datetime,
) -> bool:
    """Release the endpoint of a rollout that has ended; return whether it was released.

    If its instance failed or was terminated, operators are alerted first: the endpoint's traffic is
    as the rollout left it. If the process dies in between, the same alert is sent again.
    """
    instance = await starter.get_status(rollout)
    if is_live(instance):
        return False
    holds = await BACKGROUND.ask(holder_of, clients, endpoint) == rollout
    if not exists(instance) and not holds:
        return False  # a person's rollout, which is about to begin
    if exists(instance) and is_broken(instance):
        shown = parsed(instance.custom_status)
        status = RolloutStatus.from_dict(shown) if shown else None
        alert = trouble(
            ROLLOUT_BROKEN,
            alert_id=alert_id(ROLLOUT_BROKEN, rollout),
            severity="error",
            at=now,
            data={
                "rollout": rollout,
                "endpoint": endpoint,
                "state": None if status is None else status.state,
                "traffic": None if status is None else status.traffic,
                "message": "its instance failed or was terminated: the endpoint's traffic stays as "
                "it is; roll a version out with landfall deploy",
            },
            pipeline=None if status is None else status.pipeline,
        )
        await SERVICE_BUS.ask(publish_alert, clients, alert)
    await BACKGROUND.ask(release, clients, endpoint, rollout)
    return True

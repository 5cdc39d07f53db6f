"""Reconciliation of promotions whose instance never began, or ended without a word."""

from __future__ import annotations

from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.operate.reconciliation.rounds import Round
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, failure_sentence, is_broken, parsed, start_once
from handlers.training.promotions import (
    alert_operators,
    find_destination,
    keep_promotion,
    open_promotions,
)
from orchestrations.contracts.promotions import PromotionInput, PromotionStatus
from orchestrations.training.promotion import promotion


async def check_promotions(current: Round) -> None:
    """Start every promotion that was only recorded, and close every one that broke."""
    clients, starter, now = current.clients, current.starter, current.now
    for status in await BACKGROUND.ask(lambda: list(open_promotions(clients))):
        what = f"promotion {status.id}"
        if await current.attempt(what, repair_promotion, clients, starter, status, now=now):
            current.summary.promotions_repaired.append(status.id)


async def repair_promotion(
    clients: Clients,
    starter: DurableOrchestrationClient,
    status: PromotionStatus,
    *,
    now: datetime,
) -> bool:
    """Start or close a promotion; return False if its instance is under way.

    A process that died between record and start left an instance that never began. A broken one
    was terminated, or its code failed: it is refused, and people ask again. If the process dies
    after the alert, the same alert is sent again.

    Raises:
        PromotionRefused: its workspace is not declared any more.
    """
    instance = await starter.get_status(status.id)
    if not exists(instance):
        destination = await BACKGROUND.ask(find_destination, clients, status.to)
        given = PromotionInput(status=status, rule=destination.approve).to_dict()
        return await start_once(starter, promotion.__name__, status.id, given)
    if not is_broken(instance):
        return False
    shown = parsed(instance.custom_status)
    last = PromotionStatus.from_dict(shown) if shown else status
    why = f"{failure_sentence(instance)}; promote the version again"
    ended = last.model_copy(update={"state": "refused", "since": now, "why": why})
    await SERVICE_BUS.ask(alert_operators, clients, ended)
    await BACKGROUND.ask(keep_promotion, clients, ended)
    return True

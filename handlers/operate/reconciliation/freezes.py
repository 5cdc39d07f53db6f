"""Discard the parts of freezes that were given up: a part of the timer `reconcile`.

A freeze discards its parts itself. They are left behind if its instance is terminated, if the
process dies before there is one, or if storage is out at its end.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.manifest_parts import discard, list_freezes, parts_folder
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import is_live
from orchestrations.names import freezing_instance

# A new freeze has parts before its instance is started. If it is started later than this, it finds
# no parts and fails; its landing is then opened again.
GRACE = timedelta(days=1)


async def discard_abandoned_parts(
    clients: Clients, starter: DurableOrchestrationClient, *, now: datetime
) -> list[str]:
    """Discard the parts of freezes without a live instance; return the instances' names."""
    discarded: list[str] = []
    freezes = await BACKGROUND.ask(list_freezes, clients.records)
    for (pipeline, freeze), written_at in freezes.items():
        instance = freezing_instance(pipeline, freeze)
        if now - written_at < GRACE or is_live(await starter.get_status(instance)):
            continue
        folder = parts_folder(pipeline, freeze)
        await BACKGROUND.ask(discard, clients.records, folder)
        discarded.append(instance)
    return discarded

"""Find the runs that hold nodes, or wait for them, and that have ended without giving them back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.capacity.admission_record import find_admission
from handlers.capacity.returning_nodes import return_nodes
from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live, wake_up
from handlers.durable.status_documents import last_status
from orchestrations.contracts.capacity import ReturnNodes


def known_runs(clients: Clients, *, now: datetime) -> Mapping[str, bool]:
    """Every run that holds nodes (True) or waits for them; none without `queues.yml`."""
    document = find_admission(clients, now=now)
    if document is None:
        return {}
    waiting = dict.fromkeys((each.run for each in document.waiting), False)
    return waiting | dict.fromkeys((each.run for each in document.admitted), True)


async def reconcile_nodes(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, is_admitted: bool
) -> bool:
    """Give back the nodes of a run that has ended; whether that was done now.

    One that lives, was admitted and does not know it yet is woken up.
    """
    instance = await starter.get_status(run)
    if not is_live(instance):
        request = ReturnNodes(run=run)
        return (await asyncio.to_thread(return_nodes, clients, request)).returned
    if is_admitted and last_status(instance).state == "waiting_for_nodes":
        await wake_up(starter, run)
    return False

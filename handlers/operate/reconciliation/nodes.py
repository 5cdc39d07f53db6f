"""Find ended runs that still hold nodes, or wait for them, and remove them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient

from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import is_live, wake_up
from handlers.platform.durable.status_documents import is_handed_over, last_status
from handlers.training.capacity.admission_record import find_admission
from handlers.training.capacity.returning_nodes import return_nodes
from orchestrations.contracts.capacity import ReturnNodes


def known_runs(clients: Clients, *, now: datetime) -> Mapping[str, bool]:
    """Run → whether it holds nodes (True) or waits for them; empty without a `queues.yml`."""
    document = find_admission(clients, now=now)
    if document is None:
        return {}
    waiting = dict.fromkeys((each.run for each in document.waiting), False)
    return waiting | dict.fromkeys((each.run for each in document.admitted), True)


async def reconcile_nodes(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, is_admitted: bool
) -> bool:
    """Return the nodes of a run that has ended; the result is whether this call returned them.

    A live run that was admitted, but still waits for nodes, is woken up. One that is about to be
    started again keeps its place.
    """
    instance = await starter.get_status(run)
    if is_handed_over(instance):
        return False
    if not is_live(instance):
        request = ReturnNodes(run=run)
        return (await BACKGROUND.ask(return_nodes, clients, request)).returned
    if is_admitted and last_status(instance).state == "waiting_for_nodes":
        await wake_up(starter, run)
    return False

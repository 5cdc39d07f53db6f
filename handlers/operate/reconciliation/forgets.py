"""Reconciliation of requests to forget blobs whose instance never began, or broke."""

from __future__ import annotations

from datetime import timedelta

from azure.durable_functions import OrchestrationRuntimeStatus

from handlers.landing.forgetting import find_unfinished
from handlers.operate.reconciliation.rounds import Round
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.instances import exists, failure_sentence, is_broken, start_once
from orchestrations.contracts.forgetting import ForgetBlobs
from orchestrations.errors import TransientError
from orchestrations.landing.forgetting import forgetting

RECENT = timedelta(days=30)


async def check_forgets(current: Round) -> None:
    """Go on with every unfinished request of the last 30 days that nothing works on."""
    since = current.now - RECENT
    for request in await BACKGROUND.ask(find_unfinished, current.clients, since=since):
        if await current.attempt(f"request {request.id}", go_on, current, request.id):
            current.summary.forgets_continued.append(request.id)


async def go_on(current: Round, request: str) -> bool:
    """Start a request's instance, from its beginning; return False if it is under way.

    A person who terminates it does not withdraw the request.

    Raises:
        TransientError: it had failed. Operators are alerted if it does so again.
    """
    instance = await current.starter.get_status(request)
    if exists(instance) and not is_broken(instance):
        return False
    document = ForgetBlobs(request=request).to_dict()
    await start_once(current.starter, forgetting.__name__, request, document, again=is_broken)
    if instance.runtime_status == OrchestrationRuntimeStatus.Failed:
        raise TransientError(f"it is started again: {failure_sentence(instance)}")
    return True

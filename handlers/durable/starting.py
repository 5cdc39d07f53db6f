"""Start an orchestration that must be started only once, however often that is requested."""

from __future__ import annotations

from typing import Any

from azure.durable_functions import DurableOrchestrationClient

from handlers.durable.instances import exists


async def start_once(
    starter: DurableOrchestrationClient, orchestrator: str, instance: str, document: dict[str, Any]
) -> bool:
    """Start `instance` unless there ever was one of that id; returns whether this call did.

    Args:
        starter: the durable client.
        orchestrator: the orchestrator's name.
        instance: a derived id.
        document: its input.

    The durable extension lets a finished id be used again, so that its status is read first. If
    another caller starts it in between, the extension refuses, with an error that has no type.
    """
    if exists(await starter.get_status(instance)):
        return False
    try:
        await starter.start_new(orchestrator, instance, document)
    except Exception:
        if not exists(await starter.get_status(instance)):
            raise
        return False
    return True

"""Forgetting of blobs, as a person asked for: any number of manifests, piece by piece."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.forgetting import ForgetBlobs
from orchestrations.platform.activities import call

# Three history events a piece.
PIECES_PER_GENERATION = 100


def forgetting(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Forget the blobs of a request.

    1. Find the contents of the blobs: in the zone, and in every manifest that has their names.
    2. Keep the contents: from now on no manifest is committed with one of them. A freeze that began
       before is overtaken, and begins again.
    3. Find the dataset versions, of all pipelines, that have one of the contents, under any name.
       Delete their copies.
    4. Erase the blobs' names from the event log and from the request's record.

    Each step is done in pieces of some seconds, and each piece can be repeated.
    """
    state = ForgetBlobs.from_dict(context.get_input())
    for _ in range(PIECES_PER_GENERATION):
        progress = yield from call(context, state)
        state = state.model_copy(update={"progress": progress})
        context.set_custom_status(progress.to_dict())
        if progress.step == "done":
            return progress.to_dict()
    context.continue_as_new(state.to_dict())
    return None

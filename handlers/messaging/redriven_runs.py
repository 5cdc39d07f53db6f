"""The records of dead-lettered runs that were sent again."""

from __future__ import annotations

from datetime import datetime

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.messaging.redrive_changes import Changes
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunRequest
from orchestrations.names import run_id


class RedrivenRun(Contract):
    """The record of a redrive: it decides, once, what a dead-lettered run is sent again as."""

    changes: Changes
    by: str
    reason: str
    at: datetime
    request: RunRequest

    @property
    def following(self) -> str:
        """The id of the run that it starts."""
        return self.request.run


def redrive_record(run: str) -> str:
    """Path of the record of what a run was sent again as."""
    return f"runs/{run}/redrive.json"


def read_redriven(clients: Clients, run: str) -> RedrivenRun | None:
    """The run that followed from a redrive of this one, if there was one."""
    document = record_store.read(clients.records, redrive_record(run))
    return None if document is None else RedrivenRun.from_dict(document)


def sent_again_as(clients: Clients, request: RunRequest) -> RunRequest:
    """A request with the changes that a person made to it, if it is the next attempt of such a run.

    A run that broke after it had scheduled its next attempt is dead-lettered, too. When it is
    redriven with changes, the attempt without them may still be on the queue.
    """
    if request.attempt == 1:
        return request
    previous = run_id(request.pipeline.name, request.dataset.version, request.attempt - 1)
    redriven = read_redriven(clients, previous)
    return request if redriven is None else redriven.request

"""The records of dead-lettered runs that were sent again."""

from __future__ import annotations

from datetime import datetime

from handlers.operate.dead_letters.redrive_changes import Changes
from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunRequest


class RedrivenRun(Contract):
    """The record of a redrive. The first one fixes the next attempt of a dead-lettered run."""

    changes: Changes
    by: str
    reason: str
    at: datetime
    request: RunRequest

    @property
    def following(self) -> str:
        """The id of the run that the redrive starts."""
        return self.request.run


def redrive_record(run: str) -> str:
    """The path of the record of a run's redrive."""
    return f"runs/{run}/redrive.json"


def read_redriven(clients: Clients, run: str) -> RedrivenRun | None:
    """The redrive of a run, if there is one."""
    document = record_store.read(clients.records, redrive_record(run))
    return None if document is None else RedrivenRun.from_dict(document)


def sent_again_as(clients: Clients, request: RunRequest) -> RunRequest:
    """Apply a redrive's changes to a request, if it is the next attempt of a redriven run.

    A run that failed after it had scheduled its next attempt is dead-lettered, too. When it is
    redriven with changes, the attempt without them may still be on the queue.
    """
    if request.attempt == 1:
        return request
    previous = request.model_copy(update={"attempt": request.attempt - 1})
    redriven = read_redriven(clients, previous.run)
    return request if redriven is None else redriven.request

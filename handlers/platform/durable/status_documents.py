"""Parse the statuses of instances of runs. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import ValidationError

from handlers.platform.durable.instances import is_broken
from orchestrations.contracts.base import Failure
from orchestrations.contracts.runs import TERMINAL_RUN_STATES, RunStatus
from orchestrations.errors import TransientError, shorten
from orchestrations.names import version_of
from orchestrations.platform.activities import parse_fault

# The text that the durable extension puts before an error's own.
_HOST_PREFIX = re.compile(r"^Orchestrator function '[^']*' failed: ")


def failure_sentence(instance: DurableOrchestrationStatus) -> str:
    """What the error of a failed instance says, or how it was terminated."""
    text = instance.output if isinstance(instance.output, str) else json.dumps(instance.output)
    if instance.runtime_status == OrchestrationRuntimeStatus.Terminated:
        return shorten(f"it was terminated: {text}")
    return str(parse_fault(_HOST_PREFIX.sub("", text)))


def broken_failure(instance: DurableOrchestrationStatus) -> Failure:
    """The failure of a run whose instance failed or was terminated."""
    assert instance.runtime_status is not None
    how = f"instance {instance.instance_id} was {instance.runtime_status.name.lower()}"
    why = instance.output if isinstance(instance.output, str) else json.dumps(instance.output)
    return Failure(type=TransientError.__name__, message=shorten(f"{how}: {why}"), permanent=False)


def last_status(instance: DurableOrchestrationStatus) -> RunStatus:
    """The last custom status of an instance of `retraining`.

    Raises:
        pydantic.ValidationError: this release does not know its schema. A broken instance is
            reconciled without it.
    """
    shown = parsed(instance.custom_status)
    if shown:
        try:
            return RunStatus.from_dict(shown)
        except ValidationError:
            if not is_broken(instance):
                raise
    # Without a custom status yet, the fields follow from the id and the creation time.
    pipeline, training, attempt = str(instance.instance_id).rsplit("-", 2)
    return RunStatus(
        id=str(instance.instance_id),
        pipeline=pipeline,
        attempt=int(attempt),
        dataset_version=version_of(training),
        state="registering",
        since=utc(instance.created_time),
    )


def run_status(instance: DurableOrchestrationStatus) -> RunStatus:
    """The status of an instance of `retraining`; failed if it is broken and had no final state."""
    last = last_status(instance)
    if not is_broken(instance) or last.state in TERMINAL_RUN_STATES:
        return last
    return last.model_copy(
        update={
            "state": "failed",
            # The task hub's times have whole seconds.
            "since": max(last.since, utc(instance.last_updated_time)),
            "error": broken_failure(instance),
        }
    )


def is_handed_over(instance: DurableOrchestrationStatus | None) -> bool:
    """Whether a run's instance has ended before the run, which is to be started again.

    See `orchestrations.training.finding_capacity`.
    """
    return (
        instance is not None
        and instance.runtime_status == OrchestrationRuntimeStatus.Completed
        and last_status(instance).state == "waiting_for_nodes"
    )


def parsed(value: Any) -> Any:
    """Parse a JSON value of the durable protocol, which some hosts encode twice."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def utc(moment: datetime | None) -> datetime:
    """A time of an instance in UTC; some hosts omit the timezone."""
    assert moment is not None, "every instance that is there has its times"
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)

"""Remedies for the errors of a run. docs/operations.md has this table; tests/contract compares."""

from __future__ import annotations

from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    "DataRejected": (
        "The trainer refused files; they are quarantined, and the rest of the zone is trained on "
        "by itself. Write a mended file again, and it is taken again: a new dataset version, no "
        "redrive."
    ),
    "InitialModelMismatch": (
        "The champion does not fit the new data or the job's network. Set `model.warm_start: "
        "false`; the next batch starts from random weights."
    ),
    "InvalidResults": (
        "The trainer left a `metrics.json` that the gate cannot read. Mend the trainer, redrive."
    ),
    "QuotaExceeded": "Ask for quota, or add a compute option; redrive.",
    "JobRejected": (
        "The message says what Azure ML or its SDK refuses. Mend `job.yml` or what stands in the "
        "way; redrive."
    ),
    "JobFailed": "See the log and the job in the studio. Mend the cause, redrive.",
    "DeadlineExceeded": "See why the job queued or ran so long; raise `limits`, redrive.",
    "TransientError": (
        "A service was out of reach for longer than the retries (Azure ML, while a job runs: for "
        "20 minutes to an hour; the job is ended then), or the instance broke; redrive."
    ),
    "InvalidQueues": (
        "Put the queue or flavor back that the message names, redrive, and take it out when no run "
        "uses it."
    ),
    "InvalidSetting": "Set the app setting that the message names; redrive.",
}


def remedy(error_type: str | None) -> str | None:
    """The remedy for an error of that type; None where none is known, or nothing failed."""
    return None if error_type is None else REMEDIES.get(error_type)

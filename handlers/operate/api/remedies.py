"""Remedies for the errors of a run; tests/contract compares them with docs/operations.md."""

from __future__ import annotations

from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    "DataRejected": (
        "The trainer refused files. They are quarantined, and a run on the rest of the zone "
        "starts automatically. Do not redrive: upload a fixed file again, and the next dataset "
        "version includes it."
    ),
    "InitialModelMismatch": (
        "The champion does not fit the new data or the job's network. Set `model.warm_start: "
        "false`; the next batch starts from random weights."
    ),
    "InvalidResults": (
        "The trainer left a `metrics.json` or `comparison.json` that the gate cannot read, or that "
        "contradicts itself. Fix the trainer, redrive."
    ),
    "QuotaExceeded": "Ask for quota, or add a compute option; redrive.",
    "JobRejected": (
        "The message says what Azure ML or its SDK refuses. Fix `job.yml` or the cause that the"
        " message names; redrive."
    ),
    "NotReproducible": (
        "The model cannot be trained again as it was: restore what the message names and ask for "
        "another reproduction, or discard the dead letter."
    ),
    "JobFailed": "Read the log and the job in the studio. Fix the cause, redrive.",
    "DeadlineExceeded": "Find out why the job queued or ran so long; raise `limits`, redrive.",
    "TransientError": (
        "A service was unreachable for longer than the retries (20 minutes to an hour; the job of a"
        " run is then ended), or the instance broke; redrive."
    ),
    "OfAnotherRelease": (
        "A newer release wrote what this release cannot read, and its workers did not take it"
        " within the retries. Deploy the newer release again, redrive."
    ),
    "InvalidQueues": (
        "Restore the queue or flavor that the message names and redrive. Remove it when no run "
        "uses it."
    ),
    "InvalidSetting": "Set the app setting that the message names; redrive.",
}


def remedy(error_type: str | None) -> str | None:
    """The remedy for a type of error; None if none is known, or `error_type` is None."""
    return None if error_type is None else REMEDIES.get(error_type)

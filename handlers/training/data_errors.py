"""Recognises that a job failed because of its data before its program could write `error.json`.

Azure ML's data runtime downloads inputs before the program starts. The texts are those of its
library, azureml-dataprep-rslex 2.26; they have no published list.
"""

from __future__ import annotations

import re

from handlers.landing.changed_data import find_change
from handlers.platform.clients import Clients
from handlers.platform.records.run_records import read_run_record
from handlers.training.job_failures import failure_message
from orchestrations.errors import DataChanged, JobRejected, PermanentError

_CHANGED = re.compile(
    r"source was modified|file was modified during read|size changed during download"
    r"|ConditionNotMet|StreamAccess\.NotFound",
    re.IGNORECASE,
)
# In Rust's words: a program in Python says "[Errno 36]".
_NAME_TOO_LONG = re.compile(r"file ?name too long \(os error 36\)", re.IGNORECASE)


def find_data_error(clients: Clients, pipeline: str, run: str) -> PermanentError | None:
    """The error of a failed job without `error.json`, if its data is at fault.

    - `DataChanged`: a file was overwritten or deleted while the job downloaded it. Only if the zone
      holds other content now: where the same content was written again, another attempt succeeds,
      and no later batch would train on it.
    - `JobRejected`: a blob's name cannot be the name of a file.
    """
    message = failure_message(clients, run)
    if message is None:
        return None
    if _NAME_TOO_LONG.search(message):
        return JobRejected(
            f"{message}; rename that blob (its name does not fit into the file system of a node), "
            "or mount the input instead of downloading it"
        )
    if not _CHANGED.search(message):
        return None
    record = read_run_record(clients, run)
    change = record and find_change(clients, pipeline, record.status.dataset_version)
    return DataChanged(f"{change} while the job read it: {message}") if change else None

"""The index of runs: two empty blobs for each run, with the run's summary in their metadata.

In addition, `run-changes/<pipeline>` is written whenever an entry of the pipeline was.

The names are `run-index/<group>/<pipeline>/<time>_<run>`. The groups of a run are `all`, and
`unfinished` or its final state. The time counts down, so that listings are newest first. A page
takes one listing per group and pipeline, which begins at the end of the page before: its cost does
not depend on the number of runs.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from azure.core.exceptions import ResourceNotFoundError

from handlers.platform.record_store import countdown, first_page, list_entries
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, RunState, UnfinishedRunState
from orchestrations.contracts.training import RunRecord
from orchestrations.errors import shorten
from orchestrations.names import reproductions_of, training_of, version_of

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

UNFINISHED_STATES: tuple[RunState, ...] = get_args(UnfinishedRunState)
_FOLDER = "run-index"
_CHANGES = "run-changes"
_ALL = "all"
_UNFINISHED = "unfinished"
_SUMMARY = "summary"
# A blob has at most 8 KB of metadata.
TEXT_LIMIT_CHARACTERS = 300
LISTINGS_AT_ONCE = 8
# The maximum page size of List Blobs.
LISTED_AT_ONCE = 5_000


@dataclass(frozen=True)
class RunPage:
    """A page of runs, newest first."""

    runs: Sequence[dict[str, Any]]
    """Summaries of the runs (`summary`)."""
    following: str | None
    """The `after` of the next page; None on the last page."""


def index_run(records: ContainerClient, record: RunRecord) -> None:
    """Write a run's two entries; if the run has ended, delete its entry in `unfinished`.

    If the process dies in between, the caller runs again.
    """
    status, key = record.status, run_key(record)
    shown = {_SUMMARY: json.dumps(summary(record))}
    group = _group(status.state)
    for each in (_ALL, group):
        name = _folder(each, status.pipeline) + key
        records.upload_blob(name, b"", overwrite=True, metadata=shown)
    if group != _UNFINISHED:
        with contextlib.suppress(ResourceNotFoundError):
            records.delete_blob(_folder(_UNFINISHED, status.pipeline) + key)
    records.upload_blob(f"{_CHANGES}/{status.pipeline}", b"", overwrite=True)


def summary(record: RunRecord) -> dict[str, Any]:
    """A run's entry in lists: its `RunStatus` with cut texts, and some fields of its record."""
    status = record.status
    error = status.error and status.error.model_copy(
        update={"message": shorten(status.error.message, TEXT_LIMIT_CHARACTERS)}
    )
    reason = status.reason and shorten(status.reason, TEXT_LIMIT_CHARACTERS)
    shown = status.model_copy(update={"error": error, "reason": reason}).to_dict()
    compute, cost = record.compute, record.known_cost
    return shown | {
        "created_at": _iso(record.started_at),
        "ended_at": _iso(status.since) if status.state in TERMINAL_RUN_STATES else None,
        "compute": None if compute is None else compute.to_dict(),
        "cost": None if cost is None else cost.to_dict(),
        "superseded_by": record.superseded_by,
        "next_attempt_at": None if record.next_attempt_at is None else _iso(record.next_attempt_at),
    }


def run_key(record: RunRecord) -> str:
    """The unique sort key of a run's entries; newer runs come first."""
    return f"{countdown(record.started_at)}_{record.status.id}"


def list_runs(
    records: ContainerClient,
    *,
    pipeline: str | None = None,
    states: Sequence[RunState] = (),
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    after: str | None = None,
    limit: int,
) -> RunPage:
    """Read a page of the runs that were created in an interval, both ends included.

    Without `states`, runs in all states count; `after` is `following` of the page before.
    """
    pipelines = [pipeline] if pipeline is not None else _pipelines(records)
    first = max(after or "", "" if created_to is None else countdown(created_to))
    last = None if created_from is None else countdown(created_from) + "~"
    groups = dict.fromkeys(map(_group, states)) or (_ALL,)
    folders = [_folder(group, each) for group in groups for each in pipelines]

    # The first page usually has a few entries from each of many folders, so each folder is read in
    # small pieces, and further only if the page needs it.
    few = limit + 1 if first else min(limit, -(-2 * limit // max(len(folders), 1))) + 1

    def read(folder: str, after: str | None, count: int) -> list[tuple[str, dict[str, Any]]]:
        entries = _entries(records, folder, max(first, after or ""), after, last, count)
        return list(itertools.islice(entries, count))

    def read_on(
        folder: str, entries: list[tuple[str, dict[str, Any]]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        count = few
        while entries:
            # Only the group `unfinished` has several states, and it has few runs.
            yield from (each for each in entries if not states or each[1]["state"] in states)
            if len(entries) < count:
                return
            count = limit + 1
            entries = read(folder, entries[-1][0], count)

    with ThreadPoolExecutor(LISTINGS_AT_ONCE) as pool:
        begun = pool.map(read, folders, itertools.repeat(after), itertools.repeat(few))
        streams = [read_on(*each) for each in zip(folders, begun, strict=True)]
    merged = heapq.merge(*streams, key=lambda entry: entry[0])
    # A run that changes its state during the listings may be found in two groups.
    once = (next(same) for _, same in itertools.groupby(merged, key=lambda entry: entry[0]))
    return RunPage(*first_page(once, limit))


def list_unfinished_runs(records: ContainerClient) -> Mapping[str, Sequence[dict[str, Any]]]:
    """Pipeline → its unfinished runs, newest first; one listing for all pipelines."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    folder = f"{_FOLDER}/{_UNFINISHED}/"
    for key, run in _entries(records, folder, "", None, None, LISTED_AT_ONCE):
        runs[key.partition("/")[0]].append(run)
    return runs


def runs_of_dataset(records: ContainerClient, version: str) -> list[str]:
    """The ids of all runs on a dataset version, for all pipelines, rounds and attempts."""
    return [
        run
        for pipeline in _pipelines(records)
        for run in _recorded(records, f"{pipeline}-{version}")
        if version_of(training_of(run)) == version
    ]


def runs_of_training(records: ContainerClient, pipeline: str, training: str) -> list[str]:
    """The ids of the recorded attempts in one round of training on a dataset version."""
    return list(_recorded(records, f"{pipeline}-{training}-"))


def last_reproduction(records: ContainerClient, pipeline: str, training: str) -> int:
    """The number of the last recorded reproduction of a round of training; 0 if there is none."""
    stem = f"{pipeline}-{reproductions_of(training)}"
    found = (run.removeprefix(stem).partition("-")[0] for run in _recorded(records, stem))
    return max((int(each) for each in found), default=0)


def _recorded(records: ContainerClient, prefix: str) -> Iterator[str]:
    for name in records.list_blob_names(name_starts_with=f"runs/{prefix}"):
        if name.endswith("/record.json"):
            yield name.split("/")[1]


def runs_since(records: ContainerClient, pipeline: str, created_from: datetime) -> Iterator[str]:
    """The ids of a pipeline's runs that were created since a time, newest first."""
    last = countdown(created_from) + "~"
    folder = _folder(_ALL, pipeline)
    return (run["id"] for _, run in _entries(records, folder, "", None, last, LISTED_AT_ONCE))


def _entries(
    records: ContainerClient,
    folder: str,
    first: str,
    after: str | None,
    last: str | None,
    page_size: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    entries = list_entries(
        records, folder, metadata=_SUMMARY, first=first, after=after, page_size=page_size
    )
    return itertools.takewhile(lambda entry: last is None or entry[0] <= last, entries)


def _pipelines(records: ContainerClient) -> list[str]:
    """The pipelines that ever had a run; one request."""
    folder = f"{_FOLDER}/{_ALL}/"
    found = records.walk_blobs(name_starts_with=folder, delimiter="/")
    return sorted(each.name.removeprefix(folder).rstrip("/") for each in found)


def _group(state: RunState) -> str:
    return state if state in TERMINAL_RUN_STATES else _UNFINISHED


def _folder(group: str, pipeline: str) -> str:
    return f"{_FOLDER}/{group}/{pipeline}/"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()

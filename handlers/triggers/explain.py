"""Why did this blob start a run, or why not? The answer to `GET /api/explain?blob=…`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from handlers.configuration.clients import Clients
from handlers.landing_zone import event_log
from handlers.landing_zone.batch_records import frozen_at, list_windows, read_window
from handlers.landing_zone.manifests import read_manifest, read_quarantine
from handlers.triggers.blob_events import parse_blob_address, watching
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import RecordWindow
from orchestrations.errors import InvalidEvent
from orchestrations.manifest import ManifestLine
from orchestrations.pipeline import Pipeline


def explain_blob(clients: Clients, pipelines: Mapping[str, Pipeline], address: str) -> Answer:
    """Answer the request: 200 with what `explain` tells, 400 for an address that is none."""
    try:
        return Answer(200, explain(clients, pipelines, address))
    except InvalidEvent as error:
        return Problem(400, "invalid-request", str(error), where="blob").to_answer()


def explain(clients: Clients, pipelines: Mapping[str, Pipeline], address: str) -> dict[str, Any]:
    """Every event of a blob, what was decided on it, and what came of it.

    Returns:
        `{"blob", "pipeline", "events": [{… of event_log.Entry, "outcome"}]}`; `outcome` is
        `{"state": pending | run | duplicate | superseded | left-out, "reason", "run"?,
        "dataset_version"?}`, or null where the decision itself was the end of it.

    Raises:
        InvalidEvent: the address names no blob.
    """
    container, blob = parse_blob_address(address, clients.blobs.url)
    pipeline = watching(pipelines.values(), container, blob)
    if pipeline is None:
        places = ", ".join(f"{p.source.container}/{p.source.prefix}" for p in pipelines.values())
        return {
            "blob": f"{container}/{blob}",
            "pipeline": None,
            "events": [],
            "reason": f"no pipeline watches this place; watched are: {places}",
        }
    page = event_log.read_page(clients.records, event_log.page_name(pipeline.name, container, blob))
    history = _History(clients, pipeline)
    path = blob.removeprefix(pipeline.source.prefix)
    return {
        "blob": f"{container}/{blob}",
        "pipeline": pipeline.name,
        "events": [
            {
                "event_id": entry.event_id,
                "etag": entry.etag,
                "event_time": entry.event_time,
                "decided_at": entry.decided_at,
                "decision": entry.decision,
                "reason": entry.reason,
                "outcome": history.outcome(path, entry),
            }
            for entry in page.entries
        ],
    }


class _History:
    """What became of a pipeline's windows, read as far as one answer needs it, and once."""

    def __init__(self, clients: Clients, pipeline: Pipeline) -> None:
        self._clients = clients
        self._pipeline = pipeline
        self._windows: dict[str, RecordWindow] = {}
        self._manifests: dict[str, Mapping[str, ManifestLine]] = {}

    def outcome(self, path: str, entry: event_log.Entry) -> dict[str, Any] | None:
        """What came of an event's decision; None where the decision itself was the end of it."""
        if entry.decision not in event_log.COUNTING:
            return None
        window = self._window_of(path, entry)
        if window is None:
            return {
                "state": "pending",
                "reason": "no listing of the zone was frozen since: it has not settled yet, or the "
                "blob was gone before it did",
            }
        version, run = window.result.dataset_version, window.result.run
        known = {"dataset_version": version, "run": run}
        refused = self._quarantine.get((path, entry.etag))
        line = self._manifest(window.dataset).get(path)
        is_marker = path == self._pipeline.source.marker
        if window.result.outcome == "empty" or (line is None and not is_marker):
            why = f"quarantined: {refused}" if refused else "gone when the zone was listed"
            return {"state": "left-out", "reason": "no data was there" if is_marker else why}
        if window.result.outcome == "duplicate":
            why = (
                f"the zone's content is dataset version {version}, which run {run} was started for"
            )
            return {"state": "duplicate", "reason": why, **known}
        if line is not None and line.etag != entry.etag:
            return {"state": "superseded", "reason": "a later write of it was frozen", **known}
        part = "the marker" if is_marker else "part"
        why = f"{part} of dataset version {version}, which started run {run}"
        if refused:
            why += f"; then left out: {refused}"
        return {"state": "run", "reason": why, **known}

    def _window_of(self, path: str, entry: event_log.Entry) -> RecordWindow | None:
        """The first window that listed the zone after the write, whenever its event came.

        The listing comes a moment after `frozen_at`, and by another clock than the write's time: a
        window that seems to be too early is the one if it has this very content.
        """
        after = bisect_left(self._names, datetime.fromisoformat(entry.event_time), key=frozen_at)
        if after > 0:
            before = self._window(self._names[after - 1])
            line = self._manifest(before.dataset).get(path)
            if line is not None and line.etag == entry.etag:
                return before
        return self._window(self._names[after]) if after < len(self._names) else None

    @cached_property
    def _names(self) -> Sequence[str]:
        return list_windows(self._clients, self._pipeline.name)

    @cached_property
    def _quarantine(self) -> Mapping[tuple[str, str], str]:
        return read_quarantine(self._clients, self._pipeline.name)

    def _window(self, name: str) -> RecordWindow:
        if name not in self._windows:
            self._windows[name] = read_window(self._clients, name)
        return self._windows[name]

    def _manifest(self, dataset: Dataset) -> Mapping[str, ManifestLine]:
        if dataset.version not in self._manifests:
            lines = read_manifest(self._clients, dataset)
            self._manifests[dataset.version] = {line.path: line for line in lines}
        return self._manifests[dataset.version]

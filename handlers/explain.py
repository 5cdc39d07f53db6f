"""Why did this blob start a run, or why not? The answer to `GET /api/explain?blob=…`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from handlers import ledger
from handlers.blob_events import parse_blob_address, watching
from handlers.clients import Clients
from handlers.landing_zone import read_manifest, read_quarantine
from handlers.problems import Answer, Problem
from handlers.windows import list_windows
from orchestrations.contracts import RecordWindow
from orchestrations.errors import InvalidEvent
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
        `{"blob", "pipeline", "events": [{… of ledger.Entry, "outcome"}]}`; `outcome` is
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
    page = ledger.read_page(clients.records, ledger.page_name(pipeline.name, container, blob))
    windows = list(list_windows(clients, pipeline.name))
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
                "outcome": _outcome(clients, pipeline, path, entry, windows),
            }
            for entry in page.entries
        ],
    }


def _outcome(
    clients: Clients,
    pipeline: Pipeline,
    path: str,
    entry: ledger.Entry,
    windows: Sequence[RecordWindow],
) -> dict[str, Any] | None:
    if entry.decision not in ("started", "merged"):
        return None
    told = datetime.fromisoformat(entry.event_time)
    # The first listing after the write is the one that took the blob, whenever the event came.
    window = next((each for each in windows if each.dataset.frozen_at >= told), None)
    if window is None:
        return {"state": "pending", "reason": "the landing has not settled yet"}
    version, run = window.result.dataset_version, window.result.run
    refused = read_quarantine(clients, pipeline.name).get((path, entry.etag))
    line = next(
        (each for each in read_manifest(clients, window.dataset) if each.path == path), None
    )
    if line is None:
        reason = f"quarantined: {refused}" if refused else "gone when the zone was listed"
        return {"state": "left-out", "reason": reason}
    outcome = {"dataset_version": version, "run": run}
    if window.result.outcome == "duplicate":
        reason = f"the zone's content is dataset version {version}, which run {run} was started for"
        return {"state": "duplicate", "reason": reason, **outcome}
    if line.etag != entry.etag:
        return {"state": "superseded", "reason": "a later write of it was frozen", **outcome}
    reason = f"part of dataset version {version}, which started run {run}"
    if refused:
        reason += f"; then left out: {refused}"
    return {"state": "run", "reason": reason, **outcome}

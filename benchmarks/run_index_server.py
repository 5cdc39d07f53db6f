"""A List Blobs server that has the index of many runs; see `list_blobs_server`."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate

from benchmarks.list_blobs_server import ListedZone, serve
from handlers.platform.record_store import countdown
from handlers.platform.run_index import summary
from orchestrations.contracts.base import Failure
from orchestrations.contracts.runs import Model, RunState
from orchestrations.contracts.training import RunRecord, UsedCompute
from tests.unit.orchestrations.examples import run_status

PIPELINES = 10
NEWEST = datetime(2026, 11, 22, tzinfo=UTC)
PAUSE = timedelta(minutes=5)
"""From one run of a pipeline to the next."""
# The number of runs in each state, of a hundred runs of a pipeline.
ENDS: Mapping[RunState, int] = {"failed": 5, "not_promoted": 35, "succeeded": 60}


def index_zone(runs: int) -> ListedZone:
    """All entries of so many runs, in order: group, pipeline, and time counted down."""
    each = runs // PIPELINES
    folders = [
        (group, f"pipeline-{number}", each * share // 100)
        for group, share in sorted({"all": 100, **ENDS}.items())
        for number in range(PIPELINES)
    ]
    ends = list(accumulate(count for _, _, count in folders))

    def name(number: int) -> str:
        folder = bisect_right(ends, number)
        group, pipeline, count = folders[folder]
        return f"run-index/{group}/{pipeline}/{run_key(pipeline, number - ends[folder] + count)}"

    return ListedZone(ends[-1], name, metadata=metadata)


def run_key(pipeline: str, number: int) -> str:
    """The sort key of a pipeline's run of that number, counted from the newest."""
    return f"{countdown(NEWEST - number * PAUSE)}_{pipeline}-{number:016x}-1"


def metadata(name: str) -> dict[str, str]:
    """The summary in a run's entry."""
    _, group, _, key = name.split("/")
    run = key.partition("_")[2]
    state = next((end for end in ENDS if end == group), "succeeded")
    shown = _summary(state) | {"id": run, "pipeline": run.rsplit("-", 2)[0]}
    return {"summary": json.dumps(shown)}


@cache
def _summary(state: RunState) -> dict[str, object]:
    failure = Failure(type="JobFailed", message="rank 3: CUDA out of memory", permanent=False)
    status = run_status(
        "pipeline-93a43eed5c156d42-1",
        state,
        NEWEST,
        metrics={"accuracy": 0.98},
        error=failure if state == "failed" else None,
        model=Model(name="digits", version="7", path="p") if state == "succeeded" else None,
    )
    compute = UsedCompute(cluster="gpu", size="Standard_NC24ads_A100_v4", priority="spot", nodes=4)
    return summary(RunRecord(status=status, started_at=NEWEST, compute=compute))


if __name__ == "__main__":
    serve(index_zone(int(sys.argv[1])))

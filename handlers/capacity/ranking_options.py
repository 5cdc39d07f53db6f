"""Activity `rank_options`: sort a pipeline's compute options by their measured efficiency."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.runs.run_index import list_runs
from orchestrations.capacity.ranking import Measurement, rank
from orchestrations.contracts.capacity import RankedOptions, RankOptions
from orchestrations.contracts.jobs import TrainingSpeed
from orchestrations.contracts.run_records import UsedCompute

# Networks and data change: older measurements, or those of many runs ago, do not apply any longer.
MEASURED_FOR = timedelta(days=30)
RUNS_READ = 50


@activity
def rank_options(clients: Clients, request: RankOptions) -> RankedOptions:
    """Rank the options by the speeds of the pipeline's last runs; see `ranking.rank`.

    The speeds are in the index of runs: two listings suffice for any number of runs.
    """
    page = list_runs(
        clients.records,
        pipeline=request.pipeline,
        states=("succeeded", "not_promoted"),
        created_from=datetime.now(UTC) - MEASURED_FOR,
        limit=RUNS_READ,
    )
    found = [each for run in page.runs if (each := _measurement(run)) is not None]
    return rank(request.options, found, minimum_efficiency=request.minimum_efficiency)


def _measurement(run: Mapping[str, Any]) -> Measurement | None:
    compute, speed = run["compute"], run["speed"]
    if compute is None or speed is None:
        return None
    return Measurement(UsedCompute.from_dict(compute), TrainingSpeed.from_dict(speed))

"""A pipeline's compute options are ranked by the recorded speeds of its last runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handlers.capacity.ranking_options import MEASURED_FOR, rank_options
from handlers.runs.run_records import add_to_record
from orchestrations.contracts.capacity import RankedOptions, RankOptions
from orchestrations.contracts.jobs import TrainingSpeed
from orchestrations.contracts.run_records import RunRecord, UsedCompute
from orchestrations.contracts.runs import RunState, RunStatus
from orchestrations.pipeline import ComputeOption
from tests.unit.handlers.azure_ml_fake import World

WIDE = ComputeOption(cluster="wide", size="Standard_NC24ads_A100_v4", nodes=4)
TALL = ComputeOption(cluster="tall", size="Standard_NC96ads_A100_v4", nodes=1)
TODAY = datetime.now(UTC)


def ended(
    world: World,
    option: ComputeOption,
    images_per_second: float,
    *,
    state: RunState = "succeeded",
    pipeline: str = "digits",
    age: timedelta = timedelta(hours=1),
) -> None:
    """Record an ended run that trained on four devices of an option."""
    at = TODAY - age
    run = f"{pipeline}-{option.cluster}-{at:%f}-{images_per_second:.0f}"
    status = RunStatus(
        id=run, pipeline=pipeline, attempt=1, dataset_version="0" * 16, state=state, since=at
    )
    record = RunRecord(
        status=status,
        started_at=at,
        compute=UsedCompute(
            cluster=option.cluster, size=option.size, priority=option.priority, nodes=option.nodes
        ),
        speed=TrainingSpeed(images_per_second=images_per_second, devices=4),
    )
    add_to_record(world.clients, record)


def ranked(world: World) -> RankedOptions:
    request = RankOptions(pipeline="digits", options=[WIDE, TALL], minimum_efficiency=0.8)
    return rank_options(world.clients, request)


def test_the_last_runs_rank_the_options(world: World) -> None:
    assert ranked(world) == RankedOptions(options=(WIDE, TALL))
    ended(world, WIDE, 2000)
    ended(world, TALL, 4000, state="not_promoted")
    assert ranked(world).options == (TALL, WIDE)
    assert "50%" in (ranked(world).reason or "")


def test_runs_of_another_pipeline_old_runs_and_failures_are_ignored(world: World) -> None:
    ended(world, WIDE, 2000)
    ended(world, TALL, 4000, pipeline="other")
    ended(world, TALL, 5000, age=MEASURED_FOR + timedelta(hours=1))
    ended(world, TALL, 6000, state="failed")
    assert ranked(world) == RankedOptions(options=(WIDE, TALL))

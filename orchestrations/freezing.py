"""From a zone that is whole to a frozen manifest, however many blobs it has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import call, parse_outcome, retries
from orchestrations.contracts.base import ActivityRequest
from orchestrations.contracts.datasets import (
    CommitManifest,
    CopyBlobs,
    Dataset,
    DiscardParts,
    FreezeManifest,
    Freezing,
    Frozen,
    Lanes,
    ListRange,
    Piece,
)
from orchestrations.errors import DataChanged, InvalidManifest, PermanentError, from_name
from orchestrations.names import freeze_id, freezing_instance
from orchestrations.pipeline import Pipeline
from orchestrations.retrying import describe

AnyPiece = TypeVar("AnyPiece", bound=Piece)

# Each holds a part of the listing in memory.
LANES_AT_ONCE = 4
# Eight history events a round: a generation stays under 500.
ROUNDS_PER_GENERATION = 50


def freeze(
    context: DurableOrchestrationContext, pipeline: Pipeline, partition: str | None = None
) -> Generator[Any, Any, Dataset | None]:
    """Freeze a zone: what a landing does to list it.

    A small zone takes one activity; a large one, and one whose blobs are copied, a
    sub-orchestration, `freezing`, so that the landing's history does not grow with the zone.

    Args:
        context: the landing's.
        pipeline: whose zone.
        partition: key of the partition that is the batch, where each is one.

    Returns:
        What was frozen; None when the zone was written to while it was being frozen.

    Raises:
        InvalidManifest: the uploader's manifest breaks its rules.
    """
    frozen_at = context.current_utc_datetime
    name = freeze_id(context.instance_id, frozen_at)
    start = yield from call(
        context,
        FreezeManifest(pipeline=pipeline, partition=partition, freeze=name, frozen_at=frozen_at),
    )
    if start.dataset is not None:
        return start.dataset
    listed = CommitManifest(
        pipeline=pipeline,
        partition=partition,
        freeze=name,
        frozen_at=frozen_at,
        parts=[] if start.part is None else [start.part],
        quarantined=start.quarantined,
    )
    outcome = yield context.call_sub_orchestrator(
        freezing.__name__,
        Freezing(commit=listed, ranges=Lanes(count=start.ranges)).to_dict(),
        freezing_instance(pipeline.name, name),
    )
    frozen = Frozen.from_dict(outcome)
    if frozen.failure is not None:
        raise from_name(frozen.failure.type, frozen.failure.message, otherwise=PermanentError)
    return frozen.dataset


def freezing(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """List a large zone range by range, copy its blobs, and put its manifest together.

    1. List the next piece of up to `LANES_AT_ONCE` ranges, side by side. Each piece becomes a part
       of the manifest. Again, until all ranges have ended; after `ROUNDS_PER_GENERATION` rounds in
       a new generation (`continue_as_new`).
       Where the uploader supplies a manifest, it is the one range.
    2. Where `dataset.freeze` is `copy`: copy the blobs of the parts in the same way, piece by
       piece. A blob that was written since it was listed ends the freeze without a manifest.
    3. Commit: the parts, in order of path, are the manifest; its hash is the dataset version. It is
       hashed, then written, piece by piece; up to a million blobs are one piece.
    4. Discard the parts, also where there is no manifest.
    """
    state = Freezing.from_dict(context.get_input())
    commit = state.commit
    try:
        outcome = yield from _freeze(context, state)
    except DataChanged:
        outcome = Frozen()
    except InvalidManifest as error:
        outcome = Frozen(failure=describe(error))
    if isinstance(outcome, Freezing):
        context.continue_as_new(outcome.to_dict())
        return None
    yield from call(context, DiscardParts(pipeline=commit.pipeline.name, freeze=commit.freeze))
    return outcome.to_dict()


def _freeze(
    context: DurableOrchestrationContext, state: Freezing
) -> Generator[Any, Any, Frozen | Freezing]:
    """Steps 1 to 3; where a generation is full, what there is left to do.

    Raises:
        DataChanged: the zone was written to meanwhile.
        InvalidManifest: the uploader's manifest breaks its rules.
    """
    is_copied = state.commit.pipeline.dataset.freeze == "copy"
    for _ in range(ROUNDS_PER_GENERATION):
        if not state.ranges.is_over:
            state = yield from _list_pieces(context, state)
            continue
        copying = state.copying or Lanes(count=len(state.commit.parts) if is_copied else 0)
        if copying.is_over:
            step = yield from call(context, state.commit)
            if step.dataset is not None:
                return Frozen(dataset=step.dataset)
            commit = state.commit.model_copy(update={"progress": step.progress})
            state = state.model_copy(update={"commit": commit})
            continue
        copying = yield from _copy_pieces(context, state.commit, copying)
        state = state.model_copy(update={"copying": copying})
    return state


def _list_pieces(
    context: DurableOrchestrationContext, state: Freezing
) -> Generator[Any, Any, Freezing]:
    commit = state.commit

    def request_of(number: int, marker: str | None) -> ListRange:
        return ListRange(
            pipeline=commit.pipeline, freeze=commit.freeze, range=number, marker=marker
        )

    ranges, listed = yield from _advance(context, state.ranges, request_of)
    parts = [each.part for each in listed if each.part is not None]
    return Freezing(
        commit=commit.model_copy(
            update={
                "parts": commit.parts + parts,
                "quarantined": commit.quarantined + sum(each.quarantined for each in listed),
            }
        ),
        ranges=ranges,
    )


def _copy_pieces(
    context: DurableOrchestrationContext, commit: CommitManifest, copying: Lanes
) -> Generator[Any, Any, Lanes]:
    def request_of(number: int, marker: str | None) -> CopyBlobs:
        return CopyBlobs(
            pipeline=commit.pipeline,
            partition=commit.partition,
            freeze=commit.freeze,
            part=commit.parts[number],
            marker=marker,
        )

    copying, _ = yield from _advance(context, copying, request_of)
    return copying


def _advance(
    context: DurableOrchestrationContext,
    lanes: Lanes,
    request_of: Callable[[int, str | None], ActivityRequest[AnyPiece]],
) -> Generator[Any, Any, tuple[Lanes, Sequence[AnyPiece]]]:
    """Do the next piece of each lane that is under way, and of as many new ones as there is room.

    Args:
        context: the orchestrator's.
        lanes: how far they are.
        request_of: the request for a lane's next piece, by the lane's number and its marker.

    Raises:
        PermanentError: of one of the pieces.
    """
    fresh = min(LANES_AT_ONCE - len(lanes.markers), lanes.count - lanes.begun)
    begun = lanes.begun + fresh
    numbers = [*lanes.markers, *range(lanes.begun, begun)]
    requests = [request_of(number, lanes.markers.get(number)) for number in numbers]
    outcomes = yield context.task_all(
        [
            context.call_activity_with_retry(
                request.activity_name(), retries(type(request)), request.to_dict()
            )
            for request in requests
        ]
    )
    done = [
        parse_outcome(type(request), outcome)
        for request, outcome in zip(requests, outcomes, strict=True)
    ]
    markers = {
        number: each.marker
        for number, each in zip(numbers, done, strict=True)
        if each.marker is not None
    }
    return Lanes(count=lanes.count, begun=begun, markers=markers), done

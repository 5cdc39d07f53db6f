"""Freezing of a complete zone into a manifest, with any number of blobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import ActivityRequest
from orchestrations.contracts.datasets import (
    CommitManifest,
    Configuration,
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
from orchestrations.errors import (
    DataChanged,
    LandfallError,
    PermanentError,
    TransientError,
    from_name,
)
from orchestrations.names import freeze_id, freezing_instance
from orchestrations.platform.activities import Pending, call, describe, parse_fault, wait_for_all

AnyPiece = TypeVar("AnyPiece", bound=Piece)

# Each lane holds a part of the listing in memory.
LANES_AT_ONCE = 4
# Eight history events a round: a generation stays under 500.
ROUNDS_PER_GENERATION = 50


def freeze(
    context: DurableOrchestrationContext, pipeline: str, partition: str | None = None
) -> Generator[Any, Any, tuple[Dataset | None, Configuration]]:
    """List and freeze a zone, for its landing.

    A small zone takes one activity. A large zone, or one whose blobs are copied, takes the
    sub-orchestration `freezing`, so that the landing's history does not grow with the zone.

    Args:
        context: of the landing.
        pipeline: name of the owner of the zone.
        partition: key of the partition that is the batch, where each is one.

    Returns:
        The dataset (None if the zone was written to while it was being frozen), and the
        configuration that was in force when the freeze began.

    Raises:
        InvalidManifest: the uploader's manifest breaks its rules.
        InvalidPipeline: the pipeline is not deployed.
        LandfallError: the zone could not be frozen. What was given up is no part of a later
            freeze: `freezing` or reconciliation discards it.
    """
    frozen_at = context.current_utc_datetime
    name = freeze_id(context.instance_id, frozen_at)
    start = yield from call(
        context,
        FreezeManifest(pipeline=pipeline, partition=partition, freeze=name, frozen_at=frozen_at),
    )
    configuration = start.configuration
    if start.dataset is not None or start.is_overtaken:
        return start.dataset, configuration
    listed = CommitManifest(
        pipeline=pipeline,
        configuration=configuration.hash,
        partition=partition,
        freeze=name,
        frozen_at=frozen_at,
        parts=[] if start.part is None else [start.part],
        quarantined=start.quarantined,
    )
    child_input = Freezing(
        commit=listed,
        is_copied=configuration.pipeline.dataset.freeze == "copy",
        ranges=Lanes(count=start.ranges),
    )
    try:
        outcome = yield context.call_sub_orchestrator(
            freezing.__name__, child_input.to_dict(), freezing_instance(pipeline, name)
        )
    except Exception as error:  # the SDK raises plain Exception: it was terminated, for example
        raise parse_fault(str(error)) from error
    frozen = Frozen.from_dict(outcome)
    failure = frozen.failure
    if failure is not None:
        kind = PermanentError if failure.permanent else TransientError
        raise from_name(failure.type, failure.message, otherwise=kind)
    return frozen.dataset, configuration


def freezing(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """List a large zone range by range, copy its blobs, and put its manifest together.

    1. List the next piece of up to `LANES_AT_ONCE` ranges in parallel. Each piece becomes a part of
       the manifest. Repeat until all ranges have ended; continue as new after
       `ROUNDS_PER_GENERATION` rounds.
       If the uploader supplies a manifest, it is the only range.
    2. If `dataset.freeze` is `copy`: copy the blobs of the parts in the same way, piece by piece.
       A blob that was written after it was listed ends the freeze without a manifest.
    3. Commit: the parts, ordered by path, are the manifest; its hash is the dataset version. It is
       hashed, then written, piece by piece; up to a million blobs are one piece.
    4. Discard the parts, also if there is no manifest. If that fails, or if this instance is
       terminated, reconciliation discards them.

    A step that fails for good ends the freeze; the output has the failure.
    """
    state = Freezing.from_dict(context.get_input())
    commit = state.commit
    try:
        outcome = yield from _freeze(context, state)
    except DataChanged:
        outcome = Frozen()
    except LandfallError as error:
        outcome = Frozen(failure=describe(error))
    if isinstance(outcome, Freezing):
        context.continue_as_new(outcome.to_dict())
        return None
    with contextlib.suppress(LandfallError):
        yield from call(context, DiscardParts(pipeline=commit.pipeline, freeze=commit.freeze))
    return outcome.to_dict()


def _freeze(
    context: DurableOrchestrationContext, state: Freezing
) -> Generator[Any, Any, Frozen | Freezing]:
    """Steps 1 to 3; if the generation is full, the input of the next one.

    Raises:
        DataChanged: the zone was written to during the freeze.
        InvalidManifest: the uploader's manifest breaks its rules.
        LandfallError: a step failed for another reason.
    """
    for _ in range(ROUNDS_PER_GENERATION):
        if not state.ranges.is_over:
            state = yield from _list_pieces(context, state)
            continue
        copying = state.copying or Lanes(count=len(state.commit.parts) if state.is_copied else 0)
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
            pipeline=commit.pipeline,
            configuration=commit.configuration,
            freeze=commit.freeze,
            range=number,
            marker=marker,
        )

    ranges, listed = yield from _advance(context, state.ranges, request_of)
    parts = [each.part for each in listed if each.part is not None]
    commit = commit.model_copy(
        update={
            "parts": commit.parts + parts,
            "quarantined": commit.quarantined + sum(each.quarantined for each in listed),
        }
    )
    return state.model_copy(update={"commit": commit, "ranges": ranges})


def _copy_pieces(
    context: DurableOrchestrationContext, commit: CommitManifest, copying: Lanes
) -> Generator[Any, Any, Lanes]:
    def request_of(number: int, marker: str | None) -> CopyBlobs:
        return CopyBlobs(
            pipeline=commit.pipeline,
            configuration=commit.configuration,
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
    """Do the next piece of each open lane, and begin new lanes up to the limit.

    Args:
        context: of the orchestrator.
        lanes: their progress.
        request_of: makes the request for a lane's next piece from its number and its marker.

    Raises:
        LandfallError: a piece failed. All have ended by then, so that none of them still writes.
    """
    fresh = min(LANES_AT_ONCE - len(lanes.markers), lanes.count - lanes.begun)
    begun = lanes.begun + fresh
    numbers = [*lanes.markers, *range(lanes.begun, begun)]
    pieces = [Pending(context, request_of(number, lanes.markers.get(number))) for number in numbers]
    yield from wait_for_all(context, *pieces)
    markers: dict[int, str] = {}
    done: list[AnyPiece] = []
    for number, piece in zip(numbers, pieces, strict=True):
        each = yield from piece.result()
        done.append(each)
        if each.marker is not None:
            markers[number] = each.marker
    return Lanes(count=lanes.count, begun=begun, markers=markers), done

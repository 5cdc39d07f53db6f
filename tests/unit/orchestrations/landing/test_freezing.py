from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.datasets import (
    CommitManifest,
    CommitProgress,
    CommitStep,
    Configuration,
    CopyBlobs,
    DiscardParts,
    FreezeStart,
    ListedRange,
    ListRange,
    Piece,
)
from orchestrations.errors import DataChanged, InvalidManifest, LandfallError
from orchestrations.landing.freezing import LANES_AT_ONCE, ROUNDS_PER_GENERATION, freeze, freezing
from tests.unit.orchestrations.driver import Driver, answered_by
from tests.unit.orchestrations.examples import DATASET, PIPELINE, with_rules


@dataclass
class LargeZone:
    """A zone of several ranges: `pieces` gives the number of listing activities of each range."""

    pieces: list[int]
    seed: int = 0
    pipeline: Pipeline = PIPELINE
    copies_of_a_part: int = 1
    links: int = 0
    """Number of commits that leave blocks for another commit."""
    overtaken: tuple[str, int] | None = None
    invalid_from: int | None = None
    copied: list[tuple[str, int]] = field(default_factory=list)
    listed: list[tuple[int, int]] = field(default_factory=list)
    longest_payload: int = 0
    committed: list[CommitManifest] = field(default_factory=list)
    discarded: list[DiscardParts] = field(default_factory=list)

    def __post_init__(self) -> None:
        latency = random.Random(self.seed)
        self.driver = Driver(
            activities=answered_by(self._answer),
            latency=lambda: latency.uniform(0.01, 0.5),
            orchestrators={"landing": self.landing, "freezing": freezing},
        )

    def landing(self, context: Any) -> Any:
        try:
            dataset, _ = yield from freeze(context, self.pipeline.name)
        except LandfallError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        return None if dataset is None else dataset.to_dict()

    def _answer(self, name: str, request: Any) -> Contract:
        match name:
            case "freeze_manifest":
                configuration = Configuration(hash="c" * 16, pipeline=self.pipeline)
                is_small = not self.pieces and self.pipeline.dataset.freeze == "reference"
                if is_small:
                    return FreezeStart(configuration=configuration, dataset=DATASET)
                return FreezeStart(
                    configuration=configuration, ranges=len(self.pieces), part="first"
                )
            case "list_range":
                return self._list_range(request)
            case "copy_blobs":
                return self._copy(request)
            case "commit_manifest":
                return self._commit(request)
            case _:
                assert isinstance(request, DiscardParts)
                self.discarded.append(request)
                return Done()

    def _list_range(self, piece: ListRange) -> ListedRange:
        self._measure(piece)
        number = int(piece.marker or 0)
        if number == self.invalid_from:
            raise InvalidManifest("line 7 is not a JSON object")
        self.listed.append((piece.range, number))
        is_last = number + 1 == self.pieces[piece.range]
        return ListedRange(
            part=f"{piece.range:012}{number:012}", marker=None if is_last else str(number + 1)
        )

    def _copy(self, piece: CopyBlobs) -> Piece:
        number = int(piece.marker or 0)
        self.copied.append((piece.part, number))
        if self.overtaken == (piece.part, number):
            raise DataChanged("3 of 9 blobs were written")
        is_last = number + 1 == self.copies_of_a_part
        return Piece(marker=None if is_last else str(number + 1))

    def _commit(self, request: CommitManifest) -> CommitStep:
        self._measure(request)
        self.committed.append(request)
        done = request.progress.blocks if request.progress else 0
        if done == self.links:
            return CommitStep(dataset=DATASET)
        return CommitStep(
            progress=CommitProgress(
                blobs=done, bytes=0, link="f" * 64, is_hashed=False, after="7", blocks=done + 1
            )
        )

    def _measure(self, request: Contract) -> None:
        self.longest_payload = max(self.longest_payload, len(json.dumps(request.to_dict())))

    def freeze(self) -> Any:
        instance = self.driver.start("landing", "landing-digits", None)
        self.driver.run()
        if instance.error is not None:
            raise RuntimeError(instance.error)
        return instance.output


def test_a_small_zone_takes_one_activity() -> None:
    zone = LargeZone([])
    assert zone.freeze() == DATASET.to_dict()
    assert list(zone.driver.instances) == ["landing-digits"]


def test_what_is_wrong_with_an_uploaders_manifest_reaches_the_landing() -> None:
    zone = LargeZone([3], invalid_from=2)
    with pytest.raises(RuntimeError, match="line 7 is not a JSON object"):
        zone.freeze()
    assert zone.committed == []
    assert len(zone.discarded) == 1


class OutOfReach(LargeZone):
    """Storage does not answer where the second range is listed, or where parts are discarded."""

    out: str = "list_range"

    def _answer(self, name: str, request: Any) -> Contract:
        is_late = name == "list_range" and request.range == 0
        self.driver.latency = lambda: 40.0 if is_late else 0.1
        if name == self.out and not is_late:
            raise ConnectionError("storage does not answer")
        return super()._answer(name, request)


def test_a_freeze_that_fails_says_why_and_leaves_nothing_behind() -> None:
    zone = OutOfReach([1, 1])
    with pytest.raises(RuntimeError, match=r"TransientError: .*storage does not answer"):
        zone.freeze()
    (child,) = (
        each for name, each in zone.driver.instances.items() if name.startswith("freezing-")
    )
    assert child.error is None
    assert child.output["failure"]["permanent"] is False
    assert len(zone.discarded) == 1
    assert zone.listed == [(0, 0)], "the other range has ended before its part is discarded"


def test_parts_that_cannot_be_discarded_do_not_cost_the_dataset() -> None:
    zone = OutOfReach([1])
    zone.out = "discard_parts"
    assert zone.freeze() == DATASET.to_dict()


def test_a_freeze_that_is_terminated_is_a_typed_failure_of_its_landing() -> None:
    zone = LargeZone([200])
    zone.driver.after(3.0, lambda: zone.driver.terminate("freezing-"))
    with pytest.raises(RuntimeError, match="TransientError"):
        zone.freeze()


COPIED = with_rules(PIPELINE, dataset={"freeze": "copy"})


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 9), max_size=20),
    st.sampled_from([PIPELINE, COPIED]),
    st.integers(1, 4),
    st.integers(),
)
def test_every_piece_is_listed_and_where_it_is_asked_for_copied_once_before_the_commit(
    pieces: list[int], pipeline: Pipeline, copies: int, seed: int
) -> None:
    assume(pieces or pipeline is COPIED)  # a small zone takes one activity
    zone = LargeZone(pieces, seed, pipeline=pipeline, copies_of_a_part=copies)
    assert zone.freeze() == DATASET.to_dict()
    every = [(number, piece) for number, count in enumerate(pieces) for piece in range(count)]
    assert sorted(zone.listed) == every
    (commit,) = zone.committed
    assert sorted(commit.parts) == sorted(["first", *(f"{a:012}{b:012}" for a, b in every)])
    copied = commit.parts if pipeline is COPIED else []
    assert sorted(zone.copied) == sorted(
        (part, piece) for part in copied for piece in range(copies)
    )
    (discarded,) = zone.discarded
    assert discarded.freeze == commit.freeze


def test_a_zone_that_is_overtaken_while_it_is_copied_gives_no_manifest() -> None:
    zone = LargeZone([2, 2], pipeline=COPIED, copies_of_a_part=2, overtaken=("first", 1))
    assert zone.freeze() is None
    assert zone.committed == []
    assert len(zone.discarded) == 1


@pytest.mark.parametrize("links", [1, 7, ROUNDS_PER_GENERATION + 3])
def test_a_long_manifest_is_committed_link_by_link(links: int) -> None:
    zone = LargeZone([2], links=links)
    assert zone.freeze() == DATASET.to_dict()
    assert [each.progress.blocks for each in zone.committed if each.progress] == [
        *range(1, links + 1)
    ]
    assert len({json.dumps(each.parts) for each in zone.committed}) == 1
    assert len(zone.discarded) == 1


def test_a_hundred_million_blobs_fit_into_payloads_and_histories() -> None:
    zone = LargeZone([63] * 32)  # 2,000 parts of 50,000 blobs
    zone.freeze()
    assert zone.longest_payload < 64 * 1024
    (child,) = (
        each for name, each in zone.driver.instances.items() if name.startswith("freezing-")
    )
    # An activity has two events; a generation has fewer than 500 of them.
    assert child.generations >= len(zone.listed) * 2 / 500
    rounds = -(-len(zone.listed) // LANES_AT_ONCE)
    assert child.generations > rounds * LANES_AT_ONCE * 2 / 500

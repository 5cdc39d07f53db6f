from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.landing_zone.held_batches import compare_batch, is_subset
from handlers.triggers import release as api_release
from handlers.triggers.problem_details import Answer
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import BatchComparison, CompareBatch
from orchestrations.names import landing_instance
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.asking import ask
from tests.unit.handlers.durable_fake import TaskHub


def compare(zone: Zone) -> BatchComparison:
    request = CompareBatch(pipeline=zone.pipeline.name, dataset=zone.freeze(later()))
    return compare_batch(zone.clients, request)


def later() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def test_the_first_batch_is_compared_with_nothing(zone: Zone) -> None:
    zone.land("1.png")
    assert compare(zone) == BatchComparison(
        last_trained_blobs=None, only_deletions=False, data_changed_in_a_row=0, released=False
    )


def test_a_batch_that_only_lost_blobs_is_told_from_one_that_changed(zone: Zone) -> None:
    for number in range(5):
        zone.land(f"{number}.png", b"%d" % number)
    zone.close_batch()
    assert not compare(zone).only_deletions  # the very same content
    zone.delete("1.png")
    zone.land("2.png", b"2")  # written again, with the same content
    assert compare(zone).only_deletions
    assert compare(zone).last_trained_blobs == 5
    zone.land("3.png", b"other")
    assert not compare(zone).only_deletions
    zone.land("3.png", b"3")
    zone.delete("4.png")
    zone.land("5.png")
    assert not compare(zone).only_deletions


def test_what_a_trainer_refused_is_no_deletion(zone: Zone) -> None:
    for name in ("bad.png", "good.png"):
        zone.land(name)
    zone.refuse(zone.close_batch(), **{"bad.png": "no image"})
    comparison = compare(zone)
    assert not comparison.only_deletions
    assert comparison.last_trained_blobs == 2
    assert zone.freeze().quarantined == 1


texts = st.lists(st.text(max_size=3), unique=True).map(sorted)


@given(large=texts, keep=st.data())
def test_a_part_of_a_sequence_is_a_subset_of_it(large: list[str], keep: st.DataObject) -> None:
    small = sorted(keep.draw(st.sets(st.sampled_from(large)))) if large else []
    assert is_subset(small, large)
    assert is_subset([*small, "zzzz"], large) is False


def hold(zone: Zone) -> Dataset:
    zone.land("1.png")
    return zone.hold(zone.close_batch(outcome="held"), "shrunk")


async def release(zone: Zone, hub: TaskHub, version: str) -> Answer:
    name, body = zone.pipeline.name, json.dumps({"dataset_version": version}).encode()
    return await ask(api_release.release, zone.clients, hub, zone.pipeline, name=name, body=body)


async def test_a_released_batch_gets_a_landing_that_may_train_on_it(zone: Zone) -> None:
    dataset, hub = hold(zone), TaskHub()
    assert not compare(zone).released
    for _ in range(2):
        assert (await release(zone, hub, dataset.version)).status == 202
    landing = landing_instance(zone.pipeline.name)
    assert hub.started == [landing]
    assert hub.documents[landing]["input"]["opened_by"] == "release"
    assert compare(zone).released
    zone.land("2.png")
    assert not compare(zone).released  # the content differs


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [("../x", 400, "dataset_version"), ("abc", 404, "holds no batch of dataset version abc")],
)
async def test_what_cannot_be_released_is_refused(
    zone: Zone, version: str, status: int, words: str
) -> None:
    hub = TaskHub()
    answer = await release(zone, hub, version)
    assert (answer.status, hub.started) == (status, [])
    assert words in answer.document["detail"]

"""Each feature's checks can fail: a planted mistake is found, by a story of a few items."""

from __future__ import annotations

import functools
import json

import pytest

from orchestrations.contracts.holds import HoldReason
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.features import FEATURES, INVARIANTS, MISTAKES
from tests.simulation.story import Story
from tests.simulation.trial import check_well, try_story

# Several mistakes are found by one story.
try_unchanged = functools.cache(try_story)
HOLDS = {reason: story for each in FEATURES for reason, story in each.holds.items()}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    mistake = MISTAKES[name]
    sound = try_unchanged(mistake.story)
    assert not sound.problems, str(sound)
    with mistake.plant():
        mutant = try_story(mistake.story)
    assert mistake.found_by in INVARIANTS
    assert mistake.found_by.__name__ in mutant.invariants, str(mutant)


def reasons(story: Story) -> set[str]:
    """Why batches are held in a story, also for a while."""
    container = check_well(story).world.account.container(RECORDS_CONTAINER)
    blobs = container.blobs | container.deleted
    held = [json.loads(blob.content) for name, blob in blobs.items() if name.startswith("held/")]
    return {each["reason"] for each in held}


@pytest.mark.parametrize("reason", HOLDS)
def test_the_story_of_a_reason_to_hold_batches_holds_one(reason: HoldReason) -> None:
    assert reason in reasons(HOLDS[reason])

"""The checker can fail: some seed finds each mistake that is planted."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.trial import try_seed

# The first seed that finds it, by `python -m tests.simulation.mutations`, and how.
FOUND_BY = {
    "a claim is everybody's": (1, "no_effect_happens_twice"),
}


def test_every_mutation_is_found() -> None:
    assert FOUND_BY.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_seed_finds_it(name: str) -> None:
    seed, invariant = FOUND_BY[name]
    with MUTATIONS[name]():
        trial = try_seed(seed)
    assert invariant in trial.invariants, str(trial)

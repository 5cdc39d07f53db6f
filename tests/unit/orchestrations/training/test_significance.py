from __future__ import annotations

from fractions import Fraction
from math import comb, fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.training.significance import mcnemar, paired_t, standard_error

reference = pytest.importorskip("scipy.stats", reason="scikit-learn brings it")


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_exact_test_counts_every_outcome(better: int, worse: int) -> None:
    trials = better + worse
    ways = sum(comb(trials, each) for each in range(better, trials + 1))
    assert mcnemar(better, worse) == pytest.approx(float(Fraction(ways, 2**trials)), rel=1e-9)


@given(st.integers(0, 2_000_000), st.floats(-6, 6))
def test_many_samples_are_counted_as_well(trials: int, sigmas: float) -> None:
    better = min(max(round((trials + sigmas * trials**0.5) / 2), 0), trials)
    expected = float(reference.binom.sf(better - 1, trials, 0.5))
    assert mcnemar(better, trials - better) == pytest.approx(expected, rel=1e-6, abs=1e-14)


def test_a_tail_that_no_number_can_hold_is_nothing() -> None:
    assert mcnemar(100_000_000, 0) == 0
    assert mcnemar(0, 100_000_000) == 1


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=300))
def test_the_t_test_is_that_of_the_books(differences: list[int]) -> None:
    total, squares = fsum(differences), fsum(each * each for each in differences)
    p = paired_t(len(differences), total, squares)
    if len(set(differences)) == 1:
        value = differences[0]
        assert p == (0.5 if value == 0 else 0.5 ** len(differences) if value > 0 else 1)
        return
    expected = reference.ttest_1samp(differences, 0, alternative="greater").pvalue
    assert p == pytest.approx(float(expected), rel=1e-6, abs=1e-12)
    deviation = reference.sem(differences)
    assert standard_error(len(differences), total, squares) == pytest.approx(float(deviation))


@given(st.integers(10_002, 10**8), st.floats(0, 8))
def test_with_many_samples_the_t_test_is_nearly_exact(samples: int, t: float) -> None:
    """Differences with a variance of 1, whose mean is t standard errors."""
    mean = t / samples**0.5
    p = paired_t(samples, mean * samples, samples - 1 + mean * mean * samples)
    assert p == pytest.approx(float(reference.t.sf(t, samples - 1)), abs=1e-8)


def test_one_sample_says_nothing() -> None:
    assert paired_t(0, 0, 0) == paired_t(1, 5, 25) == 1
    assert standard_error(1, 5, 25) == 0

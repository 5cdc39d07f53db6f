"""The gate with a comparison: numbers in its sentence, slices, and files that contradict."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import comb, fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.pipeline import Gate, Significance, SliceRule
from orchestrations.contracts.comparison import SHOWN_SLICES, Comparison
from orchestrations.errors import InvalidResults
from orchestrations.training.comparing import mcnemar, paired_t, standard_error
from orchestrations.training.judging import Verdict, judge

GATE = Gate(metric="accuracy", floor=0.5)
STRICT = GATE.model_copy(
    update={
        "significance": Significance(alpha=0.05),
        "slices": [SliceRule(match="label:*", fall_at_most=0.02, samples_at_least=50)],
    }
)
Part = tuple[int, int, int, int]
"""Both right, only the champion, only the challenger, both wrong."""
KINDS = ("both_right", "only_champion", "only_challenger", "both_wrong")


def counted(part: Part) -> dict[str, int]:
    return dict(zip(KINDS, part, strict=True))


def compared(metric: str = "accuracy", /, **slices: Part) -> dict[str, Any]:
    """A comparison of which the slices are the labels."""
    whole = [sum(each) for each in zip(*slices.values(), strict=True)]
    return {
        "metric": metric,
        "whole": counted((whole[0], whole[1], whole[2], whole[3])),
        "slices": {f"label:{name}": counted(part) for name, part in slices.items()},
    }


def judged(gate: Gate, document: Mapping[str, Any], **changes: float) -> Verdict:
    """The verdict on counts, with the metrics that belong to them."""
    whole = document["whole"]
    samples = sum(whole.values())
    metrics = {
        "accuracy": (whole["both_right"] + whole["only_challenger"]) / samples,
        "champion_accuracy": (whole["both_right"] + whole["only_champion"]) / samples,
    }
    comparison = Comparison.model_validate(document)
    return judge(gate, metrics | changes, champion="7", comparison=comparison)


SMALL = compared(**{"7": (30, 2, 1, 8), "8": (8900, 100, 181, 778)})
BROKEN = compared(**{"7": (100, 50, 0, 50), "8": (700, 0, 90, 10)})
BY_LUCK = compared(**{"7": (400, 10, 13, 77)})
WORSE = compared(**{"7": (400, 20, 10, 70)})
# The rule of one slice goes before that of all; a fall of exactly the limit is allowed.
AT_THE_LIMIT = [SliceRule(match="label:7", fall_at_most=0.25), *STRICT.slices]
LENIENT = STRICT.model_copy(update={"slices": AT_THE_LIMIT})


@pytest.mark.parametrize(
    ("gate", "document", "verdict", "end"),
    [
        (STRICT, SMALL, "better", " by 2.44 points, not significant (p = 0.5, n = 41, small)"),
        (STRICT, BROKEN, "slice-fell", " (p < 0.0001, n = 200, gate.slices allows 2 points)"),
        (GATE, BROKEN, "better", "; label:7 fell by 25 points (p < 0.0001, n = 200)"),
        (LENIENT, BROKEN, "better", "champion 7 by 4 points, p = 0.00046, 1,000 samples"),
        (STRICT, BY_LUCK, "may-be-luck", "; it may be luck (gate.significance.alpha is 0.05)"),
        (GATE, BY_LUCK, "better", "by 0.6 points, p = 0.34, 500 samples"),
        (STRICT, WORSE, "not-better", "(0.84 on the same held-out data) by more than 0"),
    ],
)  # fmt: skip
def test_a_verdict_names_its_numbers(gate: Gate, document: Any, verdict: str, end: str) -> None:
    found = judged(gate, document)
    assert found.verdict == verdict
    assert found.reason.endswith(end)
    assert (found.promoted, found.is_above_floor) == (verdict == "better", True)


def test_scores_are_tested_in_the_direction_of_the_goal() -> None:
    gate = Gate(metric="loss", goal="minimize", floor=2.0, significance=Significance())
    part = {"samples": 100, "difference": -10.0, "squares": 5.0}
    comparison = Comparison.model_validate({"metric": "loss", "whole": part})
    metrics = {"loss": 0.4, "champion_loss": 0.5}
    verdict = judge(gate, metrics, champion="7", comparison=comparison)
    assert verdict.reason == ("loss 0.4: better than champion 7 by 0.1, p < 0.0001, 100 samples")
    worse = comparison.model_copy(
        update={
            "metric": "other",
            "whole": comparison.whole.model_copy(update={"difference": 10.0}),
        }
    )
    verdict = judge(gate, metrics, champion="7", comparison=worse)
    assert verdict.reason.startswith("loss 0.4: on other worse than champion 7 by 0.1, p = 1")
    assert verdict.verdict == "may-be-luck"


@given(st.lists(st.tuples(*[st.integers(0, 200)] * 4), min_size=1, max_size=8))
def test_no_promoted_model_has_a_large_slice_that_fell(parts: list[Part]) -> None:
    document = compared(**{str(number): part for number, part in enumerate(parts)})
    if not sum(document["whole"].values()):
        return
    verdict = judged(STRICT, document)
    fell = [
        name
        for name, it in document["slices"].items()
        if (samples := sum(it.values())) >= 50
        and (it["only_champion"] - it["only_challenger"]) / samples > 0.02 + 1e-9
    ]
    if verdict.promoted:
        assert not fell
    if verdict.verdict == "slice-fell":
        assert fell
        assert any(name in verdict.reason for name in fell)


def test_of_very_many_slices_the_worst_are_kept() -> None:
    parts = {str(n): (10, 0, 1 + n, 5) for n in range(SHOWN_SLICES + 5)}
    numbers = judged(GATE, compared(**parts)).judged
    assert numbers is not None
    assert (len(numbers.slices), numbers.more_slices) == (SHOWN_SLICES, 5)
    assert numbers.slices[0].name == "label:0"


def test_what_the_gate_needs_must_be_there() -> None:
    metrics = {"accuracy": 0.9, "champion_accuracy": 0.8}
    assert judge(STRICT, metrics, champion=None).promoted
    with pytest.raises(InvalidResults, match=r"gate\.significance needs comparison\.json"):
        judge(STRICT, metrics, champion="7")
    rules = [SliceRule(match="folder:*", fall_at_most=0.1)]
    with pytest.raises(InvalidResults, match=r"'folder:\*', and comparison.json no such slice"):
        judged(GATE.model_copy(update={"slices": rules}), compared(a=(5, 0, 4, 1)))


def test_metrics_and_comparison_must_agree() -> None:
    with pytest.raises(InvalidResults, match=r"contradicts metrics\.json: the lead on accuracy"):
        judged(GATE, compared(a=(5, 0, 4, 1)), accuracy=0.99)
    assert judged(GATE, compared("recall", a=(5, 0, 4, 1)), accuracy=0.99).promoted


GOOD = compared(a=(50, 1, 2, 7), b=(10, 0, 0, 0))
SCORES = {"samples": 10, "difference": 5.0, "squares": 9.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"whole": counted((61, 1, 2, 7))},
            "label: do not add up: their both_right is 60, and tha",
        ),
        ({"whole": counted((60, 1, 2, -7))}, "whole.counts.both_wrong"),
        ({"whole": counted((10**9, 1, 2, 7))}, "whole.counts.both_right"),
        ({"whole": {**counted((60, 1, 2, 7)), "n": 1}}, "whole.counts.n"),
        ({"whole": {**counted((60, 1, 2, 7)), "both_right": "60"}}, "whole.counts.both_right"),
        ({"whole": {**counted((60, 1, 2, 7)), "both_right": True}}, "whole.counts.both_right"),
        ({"metric": "no metric"}, "metric"),
        ({"surprise": 1}, "surprise"),
        ({"slices": {"night": counted((61, 1, 0, 0))}}, "slice 'night' is more than whole"),
        ({"slices": {"night": counted((9, 1, 0, 0)), "near": counted((9, 1, 0, 0))}}, None),
        ({"slices": {"x\n": counted((1, 0, 0, 0))}}, "slices"),
        ({"slices": {"x" * 101: counted((1, 0, 0, 0))}}, "slices"),
        ({"slices": {f"s{n}": counted((1, 0, 0, 0)) for n in range(501)}}, "slices"),
        ({"slices": {"night": SCORES}}, "not of the kind of whole"),
        ({"whole": SCORES, "slices": {}}, None),
        ({"whole": SCORES, "slices": {"a": {**SCORES, "squares": 9.1}}}, "'a' is more than whole"),
        ({"whole": {**SCORES, "squares": 2.4}, "slices": {}}, "no samples have this difference"),
        ({"whole": {**SCORES, "squares": float("nan")}, "slices": {}}, "whole.scores.squares"),
        ({"whole": SCORES, "slices": {"a:1": {**SCORES, "samples": 9}}}, "their samples is 9"),
        ({"whole": SCORES, "slices": {"a:1": {**SCORES, "difference": 4.9}}}, "their difference"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(change: Any, words: str | None) -> None:
    if words is None:
        Comparison.model_validate(GOOD | change)
        return
    with pytest.raises(ValidationError) as refused:
        Comparison.model_validate(GOOD | change)
    problems = [f"{'.'.join(map(str, it['loc']))} {it['msg']}" for it in refused.value.errors()]
    assert any(words in problem for problem in problems), problems


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 4), max_size=8))
def test_what_adds_up_survives_the_durable_boundary(parts: list[Part]) -> None:
    document = compared(a=(1, 0, 0, 0), **{str(number): part for number, part in enumerate(parts)})
    comparison = Comparison.model_validate(document)
    assert Comparison.model_validate(comparison.model_dump(mode="json")) == comparison


@pytest.fixture(scope="module")
def reference() -> Any:
    return pytest.importorskip("scipy.stats", reason="scikit-learn brings it")


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_exact_test_counts_every_outcome(better: int, worse: int) -> None:
    trials = better + worse
    ways = sum(comb(trials, each) for each in range(better, trials + 1))
    assert mcnemar(better, worse) == pytest.approx(float(Fraction(ways, 2**trials)), rel=1e-9)


@given(st.integers(0, 2_000_000), st.floats(-6, 6))
def test_many_samples_are_counted_as_well(reference: Any, trials: int, sigmas: float) -> None:
    better = min(max(round((trials + sigmas * trials**0.5) / 2), 0), trials)
    expected = float(reference.binom.sf(better - 1, trials, 0.5))
    assert mcnemar(better, trials - better) == pytest.approx(expected, rel=1e-6, abs=1e-14)


def test_a_tail_that_no_number_can_hold_is_nothing() -> None:
    assert mcnemar(100_000_000, 0) == 0
    assert mcnemar(0, 100_000_000) == 1


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=300))
def test_the_t_test_is_that_of_the_books(reference: Any, differences: list[int]) -> None:
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
def test_with_many_samples_the_t_test_is_nearly_exact(
    reference: Any, samples: int, t: float
) -> None:
    """Differences with a variance of 1, whose mean is t standard errors."""
    mean = t / samples**0.5
    p = paired_t(samples, mean * samples, samples - 1 + mean * mean * samples)
    assert p == pytest.approx(float(reference.t.sf(t, samples - 1)), abs=1e-8)


def test_one_sample_says_nothing() -> None:
    assert paired_t(0, 0, 0) == paired_t(1, 5, 25) == 1
    assert standard_error(1, 5, 25) == 0

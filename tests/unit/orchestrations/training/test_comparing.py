"""The gate with a comparison: numbers in its sentence, slices, and files that contradict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.pipeline import Gate, Significance, SliceRule
from orchestrations.contracts.comparison import SHOWN_SLICES, Comparison
from orchestrations.errors import InvalidResults
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


def test_a_promotion_names_its_numbers() -> None:
    verdict = judged(STRICT, compared(**{"7": (30, 2, 1, 8), "8": (8900, 100, 181, 778)}))
    assert verdict.verdict == "better"
    assert verdict.reason == (
        "accuracy 0.9112: better than champion 7 by 0.8 points, p < 0.0001, 10,000 samples; "
        "label:7 fell by 2.44 points, not significant (p = 0.5, n = 41, small)"
    )
    assert verdict.judged is not None
    assert [it.outcome for it in verdict.judged.slices] == ["small", "kept"]


def test_without_rules_the_worst_fall_is_told_and_decides_nothing() -> None:
    verdict = judged(GATE, compared(**{"7": (100, 50, 0, 50), "8": (700, 0, 90, 10)}))
    assert verdict.promoted
    assert "; label:7 fell by 25 points (p < 0.0001, n = 200)" in verdict.reason


def test_a_better_mean_with_a_broken_slice_is_refused() -> None:
    verdict = judged(STRICT, compared(**{"7": (100, 50, 0, 50), "8": (700, 0, 90, 10)}))
    assert (verdict.verdict, verdict.promoted, verdict.above_floor) == ("slice-fell", False, True)
    assert verdict.reason == (
        "accuracy 0.89: better than champion 7 by 4 points, p = 0.00046, 1,000 samples, but "
        "label:7 fell by 25 points (p < 0.0001, n = 200, gate.slices allows 2 points)"
    )


def test_a_lead_that_may_be_luck_is_refused_where_it_is_asked_for() -> None:
    document = compared(**{"7": (400, 10, 13, 77)})
    verdict = judged(STRICT, document)
    assert verdict.verdict == "may-be-luck"
    assert verdict.reason.endswith(
        "by 0.6 points, p = 0.34, 500 samples; it may be luck (gate.significance.alpha is 0.05)"
    )
    assert judged(GATE, document).promoted


def test_without_a_lead_the_metrics_decide_and_the_slices_are_kept() -> None:
    verdict = judged(STRICT, compared(**{"7": (400, 20, 10, 70)}))
    assert verdict.verdict == "not-better"
    assert verdict.judged is not None
    assert verdict.judged.slices[0].outcome == "kept"


def test_a_rule_of_one_slice_goes_before_that_of_all() -> None:
    rules = [SliceRule(match="label:7", fall_at_most=0.5), *STRICT.slices]
    gate = STRICT.model_copy(update={"slices": rules})
    document = compared(**{"7": (100, 50, 0, 50), "8": (700, 0, 90, 10)})
    assert judged(gate, document).promoted


def test_a_fall_of_exactly_the_limit_is_allowed() -> None:
    gate = STRICT.model_copy(update={"slices": [SliceRule(match="*", fall_at_most=0.3)]})
    assert judged(gate, compared(a=(70, 30, 0, 0), b=(0, 0, 90, 10))).promoted


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
    verdict = judged(GATE, compared(**parts))
    assert verdict.judged is not None
    assert (len(verdict.judged.slices), verdict.judged.more_slices) == (SHOWN_SLICES, 5)
    assert verdict.judged.slices[0].name == "label:0"


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

"""Invariants of every division of nodes, and some divisions in full."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import Admission, AdmittedRun, NodesWanted, WaitingRun
from orchestrations.training.admission import Division, divide
from orchestrations.training.room import Room
from tests.unit.orchestrations.training.admission_examples import (
    START,
    Cluster,
    an_admission,
    queues,
    waiting,
)

NODES = 8
HOUR = timedelta(hours=1)


@st.composite
def some_queues(draw: st.DrawFn) -> Queues:
    """Two flavors and up to three queues, with feasible quotas, limits, weights and budgets."""
    flavors = [
        {"name": name, "cluster": name, "nodes": NODES, "price_per_node_hour": price}
        for name, price in (("spot", 1.0), ("gpu", 3.0))
    ]
    left = {"spot": NODES, "gpu": NODES}
    found = []
    for number in range(draw(st.integers(1, 3))):
        quotas = []
        for flavor in draw(st.sampled_from([["gpu"], ["spot"], ["spot", "gpu"]])):
            nominal = draw(st.integers(0, left[flavor]))
            left[flavor] -= nominal
            limit = draw(st.none() | st.integers(0, NODES))
            quotas.append({"flavor": flavor, "nominal_quota": nominal, "borrowing_limit": limit})
        budget = draw(st.none() | st.floats(1, 100).map(lambda it: {"amount": it, "days": 7}))
        found.append(
            {
                "name": f"q{number}",
                "weight": draw(st.sampled_from([0.5, 1, 2, 5])),
                "quotas": quotas,
                "budget": budget,
            }
        )
    return Queues.model_validate(
        {
            "flavors": flavors,
            "queues": found,
            "reserve_after_seconds": draw(st.sampled_from([0, 600, 7200])),
        }
    )


@st.composite
def documents(draw: st.DrawFn) -> Admission:
    """Admissions with waiting runs, and with admitted runs within the limits."""
    given_queues = draw(some_queues())
    names = [queue.name for queue in given_queues.queues]
    document = Admission(queues=given_queues, at=START)
    for round_ in range(2):
        asked = []
        for number in range(draw(st.integers(0, 6))):
            flavors = draw(st.permutations(["spot", "gpu"]))[: draw(st.integers(1, 2))]
            shortage = draw(st.sampled_from([None, None, None, "no quota"]))
            asked.append(
                WaitingRun(
                    run=f"run-{round_}-{number}",
                    pipeline=draw(st.sampled_from(["a", "b"])),
                    queue=draw(st.sampled_from(names)),
                    options=tuple(
                        NodesWanted(
                            flavor=flavor, nodes=draw(st.integers(1, NODES)), shortage=shortage
                        )
                        for flavor in flavors
                    ),
                    since=document.at - draw(st.integers(0, 5)) * HOUR / 2,
                )
            )
        document = document.model_copy(update={"waiting": (*document.waiting, *asked)})
        if round_ == 0:
            document = divide(document, document.at).document
            document = document.model_copy(update={"at": START + HOUR})
    return document


def nothing_is_above_a_limit(_: Admission, division: Division) -> None:
    after = division.document
    room = Room(after)
    for flavor in after.queues.flavors:
        assert room.free(flavor.name) >= 0
        for queue in after.queues.queues:
            held = room.held[queue.name, flavor.name]
            assert held <= after.queues.limit(queue.name, flavor.name)


def no_admission_overspends_a_budget(document: Admission, division: Division) -> None:
    """A long run's reservation may grow above the budget; then no other run is admitted."""
    admitted_before = {run.run for run in document.admitted}
    after = division.document
    reserved = Room(after).reserved
    for queue in after.queues.queues:
        new = [
            run
            for run in after.admitted
            if run.queue == queue.name and run.run not in admitted_before
        ]
        if queue.budget is not None and new:
            assert reserved[queue.name] <= queue.budget.amount + 1e-9


def every_run_has_one_of_its_options_whole_or_waits_with_a_sentence(
    document: Admission, division: Division
) -> None:
    wanted = {run.run: run.options for run in document.waiting}
    known = {run.run for run in document.admitted}
    for run in division.document.admitted:
        if run.run not in known:
            assert any((run.flavor, run.nodes) == (w.flavor, w.nodes) for w in wanted[run.run])
    still = {run.run for run in division.document.waiting}
    new = {run.run for run in division.document.admitted} - known
    assert still | new == wanted.keys()
    assert not still & new
    assert division.reasons.keys() == still
    assert all(any(letter.isdigit() for letter in text) for text in division.reasons.values())


def nodes_are_left_free_only_for_a_run_that_is_before(_: Admission, division: Division) -> None:
    """Work-conserving: a run for which there are nodes waits only for a claim or an overdue run."""
    after, room = division.document, Room(division.document)
    for run in after.waiting:
        for option in room.usable(run):
            if room.is_within_limit(run, option) and option.nodes <= room.free(option.flavor):
                assert any(
                    said in division.reasons[run.run]
                    for said in ("waits before it", "kept for run", "are claimed by")
                ), division.reasons[run.run]
                assert len(after.waiting) > 1


def a_second_division_finds_nothing_to_admit(document: Admission, division: Division) -> None:
    assert divide(division.document, document.at).document == division.document


INVARIANTS = (
    nothing_is_above_a_limit,
    no_admission_overspends_a_budget,
    every_run_has_one_of_its_options_whole_or_waits_with_a_sentence,
    nodes_are_left_free_only_for_a_run_that_is_before,
    a_second_division_finds_nothing_to_admit,
)


@settings(deadline=None, max_examples=120)
@given(documents(), st.randoms())
def test_what_holds_of_every_division(document: Admission, random: Random) -> None:
    division = divide(document, document.at)
    for invariant in INVARIANTS:
        invariant(document, division)
    shuffled = list(document.waiting)
    random.shuffle(shuffled)
    other = divide(document.model_copy(update={"waiting": tuple(shuffled)}), document.at)
    assert other.reasons == division.reasons, "the order in the document decides nothing"
    assert other.document.admitted == division.document.admitted


# --- over time -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=3)
@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    sizes=st.lists(st.sampled_from([1, 2, 4]), min_size=3, max_size=3),
    lengths=st.lists(st.integers(1800, 3600), min_size=3, max_size=3),
)
def test_long_run_shares_of_what_is_borrowed_are_those_of_the_weights(
    weights: list[int], sizes: list[int], lengths: list[float]
) -> None:
    names = [f"q{number}" for number in range(len(weights))]
    given_queues = queues(
        *({"name": name, "weight": weight} for name, weight in zip(names, weights, strict=True)),
        nodes=4,
        usage_half_life_days=30,
    )
    cluster = Cluster(an_admission(given_queues))
    count: Counter[str] = Counter()

    def one_more(queue: str) -> None:
        number, count[queue] = names.index(queue), count[queue] + 1
        run = waiting(
            f"{queue}-{count[queue]:05}", queue, sizes[number], since=cluster.now, pipeline=queue
        )
        cluster.ask(run, lengths[number])

    for name in names:
        for _ in range(4):
            one_more(name)
    cluster.on_end = lambda run: one_more(run.queue)
    while cluster.now < START + timedelta(days=4):
        cluster.decide()
        assert cluster.step() is not None
    whole = sum(cluster.node_seconds.values())
    for name, weight in zip(names, weights, strict=True):
        share = cluster.node_seconds.get(name, 0.0) / whole
        assert share == pytest.approx(weight / sum(weights), abs=0.05)


@settings(deadline=None, max_examples=100)
@given(
    nominal=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    lengths=st.lists(st.integers(60, 7200), min_size=12, max_size=12),
    reserve_after=st.sampled_from([0, 600, 86_400]),
    asked_after=st.integers(0, 3600),
)
@example(nominal=1, sizes=[1], lengths=[60] * 12, reserve_after=0, asked_after=1501)
def test_a_queue_has_its_nominal_quota_within_the_length_of_a_job(
    nominal: int, sizes: list[int], lengths: list[int], reserve_after: int, asked_after: int
) -> None:
    """Even if another queue borrows the quota and keeps requesting nodes."""
    given_queues = queues(
        {"name": "ours", "nominal_quota": nominal},
        {"name": "theirs", "weight": 100},
        reserve_after_seconds=reserve_after,
    )
    cluster = Cluster(an_admission(given_queues))

    def theirs(number: int) -> None:
        run = waiting(f"b-{number}", "theirs", sizes[number % len(sizes)], since=cluster.now)
        cluster.ask(run, lengths[number % len(lengths)])

    for number in range(5):
        theirs(number)
    numbers = itertools.count(5)
    cluster.on_end = lambda _: theirs(next(numbers))
    asked_at: datetime | None = None
    longest = timedelta(seconds=max(lengths))
    while asked_at is None or cluster.now - asked_at <= longest:
        if asked_at is None and cluster.now >= START + timedelta(seconds=asked_after):
            asked_at = cluster.now
            cluster.ask(waiting("ours", "ours", nominal, since=asked_at), 3600)
        cluster.decide()
        if "ours" in cluster.ends:
            return
        cluster.step()
    raise AssertionError("it was not admitted in time")


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    lengths=st.lists(st.integers(60, 7200), min_size=8, max_size=8),
    weight=st.sampled_from([1, 100]),
    others=st.sampled_from(["large", "small"]),
)
def test_a_large_run_does_not_starve_behind_small_ones(
    sizes: list[int], lengths: list[int], weight: int, others: str
) -> None:
    given_queues = queues({"name": "large"}, {"name": "small", "weight": weight})
    cluster = Cluster(an_admission(given_queues))

    def small(number: int) -> None:
        size, length = sizes[number % len(sizes)], lengths[number % len(lengths)]
        cluster.ask(waiting(f"s-{number:05}", others, size, since=cluster.now), length)

    for number in range(6):
        small(number)
    numbers = iter(range(6, 10_000))
    cluster.on_end = lambda _: small(next(numbers))
    cluster.decide()
    cluster.ask(waiting("large", "large", 4, since=cluster.now), 3600)
    for _ in range(500):
        cluster.decide()
        if "large" in cluster.ends:
            return
        cluster.step()
    raise AssertionError("it starves")


# --- examples ------------------------------------------------------------------------------------


def test_the_nominal_quota_comes_before_a_queue_that_borrows() -> None:
    document = an_admission(
        queues({"name": "ours", "nominal_quota": 2}, {"name": "theirs", "weight": 9}),
        waiting("older", "theirs", 4, since=START - HOUR),
        waiting("mine", "ours", 2),
    )
    division = divide(document, START)
    assert [run.run for run in division.document.admitted] == ["mine"]
    assert division.reasons == {
        "older": "waits in queue theirs since 2026-11-22 23:00:00 UTC for gpu: 4 nodes, "
        "2 of 4 are free"
    }


def test_free_nodes_are_not_borrowed_from_a_run_that_has_a_right_to_them() -> None:
    holding = AdmittedRun(
        run="b",
        pipeline="p",
        queue="theirs",
        flavor="gpu",
        nodes=3,
        since=START,
        price_per_node_hour=1,
        expected_seconds=60,
    )
    document = an_admission(
        queues({"name": "ours", "nominal_quota": 2}, {"name": "theirs"}),
        waiting("mine", "ours", 2),
        waiting("small", "theirs", 1),
        admitted=(holding,),
    )
    division = divide(document, START)
    assert division.document.admitted == (holding,)
    assert "gpu: 2 nodes, 1 of 4 are free" in division.reasons["mine"]
    assert "1 of 4 are free, 2 are claimed by queues below" in division.reasons["small"]


def test_a_run_takes_the_first_of_its_options_that_has_room() -> None:
    given_queues = Queues.model_validate(
        {
            "flavors": [
                {"name": "spot", "cluster": "spot", "nodes": 1, "price_per_node_hour": 1},
                {"name": "gpu", "cluster": "gpu", "nodes": 4, "price_per_node_hour": 3},
            ],
            "queues": [{"name": "q", "quotas": [{"flavor": "spot"}, {"flavor": "gpu"}]}],
        }
    )
    options = (NodesWanted(flavor="spot", nodes=1), NodesWanted(flavor="gpu", nodes=1))
    runs = [waiting(name, "q").model_copy(update={"options": options}) for name in ("a", "b")]
    admitted = divide(an_admission(given_queues, *runs), START).document.admitted
    assert [(run.run, run.flavor) for run in admitted] == [("a", "spot"), ("b", "gpu")]


def test_an_option_without_quota_is_skipped_with_its_reason() -> None:
    run = waiting("a", "q")
    short = NodesWanted(flavor="gpu", nodes=2, shortage="no quota: 4 of 4 vCPUs are in use")
    document = an_admission(queues({"name": "q"}), run.model_copy(update={"options": (short,)}))
    division = divide(document, START)
    assert division.document.admitted == ()
    assert division.reasons["a"].endswith("gpu: 2 nodes, no quota: 4 of 4 vCPUs are in use")


def test_a_queue_over_its_budget_waits_for_the_next_period() -> None:
    document = an_admission(
        queues({"name": "q", "budget": {"amount": 5, "days": 7}}, price=2.0),
        *(waiting(name, "q", 2) for name in ("a", "b")),
    )
    division = divide(document, START)
    assert [run.run for run in division.document.admitted] == ["a"]
    assert division.over_budget == {"q": "b"}
    assert division.reasons["b"] == (
        "waits in queue q since 2026-11-23 00:00:00 UTC for gpu: 2 nodes, expected to cost "
        "4.00 USD: of the budget of 5.00 USD, 0.00 USD are spent and 4.00 USD reserved; the next "
        "period begins 2026-11-30 00:00:00 UTC"
    )
    ended = division.document.model_copy(update={"admitted": ()})
    later = divide(ended, START + timedelta(days=7))
    assert [run.run for run in later.document.admitted] == ["b"]


def test_a_run_that_costs_more_than_the_whole_budget_says_so() -> None:
    document = an_admission(
        queues({"name": "q", "budget": {"amount": 5, "days": 7}}, price=2.0),
        *(waiting(name, "q", nodes) for name, nodes in (("a", 2), ("b", 3), ("c", 2))),
    )
    division = divide(document, START)
    assert division.admitted == {"a"}
    assert division.over_budget == {"q": "b"}, "of both that wait, the one that no period admits"
    assert division.reasons["b"].endswith(
        "expected to cost 6.00 USD, more than the whole budget of 5.00 USD: raise the budget of "
        "queue q, or cancel the run"
    )


def test_a_queue_that_was_taken_out_of_the_file_holds_nobody_else_up() -> None:
    document = an_admission(queues({"name": "q"}), waiting("a", "gone"), waiting("b", "q"))
    division = divide(document, START)
    assert [run.run for run in division.document.admitted] == ["b"]
    assert division.reasons == {"a": "queue gone is not in queues.yml any more"}

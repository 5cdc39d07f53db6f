"""Admission of waiting runs to nodes: a pure function of one document.

Nodes are divided as in KAI (https://github.com/kai-scheduler/KAI-Scheduler): first every queue's
nominal quota, then the other nodes, by weight and recent borrowing. A run gets all of its nodes or
none, and keeps them until its job has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrations.contracts.capacity import Admission, AdmittedRun, NodesWanted, WaitingRun
from orchestrations.names import run_of_job
from orchestrations.training import accounts
from orchestrations.training.room import Reasons, Room

Choice = tuple[WaitingRun, NodesWanted]


@dataclass(frozen=True)
class Division:
    """The decisions that follow from a document."""

    document: Admission
    """The document after the admissions."""
    reasons: Mapping[str, str]
    """Run → why it still waits: one sentence with numbers."""
    admitted: frozenset[str]
    """The runs that were admitted now."""
    over_budget: Mapping[str, str]
    """Queue → a run that only its budget keeps waiting, if possible one above the whole budget."""


def divide(document: Admission, now: datetime) -> Division:
    """Admit every run that can be admitted.

    1. Runs that fit into their queue's unused nominal quota, the oldest first. If other
       queues have borrowed its nodes, no run may borrow the free nodes that it waits for.
    2. Runs that borrow: first the queue that has borrowed least for its weight, then the oldest. A
       run takes the first of its options that fits.
    3. Smaller runs overtake a run that does not fit, until it has waited for
       `reserve_after_seconds`. From then on, when it is first in order, the free nodes of its
       flavor are kept for it, and no younger run of its queue overtakes it. So every run that fits
       into its nominal quota plus the nodes in no queue's quota is admitted at last. No nodes are
       kept for a larger run: it is admitted only while other queues leave their quotas unused.

    After each admission, the steps start again at 1. The result depends only on document and time.
    """
    document = accounts.carry_forward(document, now)
    current, admitted = _Turn(document), set[str]()
    while (chosen := current.choose()) is not None:
        document = _admit(document, *chosen)
        admitted.add(chosen[0].run)
        current = _Turn(document)
    reasons = Reasons(
        room=current.room,
        claimed=current.claimed,
        kept_for=current.kept_for,
        next_of=current.next_of,
    )
    lacking = filter(current.room.lacks_only_money, document.waiting)
    return Division(
        document=document,
        reasons={run.run: reasons.of(run) for run in document.waiting},
        admitted=frozenset(admitted),
        over_budget={
            run.queue: run.run for run in sorted(lacking, key=current.room.exceeds_budget)
        },
    )


def ask(document: Admission, run: WaitingRun) -> Admission:
    """Add a run to its queue, or update its options with what Azure ML has now.

    The run keeps its place. An admitted run stays admitted, unless Azure ML refused its option.
    """
    admitted = next((each for each in document.admitted if each.run == run.run), None)
    if admitted is not None and not any(
        (each.flavor, each.nodes) == (admitted.flavor, admitted.nodes)
        for each in run.options
        if each.shortage is not None
    ):
        return document
    waiting = next((each for each in document.waiting if each.run == run.run), None)
    before = waiting or admitted
    if before is not None:
        run = run.model_copy(update={"since": before.since})
    if waiting is not None:
        run = run.model_copy(update={"alerted": waiting.alerted})
    return document.model_copy(
        update={
            "waiting": (*(each for each in document.waiting if each.run != run.run), run),
            "admitted": tuple(each for each in document.admitted if each.run != run.run),
        }
    )


def withdraw(document: Admission, run: str, heir: str | None = None) -> Admission:
    """Remove a run from its queue, if it is still waiting; `heir` takes its place, if it waits."""
    withdrawn = next((each for each in document.waiting if each.run == run), None)
    if withdrawn is None:
        return document
    kept = tuple(
        each.model_copy(update={"since": min(each.since, withdrawn.since)})
        if run_of_job(each.run) == heir
        else each
        for each in document.waiting
        if each is not withdrawn
    )
    return document.model_copy(update={"waiting": kept})


def mark_alerted(document: Admission, runs: Collection[str], queues: Collection[str]) -> Admission:
    """Record that operators were alerted to runs that wait for long and to used-up budgets."""
    return document.model_copy(
        update={
            "waiting": tuple(
                each.model_copy(update={"alerted": each.alerted or each.run in runs})
                for each in document.waiting
            ),
            "spending": tuple(
                each.model_copy(update={"alerted": each.alerted or each.queue in queues})
                for each in document.spending
            ),
        }
    )


def _admit(document: Admission, run: WaitingRun, option: NodesWanted) -> Admission:
    flavor = document.queues.flavor(option.flavor)
    assert flavor is not None, "a run is admitted only to a flavor that queues.yml declares"
    admitted = AdmittedRun(
        run=run.run,
        pipeline=run.pipeline,
        queue=run.queue,
        flavor=option.flavor,
        nodes=option.nodes,
        since=document.at,
        price_per_node_hour=flavor.price_per_node_hour,
        expected_seconds=accounts.expected_seconds(document, run.pipeline),
    )
    return document.model_copy(
        update={
            "waiting": tuple(each for each in document.waiting if each.run != run.run),
            "admitted": (*document.admitted, admitted),
        }
    )


class _Turn:
    """The choice of the next run to admit."""

    def __init__(self, document: Admission) -> None:
        self.room = Room(document)
        self._by_age = sorted(document.waiting, key=_age)
        self._usable = {run.run: self.room.usable(run) for run in self._by_age}
        self.claimed: Counter[str] = Counter()
        self.kept_for: dict[str, WaitingRun] = {}
        self.next_of: dict[tuple[str, str], WaitingRun] = {}
        for run in self._by_age:
            for option in self._usable[run.run]:
                if self.room.is_overdue(run) and self.room.is_guaranteed(run, option):
                    self.next_of.setdefault((run.queue, option.flavor), run)

    def choose(self) -> Choice | None:
        """The run to admit, and the option; None when no run can be admitted."""
        return self._entitled() or self._borrowing()

    def _entitled(self) -> Choice | None:
        """Step 1."""
        claims: Counter[tuple[str, str]] = Counter()
        for run in self._by_age:
            entitled = [
                option
                for option in self._usable[run.run]
                if not self._is_behind(run, option)
                and self.room.held[run.queue, option.flavor]
                + claims[run.queue, option.flavor]
                + option.nodes
                <= self.room.nominal(run.queue, option.flavor)
            ]
            for option in entitled:
                if option.nodes <= self.room.free(option.flavor):
                    return run, option
            if entitled:
                claims[run.queue, entitled[0].flavor] += entitled[0].nodes
                self.claimed[entitled[0].flavor] += entitled[0].nodes
        return None

    def _borrowing(self) -> Choice | None:
        """Steps 2 and 3."""
        for run, options in self._ordered_borrowers():
            for option in options:
                if self._has_room(option) and option.flavor not in self.kept_for:
                    return run, option
            guaranteed = [each for each in options if self.room.is_guaranteed(run, each)]
            if guaranteed and self.room.is_overdue(run):
                self.kept_for.setdefault(guaranteed[0].flavor, run)
        return None

    def _ordered_borrowers(self) -> list[tuple[WaitingRun, list[NodesWanted]]]:
        """The runs that may borrow, each with the options that its queue may use now."""
        borrowers: list[tuple[tuple[float, datetime, str], WaitingRun, list[NodesWanted]]] = []
        for run in self._by_age:
            options = [
                option
                for option in self._usable[run.run]
                if self.room.is_within_limit(run, option) and not self._is_behind(run, option)
            ]
            if options:
                first = next(filter(self._has_room, options), options[0])
                key = (self.room.share(run.queue, first.flavor), *_age(run))
                borrowers.append((key, run, options))
        return [(run, options) for _, run, options in sorted(borrowers, key=lambda each: each[0])]

    def _has_room(self, option: NodesWanted) -> bool:
        return option.nodes <= self.room.free(option.flavor) - self.claimed[option.flavor]

    def _is_behind(self, run: WaitingRun, option: NodesWanted) -> bool:
        first = self.next_of.get((run.queue, option.flavor))
        return first is not None and _age(first) < _age(run)


def _age(run: WaitingRun) -> tuple[datetime, str]:
    return run.since, run.run

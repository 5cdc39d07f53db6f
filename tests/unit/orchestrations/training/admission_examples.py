"""Queues, and a cluster whose runs come and end, to divide nodes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrations.configuration.queues import Queues
from orchestrations.contracts.capacity import Admission, AdmittedRun, NodesWanted, WaitingRun
from orchestrations.contracts.runs import RunCost
from orchestrations.training import accounts
from orchestrations.training.admission import Division, divide

START = datetime(2026, 11, 23, tzinfo=UTC)
"""A Monday, the beginning of a budget's period of seven days."""


def queues(*named: dict[str, Any], nodes: int = 4, price: float = 2.0, **settings: Any) -> Queues:
    """Queues with quotas of one flavor, `gpu`. Arguments have keys of a queue and of its quota."""
    quota_keys = ("nominal_quota", "borrowing_limit")
    return Queues.model_validate(
        {
            "flavors": [
                {"name": "gpu", "cluster": "gpu", "nodes": nodes, "price_per_node_hour": price}
            ],
            "queues": [
                {key: value for key, value in each.items() if key not in quota_keys}
                | {
                    "quotas": [
                        {"flavor": "gpu"} | {key: each[key] for key in quota_keys if key in each}
                    ]
                }
                for each in named
            ],
        }
        | settings
    )


def waiting(
    run: str, queue: str, nodes: int = 1, *, since: datetime = START, pipeline: str = "digits"
) -> WaitingRun:
    return WaitingRun(
        run=run,
        pipeline=pipeline,
        queue=queue,
        options=(NodesWanted(flavor="gpu", nodes=nodes),),
        since=since,
    )


def an_admission(given: Queues, *runs: WaitingRun, **more: Any) -> Admission:
    return Admission(queues=given, at=START, waiting=runs, **more)


@dataclass
class Cluster:
    """A cluster whose runs wait, are admitted and end. The clock jumps from event to event."""

    document: Admission
    lengths: dict[str, float] = field(default_factory=dict[str, float])
    """Run → duration of its job, in seconds."""
    on_end: Callable[[AdmittedRun], None] = lambda _: None
    ends: dict[str, datetime] = field(default_factory=dict[str, datetime])
    node_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Queue → node seconds that its runs have used."""

    @property
    def now(self) -> datetime:
        return self.document.at

    def ask(self, run: WaitingRun, seconds: float) -> None:
        self.lengths[run.run] = seconds
        self.document = self.document.model_copy(update={"waiting": (*self.document.waiting, run)})

    def decide(self) -> Division:
        division = divide(self.document, self.now)
        self.document = division.document
        for run in self.document.admitted:
            seconds = timedelta(seconds=self.lengths[run.run])
            self.ends.setdefault(run.run, run.since + seconds)
        return division

    def step(self) -> AdmittedRun | None:
        """End the next run and return its nodes; None if no run holds nodes."""
        if not self.document.admitted:
            return None
        run = min(self.document.admitted, key=lambda each: (self.ends[each.run], each.run))
        self.pass_time(self.ends[run.run])
        seconds = self.lengths[run.run] * run.nodes
        cost = RunCost(
            queue=run.queue,
            flavor=run.flavor,
            nodes=run.nodes,
            node_seconds=seconds,
            price_per_node_hour=run.price_per_node_hour,
            currency=self.document.queues.currency,
        )
        self.document = accounts.settle(self.document, run.run, cost)
        self.on_end(run)
        return run

    def pass_time(self, until: datetime) -> None:
        elapsed = (until - self.now).total_seconds()
        for run in self.document.admitted:
            before = self.node_seconds.get(run.queue, 0.0)
            self.node_seconds[run.queue] = before + run.nodes * elapsed
        self.document = accounts.carry_forward(self.document, until)

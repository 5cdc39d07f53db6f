"""Guards of a model's answers: their metrics, in one pass over rows, and the verdict. Pure.

A row is one answer: the columns that the scoring script gave to the data collector, or the body of
an answer. https://learn.microsoft.com/azure/machine-learning/how-to-collect-production-data
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from orchestrations.configuration.deploy import (
    AnswerGuard,
    BatchDeploy,
    Deploy,
    Guards,
    RolloutStep,
)
from orchestrations.contracts.rollouts import AnswerMeasurement, EndpointTraffic
from orchestrations.rollout.decisions import WHOLE_PERCENT, Broken, Passed, Verdict, Wait, worst

MOST_REQUESTS = 100_000
"""The most answers of the new deployment that are kept for comparison with others."""
Row = Mapping[str, Any]


def guards_of(deploy: Deploy, step: RolloutStep, previous: EndpointTraffic) -> list[AnswerGuard]:
    """The guards of answers that apply to a step, without limits that cannot be checked in it.

    The current deployments answer the same requests in a mirror step, other requests in a step with
    a part of the traffic, and no requests if they have no traffic.
    """
    if isinstance(deploy, BatchDeploy):
        return []
    are_answering = bool(previous.traffic) and step.traffic != WHOLE_PERCENT
    judged: list[AnswerGuard] = []
    for guard in deploy.guards.answers:
        if guard.metric == "agreement" and (step.mirror is None or not are_answering):
            continue
        limits = guard if are_answering else guard.model_copy(update={"max_change": None})
        if (limits.min, limits.max, limits.max_change) != (None, None, None):
            judged.append(limits)
    return judged


def judge_answers(
    guards: Guards, judged: Sequence[AnswerGuard], measured: Sequence[AnswerMeasurement]
) -> Verdict:
    """Whether the model's answers let the step pass.

    A guard with fewer than `minimum_requests` answers, or answers to compare with, is not judged:
    the step continues, as with too few requests.

    Args:
        guards: of the pipeline.
        judged: the guards from `guards_of`.
        measured: the measurement for each of `judged`.
    """
    found = [_judge(guards, *pair) for pair in zip(judged, measured, strict=True)]
    return worst(*found) if found else Passed()


def _judge(guards: Guards, guard: AnswerGuard, measurement: AnswerMeasurement) -> Verdict:
    least, setting = guards.minimum_requests, f"deploy.guards.answers: {guard.label}"
    if measurement.answers < least:
        return Wait(f"{measurement.answers} of {least} collected answers")
    lacking = measurement.without / measurement.answers if measurement.answers else 0.0
    if lacking > guards.error_rate:
        return Broken(
            f"{lacking:.1%} of {measurement.answers} answers have no {guard.field!r} to measure; "
            f"{setting}, and deploy.guards.error_rate is {guards.error_rate:.1%}"
        )
    if (guard.joins or guard.max_change is not None) and measurement.compared < least:
        return Wait(f"{measurement.compared} of {least} answers to compare with; {setting}")
    breach = next(_breaches(guard, measurement), None)
    return Passed() if breach is None else Broken(f"{setting} is {breach}")


def _breaches(guard: AnswerGuard, measurement: AnswerMeasurement) -> Iterator[str]:
    """Texts with numbers for the limits that a metric exceeds; none without a value."""
    if measurement.value is None:
        return
    answers = measurement.compared if guard.joins else measurement.answers
    about = f"{measurement.value:.4g} of {answers} answers"
    if guard.min is not None and measurement.value < guard.min:
        yield f"{about}; min is {guard.min:.4g}"
    if guard.max is not None and measurement.value > guard.max:
        yield f"{about}; max is {guard.max:.4g}"
    if guard.max_change is None or measurement.reference is None:
        return
    if abs(measurement.value - measurement.reference) > guard.max_change:
        yield (
            f"{about}, and {measurement.reference:.4g} of {measurement.compared} of the current "
            f"model; max_change is {guard.max_change:.4g}"
        )


def parse_collected(line: bytes, *, since: datetime) -> Iterator[Row]:
    """The rows of one line of the data collector, if it was written at or after `since`.

    A line holds the rows of one request, or of several requests that arrived close together. A line
    that is not a complete event, such as one that is still being written, has no rows.
    """
    event = parse_line(line)
    data, time = event.get("data"), event.get("time")
    try:
        written = datetime.fromisoformat(str(time)).astimezone(UTC)
    except ValueError:
        return
    if written < since.replace(microsecond=0):  # the collector's clock has whole seconds
        return
    for row in cast("list[Any]", data) if isinstance(data, list) else [data]:
        if isinstance(row, dict):
            yield cast("Row", row)


class Measuring:
    """Measures one guard: `add` the new deployment's rows, `compare` with others, then `result`.

    Args:
        guard: what is measured.
    """

    def __init__(self, guard: AnswerGuard) -> None:
        self.guard = guard
        self._answers = 0
        self._total = _Mean()
        self._reference = _Mean()
        self._by_request: dict[str, Any] = {}
        self._agreed = _Mean()

    def add(self, row: Row) -> None:
        """Count an answer of the new deployment."""
        self._answers += 1
        value = _measured(self.guard, row)
        if value is None:
            return
        self._total.add(value)
        if self.guard.joins and len(self._by_request) < MOST_REQUESTS:
            self._by_request[str(row[self.guard.id or ""])] = row[self.guard.field]

    def compare(self, row: Row) -> None:
        """Count an answer of a current deployment, or a label."""
        value = _measured(self.guard, row)
        if value is None:
            return
        if not self.guard.joins:
            self._reference.add(value)
            return
        request = str(row[self.guard.id or ""])
        if request in self._by_request:
            answer = self._by_request.pop(request)
            self._agreed.add(float(is_same(answer, row[self.guard.field])))

    def result(self) -> AnswerMeasurement:
        """The metric of the answers so far."""
        joined = self.guard.joins
        return AnswerMeasurement(
            answers=self._answers,
            without=self._answers - self._total.count,
            value=self._agreed.mean if joined else self._total.mean,
            compared=self._agreed.count if joined else self._reference.count,
            reference=None if joined else self._reference.mean,
        )


class _Mean:
    """A mean of numbers that are added one by one."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self._sum += value

    @property
    def mean(self) -> float | None:
        return self._sum / self.count if self.count else None


def is_same(one: Any, other: Any) -> bool:
    """Whether two answers are equal: numbers as numbers, all others as text.

    A label can be a number in one file and text in another.
    """
    if _is_number(one) and _is_number(other):
        return one == other
    return str(one) == str(other)


def _measured(guard: AnswerGuard, row: Row) -> float | None:
    """A row's contribution to the guard's mean; None if it lacks the field."""
    value = row.get(guard.field)
    if value is None or (guard.id is not None and row.get(guard.id) is None):
        return None
    if guard.metric == "mean":
        return float(value) if _is_number(value) and math.isfinite(value) else None
    return float(is_same(value, guard.value)) if guard.metric == "share" else 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_line(line: bytes) -> Row:
    """The columns of one line of JSON; a malformed line has none."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("Row", document) if isinstance(document, dict) else {}

"""GET /api/pipelines/{name}/picture: what happened to a pipeline, drawn from its records.

The link in a notification (`handlers.notify.page_links`) answers the same, without a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import Annotated, TypeVar

from pydantic import Field

from handlers.landing.batch_records import frozen_at, newest_batches, read_batch
from handlers.landing.differences import first_difference
from handlers.notify.approvals import list_questions, read_question
from handlers.notify.page_links import linked_picture, question_fragment
from handlers.operate.api.actions import Action, find_actions
from handlers.operate.api.documents import RunSummary
from handlers.operate.api.model_documents import ModelSummary
from handlers.operate.api.models import ModelFilter, list_models
from handlers.operate.api.picture_drawing import (
    PLOT,
    Change,
    Facts,
    Lane,
    Mark,
    Row,
    actions_until,
    draw,
    lane_of_run,
    link,
    rollout_link,
)
from handlers.operate.api.requests import Drawing, Parameters, Problem, find_pipeline
from handlers.operate.api.sentences import duration
from handlers.platform.clients import Clients
from handlers.platform.rollout_index import list_rollouts, read_traffic_changes, recorded_end
from handlers.platform.run_index import list_runs
from handlers.platform.run_records import read_run_record
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.approvals import Question
from orchestrations.contracts.comparison import Judged
from orchestrations.contracts.outcomes import rule_of_batch, rule_of_rollout
from orchestrations.contracts.rollouts import RolloutState, RolloutStatus
from orchestrations.training.room import clock

# One listing has the summaries of so many runs; of the others each is a read.
RUNS_READ = 4_999
BATCHES_READ = 1_000
DIFFERENCES_READ = 200
VERSIONS_READ = 200
ROLLOUTS_READ = 100
QUESTIONS_READ = 500
ACTIONS_SEARCHED = 1_000
READS_AT_ONCE = 8
NORMAL_95 = 1.96
Found = TypeVar("Found")


class PictureFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/picture."""

    days: Annotated[float, Field(ge=0.1, le=3_660)] = 30.0
    """How far back the picture begins."""


def get_picture(
    clients: Clients, pipeline: Pipeline, query: PictureFilter, *, now: datetime
) -> Drawing:
    """Draw a pipeline's batches, runs, versions, what people did, and traffic, as SVG."""
    # The picture stays the same until a mark would move by a pixel.
    pixel = query.days * 86_400 / PLOT
    until = datetime.fromtimestamp(math.ceil(now.timestamp() / pixel) * pixel, UTC)
    since = until - timedelta(days=query.days)
    return Drawing(draw(_Reader(clients, pipeline, since, until).facts()))


def get_linked_picture(
    clients: Clients, pipelines: Mapping[str, Pipeline], *, token: str, now: datetime
) -> Drawing:
    """Draw the pipeline that a signed link names, as it is now."""
    name = linked_picture(clients.settings, token, now.date())
    if name is None:
        raise Problem(401, "bad-link", "the link is over, not of this app, or its secret changed")
    return get_picture(clients, find_pipeline(pipelines, name), PictureFilter(), now=now)


class _Reader:
    """Reads what happened since a time, newest first and bounded."""

    def __init__(
        self, clients: Clients, pipeline: Pipeline, since: datetime, until: datetime
    ) -> None:
        self._clients, self._pipeline = clients, pipeline
        self._since, self._until = since, until
        self._read_from: dict[Row, datetime] = {}
        self._notes: list[str] = []
        self._subjects: dict[str, datetime] = {}
        """Runs and rollouts, and their times."""

    def facts(self) -> Facts:
        """What the records have."""
        marks = [*self._batches(), *self._runs(), *self._versions()]
        rollouts, changes = self._traffic()
        return Facts(
            pipeline=self._pipeline.name,
            metric=self._pipeline.gate.metric,
            floor=self._pipeline.gate.floor,
            since=self._since,
            until=self._until,
            marks=[*marks, *rollouts, *self._questions(), *self._actions()],
            changes=changes,
            read_from=self._read_from,
            notes=self._notes,
        )

    def _end(self, row: Row, oldest: datetime) -> None:
        """Nothing of a row is read that is older, though there may be some."""
        if oldest > self._since:
            self._read_from[row] = max(oldest, self._read_from.get(row, oldest))
            self._notes.append(f"{row}: what is older than {clock(oldest)} is not read")

    def _read(
        self, read: Callable[[Clients, str], Found | None], names: Iterable[str]
    ) -> dict[str, Found]:
        """Read records at once; those that are not there are left out."""
        unique = list(dict.fromkeys(names))
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            records = pool.map(partial(read, self._clients), unique)
            return {name: it for name, it in zip(unique, records, strict=True) if it is not None}

    def _batches(self) -> Iterable[Mark]:
        pipeline, names = self._pipeline.name, newest_batches(self._clients, self._pipeline.name)
        names = list(
            islice(takewhile(lambda it: frozen_at(it) >= self._since, names), BATCHES_READ + 1)
        )
        if len(names) > BATCHES_READ:
            self._end("batches", frozen_at(names.pop()))
        batches = self._read(read_batch, names).values()
        versions = [it.dataset.version for it in batches if it.dataset.blobs][:DIFFERENCES_READ]
        differences = self._read(lambda it, name: first_difference(it, pipeline, name), versions)
        for each in batches:
            data, outcome = each.dataset, each.result.outcome
            rule, difference = rule_of_batch(outcome), differences.get(data.version)
            lane: Lane = "trained" if rule.is_trained else "held" if rule.is_held else "not trained"
            became = "trained on" if outcome == "started" else outcome.replace("-", " ")
            change = "the first version" if difference and not difference.base else difference
            files = "1 file" if data.blobs == 1 else f"{data.blobs:,} files"
            parts = (f"batch of {files}: {became}", change, each.result.reason)
            difference_of = link("pipelines", pipeline, {"data": data.version})
            yield Mark(
                lane=lane,
                at=data.frozen_at,
                sentence="; ".join(str(it) for it in parts if it),
                link=difference_of if data.blobs else link("pipelines", pipeline),
            )

    def _runs(self) -> Iterable[Mark]:
        records, pipeline = self._clients.records, self._pipeline.name
        page = list_runs(records, pipeline=pipeline, created_from=self._since, limit=RUNS_READ)
        runs = [RunSummary.model_validate(each) for each in page.runs]
        if page.following is not None:
            self._end("runs", runs[-1].created_at)
        for run in runs:
            self._subjects[run.id] = run.created_at
            why = run.reason if run.error is None else f"{run.error.type}: {run.error.message}"
            took = run.ended_at and f"took {duration(run.ended_at - run.created_at)}"
            model = run.model and f"version {run.model.version}"
            parts = (f"run {run.id} {run.state.replace('_', ' ')}", model, took, why)
            yield Mark(
                lane=lane_of_run(run.state),
                at=run.created_at,
                sentence="; ".join(filter(None, parts)),
                link=link("runs", run.id),
            )

    def _versions(self) -> Iterable[Mark]:
        try:
            listed = list_models(self._clients, self._pipeline, ModelFilter(limit=VERSIONS_READ))
        except Problem as problem:
            self._notes.append(f"versions: {problem.detail}")
            return
        dated = [(it, it.registered_at) for it in listed.models if it.registered_at is not None]
        recent = [(it, at) for it, at in dated if at >= self._since]
        if listed.next is not None and recent and len(recent) == len(dated):
            self._end("versions", recent[-1][1])
        if listed.champion not in (None, *(it.version for it, _ in recent)):
            self._notes.append(f"versions: version {listed.champion}, an older one, is in service")
        records = self._read(read_run_record, [it.run for it, _ in recent if it.run is not None])
        for model, at in recent:
            if listed.metric in model.metrics:
                record = records.get(model.run or "")
                yield self._version(model, at, listed.metric, record and record.judged)

    def _version(
        self, model: ModelSummary, at: datetime, metric: str, judged: Judged | None
    ) -> Mark:
        said, reach = f"{metric} {model.metrics[metric]:.4g}", 0.0
        if judged is not None and judged.metric == metric:
            reach = NORMAL_95 * judged.error
            said = f"{judged.message}; its lead: {judged.lead:.3g} ± {reach:.2g} (95 % confidence)"
        return Mark(
            lane="champion" if model.stage == "champion" else "version",
            at=at,
            sentence=f"version {model.version}, {model.stage}: {said}",
            link=link("models", f"{self._pipeline.name}:{model.version}"),
            name=model.version,
            value=model.metrics[metric],
            reach=reach,
        )

    def _traffic(self) -> tuple[list[Mark], list[Change]]:
        """The rollouts, and the traffic that they and the one before them have set."""
        if self._pipeline.deploy is None:
            return [], []
        name = self._pipeline.name
        page = list_rollouts(self._clients, pipeline=name, after=None, limit=ROLLOUTS_READ)
        recent = [each for each in page.rollouts if each.since >= self._since]
        if page.following is not None and len(recent) == len(page.rollouts):
            self._end("traffic", recent[-1].since)
        self._subjects |= {each.id: each.since for each in recent}
        ends = self._read(recorded_end, [each.id for each in recent])
        set_by = self._read(
            read_traffic_changes, [each.id for each in page.rollouts[: len(recent) + 1]]
        )
        changes = [
            Change(at=at, shares=shares, rollout=rollout)
            for rollout, found in set_by.items()
            for at, shares in found
        ]
        return [_rollout(each, ends.get(each.id)) for each in recent], changes

    def _questions(self) -> Iterable[Mark]:
        subjects = {name: name.rpartition(".")[0] for name in list_questions(self._clients)}
        names = [name for name, subject in subjects.items() if subject in self._subjects]
        names.sort(key=lambda name: self._subjects[subjects[name]], reverse=True)
        if len(names) > QUESTIONS_READ:
            self._end("people", self._subjects[subjects[names[QUESTIONS_READ]]])
        return map(_question, self._read(read_question, names[:QUESTIONS_READ]).values())

    def _actions(self) -> Iterable[Mark]:
        actions, oldest = find_actions(self._clients, self._is_ours, searched=ACTIONS_SEARCHED)
        if oldest is not None:
            self._end("people", oldest)
        for each in actions:
            sentence = f"{each.by}: {each.action} {each.on}: {each.reason}"
            listed = actions_until(each.at)
            yield Mark(lane="actions", at=each.at, sentence=sentence, link=listed)

    def _is_ours(self, action: Action) -> bool:
        """Whether an action was about the pipeline; answers to questions are shown as those."""
        kind, _, name = action.on.partition(" ")
        of = {"pipeline": name, "run": name.rsplit("-", 2)[0]}
        return (
            of.get(kind) == self._pipeline.name
            or (kind == "model" and name.rpartition(":")[0] == self._pipeline.model.name)
            or (kind == "rollout" and name in self._subjects)
        )


def _rollout(rollout: RolloutStatus, end: RolloutState | None) -> Mark:
    is_failure = end is not None and rule_of_rollout(end).is_failure
    lane: Lane = "live" if end == "finished" else "rolled back" if is_failure else "other"
    became = "under way" if end is None else end.replace("_", " ")
    said = f"rollout of version {rollout.model.version} to {rollout.endpoint}: {became}"
    return Mark(lane=lane, at=rollout.since, sentence=said, link=rollout_link(rollout.id))


def _question(question: Question) -> Mark:
    agreed, answer = question.agreed, question.answer
    lanes: Mapping[str, Lane] = {"approve": "approved", "reject": "rejected"}
    said = "no answer yet" if answer is None else answer.sentence
    return Mark(
        lane="unanswered" if answer is None else lanes.get(answer.verb, "unanswered"),
        at=question.asked_at if answer is None else answer.at,
        sentence=f"{agreed.model}, asked before {agreed.before}: {said}",
        link=f"/api/ui{question_fragment(agreed)}",
    )

"""GET /api/pipelines/{name}/models/{version}/card: a model version, told for people.

The card is made from the records at each request, so that it never lags behind them. Its
sections follow Mitchell et al., Model Cards for Model Reporting, https://arxiv.org/abs/1810.03993,
as far as Landfall knows the facts; intended use and ethics are the team's to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

import yaml

from handlers.operate.api.actions import Action, find_actions
from handlers.operate.api.model_documents import ModelCard, ModelDetail
from handlers.operate.api.model_effort import (
    NOT_ENDED,
    UNKNOWN,
    describe_total,
    emissions,
    rollout_use,
    run_use,
)
from handlers.operate.api.models import azure_ml_asked, get_model
from handlers.operate.api.picture_drawing import link
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import read_job_file
from handlers.platform.configuration.pipeline_files import load_queues
from handlers.platform.rollout_index import list_rollouts, recorded_end, trial_time
from handlers.platform.run_index import runs_of_dataset
from handlers.platform.run_records import read_run_record
from handlers.rollout.endpoints import read_traffic
from orchestrations.configuration.approve import ApprovedStep
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.comparison import Judged, SliceChange
from orchestrations.contracts.rollouts import EndpointTraffic, RolloutState, RolloutStatus
from orchestrations.contracts.training import RunRecord
from orchestrations.errors import InvalidPipeline
from orchestrations.names import approval_id

ROLLOUTS_SEARCHED = 500
ACTIONS_SEARCHED = 1_000
STEPS: tuple[ApprovedStep, ...] = get_args(ApprovedStep)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a card tells."""

    model: ModelDetail
    pipeline: Pipeline
    runs: Sequence[RunRecord]
    """On the model's dataset version: what it took to get the model, lost and failed runs too."""
    job: Mapping[str, Any]
    """The job file that its run used; empty if it is not kept any more."""
    rollouts: Sequence[tuple[RolloutStatus, RolloutState | None, timedelta | None]]
    """Those of this version, newest first, each with its recorded end and its trial's time."""
    queues: Queues
    """For prices; empty if there is no `queues.yml`."""
    traffic: EndpointTraffic
    actions: Sequence[Action]
    """What people did about this version, newest first."""

    @property
    def own_run(self) -> RunRecord | None:
        """The run that trained it, if its record is kept."""
        return next((it for it in self.runs if it.status.id == self.model.run), None)


def get_model_card(clients: Clients, pipeline: Pipeline, *, version: str) -> ModelCard:
    """Return the card of one version of a pipeline's model."""
    model = get_model(clients, pipeline, version=version)
    deploy = pipeline.deploy
    traffic = EndpointTraffic()
    if deploy is not None:
        with azure_ml_asked():
            traffic = read_traffic(clients, deploy.kind, deploy.endpoint)
    rollouts = _rollouts(clients, pipeline, version)
    ids = [each.id for each, _, _ in rollouts]
    approvals = [approval_id(each, step) for each in (model.run, *ids) if each for step in STEPS]
    about = {
        f"model {model.name}:{version}",
        *(f"rollout {each}" for each in ids),
        *(f"approval {each}" for each in approvals),
    }
    actions, _ = find_actions(clients, lambda it: it.on in about, searched=ACTIONS_SEARCHED)
    facts = Facts(
        model=model,
        pipeline=pipeline,
        runs=_runs(clients, pipeline, model.dataset_version),
        job=_job(clients, pipeline, model.configuration),
        rollouts=rollouts,
        queues=load_queues(clients.settings.pipelines_folder) or Queues(),
        traffic=traffic,
        actions=actions,
    )
    return ModelCard(model=f"{model.name}:{version}", markdown=tell(facts))


def _runs(clients: Clients, pipeline: Pipeline, version: str | None) -> list[RunRecord]:
    names = [] if version is None else runs_of_dataset(clients.records, version)
    found = (read_run_record(clients, each) for each in names)
    ours = [each for each in found if each is not None and each.status.pipeline == pipeline.name]
    return sorted(ours, key=lambda each: each.started_at)


def _job(clients: Clients, pipeline: Pipeline, configuration: str | None) -> Mapping[str, Any]:
    if configuration is None:
        return {}
    try:
        return yaml.safe_load(read_job_file(clients, pipeline.name, configuration, pipeline.job))
    except InvalidPipeline:  # its retention has ended
        return {}


def _rollouts(
    clients: Clients, pipeline: Pipeline, version: str
) -> list[tuple[RolloutStatus, RolloutState | None, timedelta | None]]:
    page = list_rollouts(clients, pipeline=pipeline.name, after=None, limit=ROLLOUTS_SEARCHED)
    found = [each for each in page.rollouts if each.model.version == version]
    return [_rollout(clients, each) for each in found]


def _rollout(
    clients: Clients, rollout: RolloutStatus
) -> tuple[RolloutStatus, RolloutState | None, timedelta | None]:
    end = recorded_end(clients, rollout.id)
    return rollout, end, trial_time(clients, rollout.id, end)


def tell(facts: Facts) -> str:
    """The card as Markdown. Pure."""
    model = facts.model
    sections = {
        "Data": _data(facts),
        "Training": _training(facts),
        "Metrics": _metrics(facts),
        "Reproduced": _reproduced(facts),
        "What it took": _effort(facts),
        "In service": _service(facts),
        "Who decided": _decisions(facts.actions),
    }
    lines = [f"# {_text(model.name)}:{model.version}", "", *_about(facts)]
    for title, told in sections.items():
        lines += ["", f"## {title}", "", *told]
    return "\n".join(lines) + "\n"


def _about(facts: Facts) -> Iterator[str]:
    model, gate = facts.model, facts.pipeline.gate
    yield from _facts(
        {
            "pipeline": model.pipeline,
            "stage": model.stage,
            "registered": _moment(model.registered_at),
            "judged by": f"{gate.metric} ({gate.goal}; the floor is {gate.floor:g})",
            "compared with": "nothing: it was the first"
            if model.compared_with is None
            else f"version {model.compared_with}",
        }
    )
    yield f"- [picture of the pipeline over time]({link('pipelines', model.pipeline)})"


def _data(facts: Facts) -> Iterator[str]:
    model, data = facts.model, facts.model.dataset
    yield from _facts(
        {
            "dataset version": model.dataset_version or "Landfall did not train this version",
            "files": None if data is None else f"{data.blobs:,} ({data.bytes:,} bytes)",
            "frozen": None if data is None else _moment(data.frozen_at),
            "partition": None if data is None else data.partition,
            "difference": model.difference or "none: it is the first version",
            "manifest": None if data is None else data.manifest,
        }
    )


def _training(facts: Facts) -> Iterator[str]:
    model = facts.model
    used = None if facts.own_run is None else facts.own_run.compute
    distribution = facts.job.get("distribution")
    yield from _facts(
        {
            "run": model.run,
            "reason": model.reason,
            "parameters": ", ".join(f"{name} = {value}" for name, value in model.parameters.items())
            or "none are declared",
            "code": model.code or UNKNOWN,
            "command": facts.job.get("command"),
            "environment": model.environment or _environment(facts.job.get("environment")),
            "distribution": distribution and ", ".join(f"{k} {v}" for k, v in distribution.items()),
            "compute": UNKNOWN
            if used is None
            else f"{used.nodes} nodes of {used.size} ({used.priority}), cluster {used.cluster}",
            "configuration": model.configuration,
            "job": model.job,
        }
    )


def _environment(environment: Any) -> str:
    if isinstance(environment, dict):  # it is defined in the job file itself
        return str(environment.get("image") or environment.get("build") or UNKNOWN)
    return str(environment or UNKNOWN)


def _metrics(facts: Facts) -> Iterator[str]:
    judged = None if facts.own_run is None else facts.own_run.judged
    rows = [(name, f"{value:.6g}") for name, value in facts.model.metrics.items()]
    yield from _table(("metric", "value"), rows)
    if judged is None:
        yield ""
        yield "The job wrote no `comparison.json`: how certain the lead is, is not known."
        return
    yield ""
    yield f"{_text(judged.message)}."
    if judged.slices:
        yield ""
        columns = ("slice", "change", "standard error", "p", "samples", "outcome")
        yield from _table(columns, [_slice(judged, each) for each in judged.slices])
    if judged.more_slices:
        yield ""
        yield f"{judged.more_slices} slices that are better than these are left out."


def _slice(judged: Judged, each: SliceChange) -> tuple[str, ...]:
    factor, unit = (100, " points") if judged.unit == "points" else (1, "")
    change, error = each.lead * factor, each.error * factor
    samples = f"{each.samples:,}"
    return each.name, f"{change:+.3g}{unit}", f"{error:.2g}", f"{each.p:.2g}", samples, each.outcome


def _reproduced(facts: Facts) -> Iterator[str]:
    ours = f"{facts.model.name}:{facts.model.version}"
    runs = [each.status for each in facts.runs if each.status.reproduces == ours]
    if not runs:
        yield "Nobody has requested a reproduction of it."
    for each in runs:
        told = f"{each.state}{(each.reason and f': {each.reason}') or ''} (run {each.id})"
        yield f"- {_moment(each.since)}: {_text(told)}"


def _effort(facts: Facts) -> Iterator[str]:
    """Every run on the dataset version and every rollout; sums have those that lost or failed."""
    runs = [run_use(each) for each in facts.runs if each.status.reproduces is None]
    rollouts = [rollout_use(*each, facts.pipeline.deploy, facts.queues) for each in facts.rollouts]
    if not runs:
        yield "No run of this dataset version is recorded."
        yield ""
    columns = ("run or rollout", "state", "node-hours", "cost", "why")
    yield from _table(columns, [use.row for use in (*runs, *rollouts)])
    for uses, kind, what in ((runs, "runs", "training"), (rollouts, "rollouts", "test and bake")):
        if uses:
            yield ""
            yield f"Together {describe_total(uses, kind, what)}."
    yield ""
    yield from _facts(emissions((*runs, *rollouts), facts.queues))


def _service(facts: Facts) -> Iterator[str]:
    deploy = facts.pipeline.deploy
    if deploy is None:
        yield "Landfall manages no endpoint for it."
        return
    shares = ", ".join(f"{name} {share} %" for name, share in facts.traffic.traffic.items())
    yield f"Traffic of {deploy.kind} endpoint {_text(deploy.endpoint)} now: {shares or 'none'}."
    if facts.rollouts:
        yield ""
        rows = [
            (each.id, each.deployment, end or NOT_ENDED, _moment(each.since))
            for each, end, _ in facts.rollouts
        ]
        yield from _table(("rollout", "deployment", "state", "requested at"), rows)


def _decisions(actions: Sequence[Action]) -> Iterator[str]:
    if not actions:
        yield "Nobody: the gate and the rollout decided by their rules."
        return
    rows = [(_moment(it.at), it.by, it.action, it.on, it.reason, it.outcome) for it in actions]
    yield from _table(("when", "who", "what", "on", "why", "outcome"), rows)


def _facts(facts: Mapping[str, str | None]) -> Iterator[str]:
    known = {name: value for name, value in facts.items() if value is not None}
    return (f"- {_text(name)}: {_text(value)}" for name, value in known.items())


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _moment(moment: datetime | None) -> str:
    return UNKNOWN if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def _text(text: str) -> str:
    """A text of somebody's, without what Markdown or HTML would make of it."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))

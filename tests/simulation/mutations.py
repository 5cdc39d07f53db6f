"""Planted mistakes, each of which must be found: they show that the checker can fail."""

from __future__ import annotations

import asyncio
import functools
import itertools
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

from handlers.landing import comparing, copies, dataset_claims, freezing, holding, zone_troubles
from handlers.notify import dead_letter_queue, delivery
from handlers.operate import job_events, redrive, redrive_changes
from handlers.operate.api import approvals as approvals_of_api
from handlers.operate.api import champion_changes
from handlers.operate.api import pipelines as pipelines_of_api
from handlers.operate.api import promotions as promotions_of_api
from handlers.operate.reconciliation import landings, reconciliation, runs
from handlers.operate.reconciliation import promotions as promotions_of_round
from handlers.platform import activity_adapter, bulkheads, instances, run_records
from handlers.platform.clients import Clients
from handlers.platform.configuration import configurations
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from handlers.platform.settings import Settings
from handlers.platform.tags import reference_of
from handlers.rollout import observing
from handlers.rollout.requests import Redirection
from handlers.training import (
    admission,
    assets,
    compute_clusters,
    job_outputs,
    jobs,
    model_files,
    retries,
)
from handlers.training import promotions as promotions_of_training
from handlers.training.champions import Champion, active_versions, choose_champion
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure
from orchestrations.contracts.capacity import NodesReturned, ReturnNodes
from orchestrations.contracts.checked import Checked
from orchestrations.contracts.datasets import Configuration, FreezeManifest
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from orchestrations.contracts.reproductions import Reproduces, Reproduction
from orchestrations.contracts.runs import Model, RunRequest, RunStatus
from orchestrations.contracts.training import GetJob, Job, ReadResults, RegisterModel, SubmitJob
from orchestrations.errors import LandfallError, PermanentError, TransientError
from orchestrations.landing import landing, settling
from orchestrations.landing.decisions import LastRound, why_no_further_round
from orchestrations.platform.activities import describe
from orchestrations.platform.waiting import WAKE_UP
from orchestrations.rollout import approving, decisions
from orchestrations.rollout import rollout as rollout_module
from orchestrations.training import comparing as comparing_models
from orchestrations.training import concluding, retraining, run_progress
from orchestrations.training.room import Reasons, Room
from tests.simulation.world import PIPELINES_FOLDER

Mutation = Callable[[], AbstractContextManager[Any]]
PASSED = Checked(passed=True, message="")


def _body(name: str, body: Callable[[Clients, Any], Contract]) -> Mutation:
    """Another body of an activity."""
    return lambda: mock.patch.dict(activity_adapter.bodies(), {name: body})


def _keep_nodes(_clients: Clients, _request: ReturnNodes) -> NodesReturned:
    return NodesReturned(returned=True)


def _without_cancellation(clients: Clients, request: GetJob) -> Contract:
    return jobs.get_job(clients, request).model_copy(update={"cancel": None})


def _read_transiently(clients: Clients, request: ReadResults) -> Contract:
    try:
        return job_outputs.read_results(clients, request)
    except PermanentError as error:
        raise TransientError(str(error)) from error


def _describe_with_stack(error: LandfallError) -> Failure:
    text = "".join(traceback.format_exception(error))
    return describe(error).model_copy(update={"message": text})


@contextmanager
def _both(first: Mutation, second: Mutation) -> Generator[None]:
    with first(), second():
        yield


def _pass_any(run: Any, _job: Any, _results: Any) -> Generator[Any, Any, bool]:
    return (yield from concluding.pass_check(run, PASSED))


def _nothing(_clients: Clients, _request: Any) -> Done:
    return Done()


def _claim_for_everybody(_clients: Clients, request: ClaimDataset) -> DatasetClaim:
    return DatasetClaim(run=request.request.run, batch=request.batch)


def _submit_without_looking(clients: Clients, request: SubmitJob) -> Job:
    job = jobs._load(clients, request, None)  # pyright: ignore[reportPrivateUsage]
    with jobs.refused_as_job_rejected("submit"):
        submitted: Any = clients.ml.jobs.create_or_update(job)
    return jobs._describe(clients, submitted)  # pyright: ignore[reportPrivateUsage]


def _register_the_next_version(clients: Clients, request: RegisterModel) -> Model:
    name = request.pipeline.model.name
    registered = assets.all_versions(clients, name)
    version = str(len(registered) + 1)
    model = assets._register(clients, request, {}, version)  # pyright: ignore[reportPrivateUsage]
    return reference_of(model)  # pyright: ignore[reportPrivateUsage]


def _as_it_is(status: RunStatus) -> RunStatus:
    return status


def _equal(reproduces: Reproduces, *_: Any) -> Reproduction:
    return Reproduction(reproduces=reproduces, equal="bits", message="bits equal")


def _champion_of_today(clients: Clients, reproduces: Reproduces) -> Champion | None:
    found = choose_champion(active_versions(clients, reproduces.name))
    return found and Champion(version=str(found.version), path=str(found.path))


def _never_so(*_: Any) -> bool:
    return False


async def _never(*_: Any, **__: Any) -> None:
    """A trigger that takes its message and does nothing."""


def _of_the_first_release(clients: Clients) -> Any:
    values = {**clients.settings.values, "PIPELINES_FOLDER": str(PIPELINES_FOLDER)}
    settings = Settings(values)
    return SimpleNamespace(settings=settings, records=clients.records, blobs=clients.blobs)


def _resolve_as_first_deployed(clients: Clients, name: str) -> Configuration:
    return configurations.resolve_configuration(_of_the_first_release(clients), name)


def _list_as_first_deployed(clients: Clients, request: FreezeManifest) -> Contract:
    listed = freezing.freeze_manifest(_of_the_first_release(clients), request)
    deployed = configurations.resolve_configuration(clients, request.pipeline)
    return listed.model_copy(update={"configuration": deployed})


def _read_deployed_job(clients: Clients, pipeline: str, _configuration: str, file: str) -> str:
    return (clients.settings.pipelines_folder / pipeline / file).read_text("utf-8")


def _unchanged(_clients: Clients, request: RunRequest, *_: Any) -> RunRequest:
    return request.model_copy(update={"attempt": request.attempt + 1})


def _unconditional(_: Any) -> dict[str, Any]:
    return {}


async def _wake_blindly(starter: Any, run: str) -> bool:
    await starter.raise_event(run, WAKE_UP)
    return True


async def _move_no_traffic(*_: Any, **__: Any) -> Redirection:
    return Redirection("none")


def _asked_otherwise(
    change: Callable[[ClaimDataset, LastRound], tuple[ClaimDataset, LastRound]],
) -> Mutation:
    """A claim of known content is judged by something else."""

    def judge(asked: ClaimDataset, last: LastRound) -> str | None:
        return why_no_further_round(*change(asked, last))

    return lambda: mock.patch.object(dataset_claims, "why_no_further_round", judge)


def _without_reason(asked: ClaimDataset) -> ClaimDataset:
    request = asked.request.model_copy(update={"reason": None})
    return asked.model_copy(update={"request": request})


_alert = landing._Batch.alert  # pyright: ignore[reportPrivateUsage]


def _alert_for_each_content(
    batch: Any, kind: Any, *name: str, details: dict[str, Any]
) -> Generator[Any, Any, None]:
    return _alert(batch, kind, *name, details.get("dataset_version", ""), details=details)


async def _ask_in_shared_threads(
    _bulkhead: Any, _limit: float, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    return await asyncio.to_thread(functools.partial(function, *args, **named))


def _call_without_limit(
    _bulkhead: Any, _limit: float, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    return function(*args, **named)


def _by_the_clock(_state: Any, since: Any) -> tuple[bool, Any, int]:
    return False, since, 0


def _the_second(_first: Any, second: Any) -> Any:
    return second


def _round_without(step: str) -> Mutation:
    return lambda: mock.patch.object(reconciliation, step, _never)


_folders = itertools.count()


def _folder_of_its_own(pipeline: str, version: str) -> str:
    return f"landfall/{pipeline}/{version}/checkpoints-{next(_folders)}/"


def _same_id(text: str) -> str:
    return text.partition(":")[2]


def _send_without_alerts(clients: Clients, place: Any, *messages: Any) -> None:
    if place != OPS_ALERTS:
        send_in_background(clients, place, *messages)


MUTATIONS: Mapping[str, Mutation] = {
    "failed requests are not counted": lambda: mock.patch.multiple(
        observing, FAILED_STATUSES=frozenset(), SERVER_ERROR=999
    ),
    "deployments are not deleted": _body("delete_deployments", _nothing),
    "endpoints are not released": lambda: _both(
        _body("release_endpoint", _nothing), _round_without("check_endpoints")
    ),
    "rollouts are not started": _body("start_rollout", _nothing),
    "dead-lettered rollouts are sent again under the same id": lambda: mock.patch.object(
        dead_letter_queue, "fit_message_id", _same_id
    ),
    "each attempt has checkpoints of its own": lambda: mock.patch.object(
        jobs, "checkpoints_folder", _folder_of_its_own
    ),
    "a claim is everybody's": _body("claim_dataset", _claim_for_everybody),
    "a job is not adopted by its name": _body("submit_job", _submit_without_looking),
    "a model is not adopted by its dataset": _body("register_model", _register_the_next_version),
    "a job is not cancelled": _body("cancel_job", _nothing),
    "nothing is dead-lettered": _body("dead_letter", _nothing),
    "notifications are not published": _body("publish_notification", _nothing),
    "no deadline holds": lambda: mock.patch.object(
        run_progress, "check_deadline", return_value=None
    ),
    "every listing is whole": lambda: mock.patch.object(
        settling, "judge_dataset", return_value="whole"
    ),
    "long texts are not cut": lambda: mock.patch.object(run_progress, "fit_status", _as_it_is),
    "retries are not started": lambda: mock.patch.object(retries, "start_attempt", _never),
    "releases are not looked for": lambda: mock.patch.object(holding, "is_released", _never_so),
    "forgotten contents stay when files are left out": lambda: mock.patch.object(
        redrive_changes, "read_contents", return_value={}
    ),
    "runs with forgotten contents are redriven": lambda: mock.patch.object(
        redrive, "find_request_of", return_value=None
    ),
    "zones are not reconciled": _round_without("check_zones"),
    "claims are not reconciled": _round_without("check_claims"),
    "broken requests are not reconciled": lambda: mock.patch.object(runs, "close_request", _never),
    "broken runs are not reconciled": _round_without("check_runs"),
    "the outbox is not flushed": _round_without("flush_outbox"),
    "requests to forget that broke are left": _round_without("check_forgets"),
    "files of the first release are used": lambda: mock.patch.object(
        freezing, "resolve_configuration", _resolve_as_first_deployed
    ),
    "job.yml is read live": lambda: mock.patch.object(jobs, "read_job_file", _read_deployed_job),
    "changes of a redrive are dropped": lambda: mock.patch.object(
        redrive, "changed_request", _unchanged
    ),
    "a shortage ends the run": lambda: _both(
        lambda: mock.patch.object(compute_clusters, "find_shortages", return_value={}),
        lambda: mock.patch.object(compute_clusters, "is_quota_error", return_value=False),
    ),
    "copies are of what is there now": lambda: mock.patch.object(
        copies, "_as_listed", _unconditional
    ),
    "foreign job events are dropped": lambda: mock.patch.object(job_events, "keep_rejected"),
    "late job events wake runs that have ended": lambda: mock.patch.object(
        job_events, "_wake", _wake_blindly
    ),
    "nodes are given back while the job lives": lambda: mock.patch.object(
        admission, "find_job_state", return_value=None
    ),
    "nodes are not given back": lambda: _both(
        _body("return_nodes", _keep_nodes), _round_without("check_nodes")
    ),
    "queues have no limits": lambda: _both(
        lambda: mock.patch.object(Room, "free", return_value=99),
        lambda: mock.patch.object(Queues, "limit", return_value=99),
    ),
    "budgets are not looked at": lambda: mock.patch.object(
        Room, "is_affordable", return_value=True
    ),
    "why a run waits is not said": lambda: mock.patch.object(Reasons, "of", return_value=""),
    "operators are not alerted to long waits": lambda: mock.patch.object(
        admission, "send_in_background", _send_without_alerts
    ),
    "cancellations are not seen": _body("get_job", _without_cancellation),
    "verdicts are alerted as errors": lambda: mock.patch.object(
        delivery, "severity_of", return_value="error"
    ),
    "useless results are transient": _body("read_results", _read_transiently),
    "errors have their stacks": lambda: mock.patch.object(
        retraining, "describe", _describe_with_stack
    ),
    "windows are not looked at": lambda: mock.patch.object(
        rollout_module, "_closed_for", return_value=()
    ),
    "a rollout takes an outage for a verdict": lambda: mock.patch.dict(
        decisions.FAULTS, {TransientError: "verdict"}
    ),
    "a rollout does not see that its deployment is gone": lambda: mock.patch.object(
        observing, "check_deployment"
    ),
    "a rollback of a model moves no traffic": lambda: mock.patch.object(
        champion_changes, "redirect", _move_no_traffic
    ),
    "a batch is listed by older files than its run's": _body(
        "freeze_manifest", _list_as_first_deployed
    ),
    "failing landings are told to nobody": lambda: mock.patch.object(
        zone_troubles, "alert_operators"
    ),
    "failing landings are not shown": lambda: mock.patch.object(
        pipelines_of_api, "read_troubles", return_value={}
    ),
    "forgotten contents are frozen again": lambda: mock.patch.object(
        freezing, "read_contents", return_value={}
    ),
    "a freeze does not see what is forgotten meanwhile": lambda: mock.patch.object(
        freezing, "check_none_forgotten_since"
    ),
    "rules for data are not read": lambda: mock.patch.object(
        comparing, "failed_checks", return_value=()
    ),
    "little changes are enough": lambda: mock.patch.object(
        comparing, "too_little", return_value=None
    ),
    "a failed data check is a warning": lambda: mock.patch.object(
        concluding, "_conclude_check", _pass_any
    ),
    "a failed data check holds nothing": lambda: mock.patch.object(
        concluding, "_hold", return_value=()
    ),
    "a champion has always lost": lambda: mock.patch.object(
        concluding, "judge_champion", return_value=PASSED
    ),
    "slices are not looked at": lambda: mock.patch.object(
        comparing_models, "_changes", return_value=()
    ),
    "a broken comparison is no comparison": lambda: mock.patch.object(
        job_outputs, "_read_comparison", return_value=None
    ),
    "what a check has ended counts as trained on": lambda: mock.patch.object(
        comparing, "find_end_by_check", return_value=None
    ),
    "the age of waiting batches is not looked at": lambda: mock.patch.object(
        landings, "zones_past_age", return_value=()
    ),
    "each content that is held has an alert": lambda: mock.patch.object(
        landing._Batch,  # pyright: ignore[reportPrivateUsage]
        "alert",
        _alert_for_each_content,
    ),
    "drift signals for known data are duplicates": _asked_otherwise(
        lambda asked, last: (_without_reason(asked), last)
    ),
    "requests with new code are duplicates": _asked_otherwise(
        lambda asked, last: (asked, replace(last, configuration=None))
    ),
    "requests with other parameters are duplicates": _asked_otherwise(
        lambda asked, last: (asked, replace(last, parameters=asked.request.parameters))
    ),
    "the content of cancelled runs is a duplicate": _asked_otherwise(
        lambda asked, last: (asked, replace(last, state="failed"))
    ),
    "no answer to a question is refused": lambda: mock.patch.object(
        approvals_of_api, "refusal_of", return_value=None
    ),
    "files that were written after the verdict are registered": lambda: mock.patch.object(
        assets, "read_model_hash", return_value=None
    ),
    "files that were written after the registration are promoted": lambda: mock.patch.object(
        model_files, "registered_at", return_value=None
    ),
    "promotions that were only recorded are left alone": lambda: mock.patch.object(
        promotions_of_round, "exists", return_value=True
    ),
    "questions about refused promotions stay open": lambda: mock.patch.object(
        promotions_of_training, "_void_question"
    ),
    "cancellations of promotions are not kept": lambda: mock.patch.object(
        promotions_of_api, "keep_cancellation"
    ),
    "promotions that broke are left alone": lambda: mock.patch.object(
        promotions_of_round, "is_broken", return_value=False
    ),
    "rollouts ask nobody": lambda: mock.patch.object(
        approving, "questions_before", return_value=()
    ),
    "all services share threads": lambda: mock.patch.multiple(
        bulkheads.Bulkhead, ask_within=_ask_in_shared_threads, call_within=_call_without_limit
    ),
    # The task hub's times have whole seconds.
    "the end of a run is ordered by the task hub's clock": lambda: _both(
        lambda: mock.patch.object(run_records, "order_of", _by_the_clock),
        lambda: mock.patch.object(instances, "max", _the_second, create=True),
    ),
    "steps are not patient": lambda: mock.patch.object(
        ActivityRequest, "PAUSES_SECONDS", (5.0, 15.0)
    ),
    "every reproduction is equal": lambda: mock.patch.object(
        concluding, "judge_reproduction", _equal
    ),
    "reproductions are compared with the champion of today": lambda: mock.patch.object(
        jobs, "champion_of", _champion_of_today
    ),
    "events are not given back": lambda: mock.patch.object(
        reconciliation, "give_back", return_value=0
    ),
}
"""Name → what plants it while its block lasts."""

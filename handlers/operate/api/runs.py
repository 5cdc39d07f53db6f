"""GET /api/runs and GET /api/runs/{run}: the list of runs, and the details of one run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, get_args

from azure.core.exceptions import ResourceNotFoundError
from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from pydantic import AwareDatetime, Field, ValidationError

from handlers.operate.api.documents import (
    Diagnosis,
    LandingDetail,
    RunDetail,
    RunLinks,
    RunList,
    RunOrLanding,
    RunReport,
    RunSummary,
    TimelineEntry,
)
from handlers.operate.api.models import azure_ml_asked
from handlers.operate.api.remedies import remedy
from handlers.operate.api.requests import Parameters, Problem, invalid_request, next_url
from handlers.operate.api.sentences import explain_missing_run_cost
from handlers.platform import record_store, tags
from handlers.platform.bulkheads import AZURE_ML, PART_SECONDS, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, is_broken, parsed, utc
from handlers.platform.record_store import first_page
from handlers.platform.run_index import (
    UNFINISHED_STATES,
    RunPage,
    run_key,
    runs_of_dataset,
    summary,
)
from handlers.platform.run_index import list_runs as read_page
from handlers.platform.run_records import merge, read_run_record, record_of
from handlers.platform.tags import find_version
from handlers.training.admission import find_admission
from handlers.training.retries import read_redriven
from orchestrations.configuration.pipeline import Name
from orchestrations.contracts.landing import LandingResult, LandingStatus
from orchestrations.contracts.outcomes import rule_of_run, rule_of_verdict
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord
from orchestrations.platform.trace_context import TraceContext
from orchestrations.training.retraining import retraining

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

STATES: frozenset[str] = frozenset(get_args(RunState))
GROUPS: Mapping[str, tuple[RunState, ...]] = {
    "unfinished": UNFINISHED_STATES,
    "needs-a-human": tuple(
        each for each in get_args(RunState) if rule_of_run(each).pipeline == "needs-a-human"
    ),
}
"""Names for groups of states."""
REPORT_LIMIT_BYTES = 8 * 1024 * 1024
# The durable client does not escape instance ids in its URLs.
INSTANCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")


class RunFilter(Parameters):
    """Parameters of GET /api/runs."""

    pipeline: Name | None = None
    state: str | None = None
    """States or names of `GROUPS`, separated by commas."""
    created_from: Annotated[AwareDatetime | None, Field(alias="from")] = None
    created_to: Annotated[AwareDatetime | None, Field(alias="to")] = None
    data: Annotated[str | None, Field(pattern=r"^[0-9a-f]{16}$")] = None
    """Only runs on this dataset version."""
    model: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}:\d{1,9}$")] = (
        None
    )
    """`name:version`: only the run that registered this model."""
    after: Annotated[str | None, Field(pattern=r"^\d{13}_[A-Za-z0-9_-]{1,255}$")] = None
    """The key of the last run on the page before, from `next`."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50

    def states(self) -> list[RunState]:
        """The requested states; empty for all states.

        Raises:
            Problem: 400, a name is not a state or a group.
        """
        selected: list[Any] = []
        for name in filter(None, (self.state or "").split(",")):
            if name not in STATES | GROUPS.keys():
                known = ", ".join(sorted(STATES | GROUPS.keys()))
                raise invalid_request(
                    f"there is no state {name!r}; there are: {known}", where="state"
                )
            selected += GROUPS.get(name, (name,))
        return list(dict.fromkeys(selected))


async def list_runs(clients: Clients, query: RunFilter) -> RunList:
    """List the runs, newest first.

    Without `data` and `model`, the page is a range of the index of runs.
    """
    states, run = query.states(), None
    if query.model is not None:
        run = await AZURE_ML.ask_within(PART_SECONDS, _run_of_model, clients, query.model)
    page = await STORAGE.ask(_page, clients, query, states, run)
    return RunList(
        runs=[RunSummary.model_validate(each) for each in page.runs],
        next=next_url("/api/runs", query, page.following),
    )


def _page(
    clients: Clients, query: RunFilter, states: Sequence[RunState], run: str | None
) -> RunPage:
    """A page of the runs; `run` is the one that registered the model of the filter."""
    if query.data is None and query.model is None:
        return read_page(
            clients.records,
            pipeline=query.pipeline,
            states=states,
            created_from=query.created_from,
            created_to=query.created_to,
            after=query.after,
            limit=query.limit,
        )
    named = (
        {} if query.data is None else dict.fromkeys(runs_of_dataset(clients.records, query.data))
    )
    if query.model is not None:
        named = {run: None} if run is not None and (query.data is None or run in named) else {}
    records = filter(None, (read_run_record(clients, run) for run in named))
    entries = sorted(
        (
            (run_key(record), summary(record))
            for record in records
            if _matches(record, query, states) and run_key(record) > (query.after or "")
        ),
        key=lambda entry: entry[0],
    )
    return RunPage(*first_page(entries, query.limit))


def _run_of_model(clients: Clients, model: str) -> str | None:
    name, _, version = model.rpartition(":")
    with azure_ml_asked():
        registered = find_version(clients, name, version)
    return None if registered is None else (registered.tags or {}).get(tags.RUN)


def _matches(record: RunRecord, query: RunFilter, states: Sequence[RunState]) -> bool:
    status, began_at = record.status, record.started_at
    return (
        query.pipeline in (None, status.pipeline)
        and (not states or status.state in states)
        and (query.created_from is None or began_at >= query.created_from)
        and (query.created_to is None or began_at <= query.created_to)
    )


async def get_run(
    clients: Clients, starter: DurableOrchestrationClient, *, run: str
) -> RunOrLanding:
    """Return one run with its timeline, or the landing of a request.

    The state is from the instance while the task hub has it, the rest from the run's record. So a
    run is available after its instance was purged.
    """
    record = await find_run(clients, starter, run)
    if isinstance(record, LandingDetail):
        return RunOrLanding(record)
    return RunOrLanding(await STORAGE.ask(_detail, clients, record))


async def find_run(
    clients: Clients, starter: DurableOrchestrationClient, run: str
) -> RunRecord | LandingDetail:
    """The record of a run with the state of its instance, or a landing.

    Raises:
        Problem: 404, there is neither.
    """
    if INSTANCE_ID.fullmatch(run) is None:
        raise unknown_run(run)
    status = await starter.get_status(run)
    instance = status if exists(status) else None
    try:
        if instance is not None and instance.name != retraining.__name__:
            return _landing(instance)
        record = await STORAGE.ask(read_run_record, clients, run)
        if instance is not None:
            record = merge(record, record_of(instance))
    except ValidationError:
        record = None
    if record is None:
        raise unknown_run(run)
    return record


def get_report(clients: Clients, *, run: str) -> RunReport:
    """Return the HTML report of a run's data check."""
    record = read_run_record(clients, run) if INSTANCE_ID.fullmatch(run) else None
    if record is None:
        raise unknown_run(run)
    check = record.data_check
    if check is None or check.report is None:
        raise Problem(404, "no-report", f"the data of run {run} was not checked with a report")
    container, _, name = check.report.partition("/")
    try:
        download = clients.workspace_blobs.get_container_client(container).download_blob(name)
        if download.size > REPORT_LIMIT_BYTES:
            raise Problem(
                409,
                "report-too-large",
                f"{check.report} has {download.size} bytes, and {REPORT_LIMIT_BYTES} can be read "
                "here: read the blob",
            )
        return RunReport(html=download.readall().decode(errors="replace"))
    except ResourceNotFoundError:
        raise Problem(
            404, "no-report", f"{check.report} is not in the storage account of the workspace"
        ) from None


def _landing(instance: DurableOrchestrationStatus) -> LandingDetail:
    shown, output = parsed(instance.custom_status), parsed(instance.output)
    status = LandingStatus.from_dict(shown) if shown else None
    completed = instance.runtime_status == OrchestrationRuntimeStatus.Completed
    result = LandingResult.from_dict(output) if completed and output else None
    phase = status.phase if status else "settling"
    return LandingDetail(
        id=str(instance.instance_id),
        pipeline=status.pipeline if status else None,
        phase="ended" if completed else "failed" if is_broken(instance) else phase,
        outcome=result.outcome if result else None,
        run=result.run if result else status.run if status else None,
        dataset_version=result.dataset_version if result else None,
        reason=result.reason if result else None,
        created_at=utc(instance.created_time),
        updated_at=utc(instance.last_updated_time),
    )


def _detail(clients: Clients, record: RunRecord) -> RunDetail:
    status, diagnosis, judged = record.status, record.diagnosis, record.judged
    context = TraceContext.parse(record.traceparent)
    results: Any = None
    if status.results is not None:
        results = record_store.read(clients.records, status.results)
    stem = status.id.rpartition("-")[0]
    redriven = read_redriven(clients, status.id)
    previous = f"{stem}-{status.attempt - 1}"
    came_from = read_redriven(clients, previous)
    error_type = None if status.error is None else status.error.type
    no_cost, cost = None, record.known_cost
    if cost is None:
        no_cost = explain_missing_run_cost(
            status.id, find_admission(clients, now=datetime.now(UTC))
        )
    return RunDetail.model_validate(
        summary(record)
        | status.to_dict()
        | {
            "updated_at": status.since,
            "timeline": timeline(record),
            "job_url": record.job_url,
            "blobs": record.blobs,
            "bytes": record.bytes,
            "champion": record.champion,
            "data_check": record.data_check,
            "champion_check": record.champion_check,
            "gate": judged and judged.to_dict() | vars(rule_of_verdict(judged.verdict)),
            "reproduction": record.reproduction,
            "cost": cost,
            "no_cost": no_cost,
            "all_metrics": (results or {}).get("metrics", {}),
            "diagnosis": diagnosis and Diagnosis.model_validate(diagnosis),
            "log": [] if diagnosis is None else list(diagnosis.log),
            "remedy": remedy(error_type),
            "links": RunLinks(
                previous_attempt=_existing(clients, previous),
                next_attempt=_existing(clients, f"{stem}-{status.attempt + 1}"),
                redriven_from=previous
                if came_from is not None and came_from.following == status.id
                else None,
                redriven_as=None if redriven is None else redriven.following,
                superseded_by=record.superseded_by,
            ),
            "parameters": record.parameters or {},
            "trace_id": None if context is None else context.trace_id,
        }
    )


def timeline(record: RunRecord) -> list[TimelineEntry]:
    """The states of a run, each with its start and end. Pure."""
    ends: list[datetime | None] = [later.began_at for _, later in pairwise(record.steps)]
    return [
        TimelineEntry(state=step.state, stage=step.stage, began_at=step.began_at, ended_at=end)
        for step, end in zip(record.steps, [*ends, None], strict=True)
    ]


def _existing(clients: Clients, run: str) -> str | None:
    return None if read_run_record(clients, run) is None else run


def unknown_run(run: str) -> Problem:
    """The problem for an unknown run id."""
    return Problem(404, "unknown-run", f"there is no run {run!r}; see GET /api/runs")

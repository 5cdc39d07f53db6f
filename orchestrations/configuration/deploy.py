"""The section `deploy` of `pipeline.yml`: the endpoint, the rollout to it, its windows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from orchestrations.configuration.section import ClusterName, Prefix, Section

DataUri = Annotated[str, StringConstraints(pattern=r"^(azureml://datastores/|https://).")]
LONGEST_BAKE_MINUTES = 7 * 24 * 60
SEARCHED = timedelta(days=400)
_MINUTE = timedelta(minutes=1)
_CRON_FIELDS = 5
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def _is_cron(expression: str) -> str:
    """A cron expression; five fields, as crontab(5) has them.

    Raises:
        ValueError: it is none.
    """
    fields = len(expression.split())
    if fields != _CRON_FIELDS:
        raise ValueError(f"a cron expression has {_CRON_FIELDS} fields, and this has {fields}")
    try:
        CronSim(expression, _ANY_DAY)
    except CronSimError as error:
        raise ValueError(f"it is no cron expression: {error}") from None
    return expression


def _is_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "it is not in the IANA time zone database; write it as Europe/Berlin"
        ) from None
    return name


class ClosedDays(Section):
    """Days on which no traffic moves, in the time zone of the windows."""

    first: date
    """The first of the days."""
    last: date
    """The last of them; the same for one day."""

    @model_validator(mode="after")
    def _check_order(self) -> ClosedDays:
        if self.last < self.first:
            raise ValueError("last is before first")
        return self


class Windows(Section):
    """When traffic may move to a new model. Traffic may move back at any time."""

    open: list[Annotated[str, AfterValidator(_is_cron)]] = Field(min_length=1, max_length=20)
    """Cron expressions: traffic may move in each minute that one of them matches, such as
    `* 9-15 * * MON-THU` from 9:00 to 15:59."""
    time_zone: Annotated[str, AfterValidator(_is_time_zone)] = "UTC"
    """Of the expressions and the closed days, by its name in the IANA database."""
    closed: list[ClosedDays] = Field(default=[], max_length=100)
    """Exceptions: no traffic moves on these days."""

    def next_opening(self, now: datetime) -> datetime | None:
        """The first minute, in UTC, in which traffic may move; `now` if that is its minute.

        None: there is none within 400 days. The answer depends on the machine's time zone
        database: orchestrators leave it to an activity.
        """
        openings = (self._next(expression, now) for expression in self.open)
        found = min((each for each in openings if each is not None), default=None)
        return None if found is None else max(found, now)

    def _next(self, expression: str, now: datetime) -> datetime | None:
        zone = ZoneInfo(self.time_zone)
        this_minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        after = (this_minute - _MINUTE).astimezone(zone)
        while (candidate := next(CronSim(expression, after), None)) is not None:
            if candidate - now > SEARCHED:
                return None
            closed = [it.last for it in self.closed if it.first <= candidate.date() <= it.last]
            if not closed:
                return candidate.astimezone(UTC)
            following = max(closed) + timedelta(days=1)
            midnight = datetime(following.year, following.month, following.day, tzinfo=zone)
            after = (midnight.astimezone(UTC) - _MINUTE).astimezone(zone)
        return None


class RolloutStep(Section):
    """One step of a rollout: the new deployment's share of requests, and how long it is watched.

    A step has either `mirror` or `traffic`: first mirror steps, then traffic that grows to 100.
    """

    mirror: int | None = Field(default=None, ge=1, le=50)
    """Percent of live requests that are copied to the new deployment; its answers are dropped."""
    traffic: int | None = Field(default=None, ge=1, le=100)
    """Percent of the live requests that the new deployment answers."""
    bake_minutes: float = Field(ge=0, le=LONGEST_BAKE_MINUTES)
    """How long the step is watched."""

    @model_validator(mode="after")
    def _one_share(self) -> RolloutStep:
        if (self.mirror is None) == (self.traffic is None):
            raise ValueError("a step has either mirror or traffic")
        return self


class AnswerGuard(Section):
    """A metric of the new model's answers, with its limits.

    The answers are those that the endpoint's data collector stores for its deployments.
    """

    metric: Literal["mean", "share", "agreement", "accuracy"]
    """`mean` of a number; `share` of the answers with one value; `agreement` with the answers of
    the current deployments to the same requests, in mirror steps only; `accuracy`: the share of
    answers that equal their labels."""
    field: str
    """The column of the answers that is measured."""
    collection: str = Field(default="model_outputs", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """The collection of the data collector."""
    value: str | int | float | bool | None = None
    """For `share`: the value that is counted."""
    id: str | None = None
    """For `agreement` and `accuracy`: the column with the request's id."""
    labels: Prefix | None = None
    """For `accuracy`: the folder in the source's container where labels land, as JSON Lines files
    with the columns that `id` and `field` name."""
    min: float | None = None
    """The smallest allowed value. A guard has at least one of `min`, `max` and `max_change`."""
    max: float | None = None
    """The largest allowed value."""
    max_change: float | None = Field(default=None, ge=0)
    """For `mean` and `share`: the largest difference from the current deployments, same period."""

    @property
    def label(self) -> str:
        """The metric in words."""
        words = {"mean": "mean of", "share": "share of", "agreement": "agreement on"}
        of_value = f"={self.value}" if self.metric == "share" else ""
        return f"{words.get(self.metric, 'accuracy of')} {self.field}{of_value}"

    @property
    def joins(self) -> bool:
        """Whether answers are compared one by one, joined by request id."""
        return self.metric in {"agreement", "accuracy"}

    @property
    def is_compared(self) -> bool:
        """Whether the answers of the current deployments are needed."""
        return self.metric == "agreement" or self.max_change is not None

    @model_validator(mode="after")
    def _has_what_its_metric_needs(self) -> AnswerGuard:
        if (self.value is not None) != (self.metric == "share"):
            raise ValueError("a share, and nothing else, has a value")
        if (self.id is not None) != self.joins:
            raise ValueError("agreement and accuracy, and nothing else, have an id")
        if (self.labels is not None) != (self.metric == "accuracy"):
            raise ValueError("accuracy, and nothing else, has labels")
        if self.max_change is not None and self.joins:
            raise ValueError("max_change is for mean and share")
        if self.min is None and self.max is None and self.max_change is None:
            raise ValueError("a guard of answers has min, max or max_change")
        return self


class Guards(Section):
    """When a new deployment is rolled back."""

    error_rate: float = Field(default=0.01, ge=0, le=1)
    """The largest share of its requests that may fail with 408, 424, 429 or 5xx, and of its answers
    that may lack the field of a guard."""
    latency_p95_ms: float | None = Field(default=None, gt=0)
    """The limit for the 95th percentile of its latency in any minute."""
    minimum_requests: int = Field(default=20, ge=0)
    """With fewer requests, or collected answers, in a step nothing is judged, and the step
    continues. With 0, a step passes without a request."""
    # Omitted if empty, so that the histories of other pipelines do not change.
    answers: list[AnswerGuard] = Field(default=[], max_length=10, exclude_if=lambda it: not it)
    """Metrics of the model's answers, each with limits."""


EndpointKind = Literal["online", "batch"]
# https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
EndpointName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{1,30}[a-z0-9]$")]
InstanceCount = Annotated[int, Field(ge=1, le=50)]
Hours = Annotated[float, Field(ge=0, le=30 * 24)]
# Omitted if not set, so that the histories of other pipelines do not change.
AnyWindows = Annotated[Windows | None, Field(exclude_if=lambda it: it is None)]


class OnlineDeploy(Section):
    """A managed online endpoint for registered models, and the rollout to it."""

    endpoint: EndpointName
    """The endpoint; it is created, with key authentication, if it does not exist."""
    kind: Literal["online"] = "online"
    """The kind of endpoint."""
    instance_type: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,64}$")]
    """The VM size of a deployment."""
    instance_count: InstanceCount = 1
    """The number of VMs of a deployment."""
    deployment: str = "deployment.yml"
    """Azure ML CLI v2 managed online deployment, relative to the pipeline's folder: the scoring
    code and its environment. Landfall sets name, endpoint, model and instances."""
    smoke_request: str | None = None
    """File with a request that a new deployment must answer, relative to the pipeline's folder."""
    steps: list[RolloutStep] = Field(min_length=1, max_length=20)
    guards: Guards = Guards()
    windows: AnyWindows = None
    """When traffic may move to a new model. Without it, at any time."""
    keep_previous_hours: Hours = 24
    """How long the previous deployment is kept after the new one has all traffic."""

    @model_validator(mode="after")
    def _ends_with_all_traffic(self) -> OnlineDeploy:
        shares = [step.traffic or 0 for step in self.steps]
        if shares != sorted(shares) or shares[-1] != 100:  # noqa: PLR2004 - percent
            raise ValueError(
                "steps must be mirror steps first, then growing traffic, and end with traffic: 100"
            )
        return self

    @model_validator(mode="after")
    def _judges_every_guard(self) -> OnlineDeploy:
        for guard in self.guards.answers:
            if guard.metric == "agreement" and self.steps[0].mirror is None:
                raise ValueError(f"guard {guard.label!r} is judged in mirror steps: there is none")
            if guard.max_change is not None and len(self.steps) == 1:
                raise ValueError(
                    f"max_change of guard {guard.label!r} is judged in steps where the current "
                    "deployments answer, too: there is none"
                )
        return self


class BatchGuards(Section):
    """When a new batch deployment is rolled back: after its smoke job, or while it is watched."""

    failed_files: int = Field(default=0, ge=0)
    """The largest number of the smoke job's files that may fail."""
    smoke_minutes: float = Field(default=60, gt=0, le=24 * 60)
    """The time limit of the smoke job, its wait for nodes included."""
    # Omitted if not set, so that the histories of other pipelines do not change.
    failed_jobs: float = Field(default=0.0, ge=0, le=1, exclude_if=lambda it: it == 0)
    """The largest share of failed jobs while it is watched; cancelled jobs do not count."""
    minimum_jobs: int = Field(default=1, ge=0, exclude_if=lambda it: it == 1)
    """With fewer ended jobs nothing is judged, and the deployment is watched further."""


class BatchDeploy(Section):
    """A batch endpoint; a registered model becomes its default deployment."""

    endpoint: EndpointName
    """The endpoint; it is created if it does not exist."""
    kind: Literal["batch"]
    """The kind of endpoint."""
    compute: ClusterName
    """The cluster on which the endpoint's jobs run; it must exist."""
    instance_count: InstanceCount = 1
    """The number of nodes of a job."""
    deployment: str = "deployment.yml"
    """Azure ML CLI v2 batch deployment of a model, relative to the pipeline's folder: the scoring
    code, its environment and settings. Landfall sets name, endpoint, model, compute and nodes."""
    smoke_data: DataUri | None = None
    """A folder (it ends with a slash) or a file that a new deployment must score. Without it, the
    first file of the dataset that the model was trained on."""
    guards: BatchGuards = BatchGuards()
    windows: AnyWindows = None
    """When a new deployment may become the default. Without it, at any time."""
    bake_minutes: float = Field(
        default=0, ge=0, le=LONGEST_BAKE_MINUTES, exclude_if=lambda it: it == 0
    )
    """How long its jobs are watched after it became the default. 0: it is live at once."""
    keep_previous_hours: Hours = 24
    """How long the previous deployment is kept after the new one became the default."""

    @property
    def steps(self) -> list[RolloutStep]:
        """The one step: the new deployment becomes the default."""
        return [RolloutStep(traffic=100, bake_minutes=self.bake_minutes)]


def _kind_of(deploy: Any) -> str:
    """The kind in a file's mapping, or of a validated model."""
    if isinstance(deploy, dict):
        return cast("dict[str, Any]", deploy).get("kind", "online")
    return getattr(deploy, "kind", "online")


Deploy = Annotated[
    Annotated[OnlineDeploy, Tag("online")] | Annotated[BatchDeploy, Tag("batch")],
    Discriminator(
        _kind_of,
        custom_error_type="deploy_kind",
        custom_error_message="kind must be 'online' or 'batch'",
    ),
]
"""The endpoint of registered models, and the rollout to it."""

"""A story: the actions of people and systems, and the faults, in one simulated week.

It is all that a seed draws beside latencies, as a list of small items, so that a story that fails
can be told with the fewest of them (`shrinking`). Times are seconds since the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

HOUR = 3_600.0
DAY = 24 * HOUR

Service = Literal[
    "blobs",
    "service_bus",
    "event_grid",
    "azure_ml",
    "webhooks",
    "task_hub",
    "metrics",
    "scoring",
]
SERVICES: tuple[Service, ...] = get_args(Service)
Zone = Literal["quiet", "marked", "daily", "copied", "queued", "online", "batch"]
"""The pipeline of a story; in `queued`, another pipeline competes for its nodes; `online` and
`batch` deploy their models to an endpoint of that kind."""


class Item(BaseModel):
    """Something that happens."""

    model_config = ConfigDict(frozen=True)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {_text(name, value)}" for name, value in self)
        return f"{type(self).__name__}: {told}"


class Act(Item):
    """An action of a person or a system."""

    at: float


class NthItem(Item):
    """A fault of the n-th event, execution or job."""

    number: int


AnyNthItem = TypeVar("AnyNthItem", bound=NthItem)


class Upload(Act):
    """Write a blob, and overwrite an existing one."""

    path: str
    content: str


class RivalUpload(Act):
    """Write a blob into the zone of the other pipeline, if there is one."""

    path: str
    content: str


class Delete(Act):
    """Delete a blob, if it exists."""

    path: str


class Mark(Act):
    """Write the marker of a batch."""

    path: str = "_SUCCESS"


class RequestRun(Act):
    """Start a run over the HTTP API, as another system does."""

    key: str
    seed: int = 0
    """Given as a parameter where the pipeline has it."""


class CancelRun(Act):
    """Cancel the newest run over the HTTP API, if it has not ended."""


class Terminate(Act):
    """Terminate an orchestrator's newest instance over the durable API, if it has not ended."""

    orchestrator: Literal["retraining", "landing", "rollout", "promotion"]


class TerminateAfter(Item):
    """Terminate the instance that called an activity, after the activity's n-th execution.

    The orchestration then ends between two steps that are milliseconds apart.
    """

    activity: str
    number: int


class OutageAfter(Item):
    """A service is unavailable for a while, from the end of an activity's n-th execution on."""

    activity: str
    number: int
    service: Service
    seconds: float
    hangs: bool = False


class Redrive(Act):
    """Redrive all dead letters."""


RedriveChange = Literal["compute", "limits", "attempts", "job", "without a file"]


class RedriveChanged(Act):
    """Redrive the first dead-lettered run, with a change."""

    change: RedriveChange


class Deploy(Act):
    """The app is deployed with another gate in `pipeline.yml` and another command in `job.yml`.

    `changes` are further changes of `pipeline.yml`, by the names that `features` give them; those
    of the release before it are undone.
    """

    floor: float
    changes: tuple[str, ...] = ()


class Shortage(Act):
    """For a while, there is no quota for these clusters; the existing ones are deleted."""

    seconds: float
    clusters: tuple[str, ...]


class ChangeCluster(Act):
    """Change a cluster, if it exists; it refuses other changes for `seconds`."""

    seconds: float
    cluster: str


class Release(Act):
    """Release the last held batch, if there is one."""


class ReleaseAfter(Item):
    """Release the last held batch soon after the n-th batch is held."""

    number: int
    delay: float
    activity: Literal["hold_batch"] = "hold_batch"


class RemovePipeline(Act):
    """The app is deployed without the pipeline, and with it again `seconds` later."""

    seconds: float


class Refuse(Act):
    """For a while, storage refuses every call about the container where data lands.

    403: a role was taken away; 404: the container is gone.
    """

    seconds: float
    status: Literal[403, 404]


class LoseEvent(NthItem):
    """The n-th blob event is never delivered."""


class RepeatEvent(NthItem):
    """The n-th blob event is delivered a second time, `delay` seconds later."""

    delay: float


class DelayEvent(NthItem):
    """The n-th blob event is delivered `delay` seconds late, after others."""

    delay: float


class LoseJobEvent(NthItem):
    """The n-th event of Azure ML is never delivered."""


class DelayJobEvent(NthItem):
    """The n-th event of Azure ML is delivered `delay` seconds late; its run may have ended."""

    delay: float


StrayKind = Literal["unknown run", "other workspace", "unknown type", "not JSON", "wrong state"]


class StrayJobEvent(Act):
    """An event on the queue of Azure ML that is not what it should be.

    `wrong state`: it says of the newest job that it has completed, whatever it does.
    """

    kind: StrayKind


CallEnd = Literal["unavailable", "throttled", "answer lost", "sent twice"]


class CallFault(Item):
    """The n-th call of a service goes wrong, after all retries of its SDK.

    `answer lost`: it took effect, and raises. `sent twice`: the SDK's own retry after a lost
    answer, so that the answer is that to the second request.
    """

    service: Service
    number: int
    end: CallEnd


class Outage(Item):
    """A service answers nothing for a while; `hangs`: it takes connections and says nothing.

    `endless`: a call that has no limit of its own ends only with the outage.
    """

    service: Service
    at: float
    seconds: float
    hangs: bool = False
    endless: bool = False


class Crash(Item):
    """The host dies at its n-th call of any service, and comes back after a while.

    `after`: when the call has taken effect, and before its answer.
    """

    call: int
    after: bool
    down: float


class SecondCopy(NthItem):
    """The n-th execution of an activity starts a second time while the first one runs."""

    delay: float


class EveryActivityTwice(Item):
    """Repeat each successful execution; the second result counts.

    The same as `localazure up --run-activities-twice`.
    """


JobEnd = Literal[
    "completes",
    "is worse",
    "breaks a slice",
    "leaves a wrong comparison",
    "leaves no metrics",
    "leaves a null metric",
    "fails",
    "rejects a file",
    "rejects all files",
    "loses a node",
    "is preempted",
    "never starts",
    "never ends",
]


class JobFate(NthItem):
    """How the n-th job ends; a job without an item completes."""

    end: JobEnd


class NoRequests(Act):
    """Nobody calls the endpoint for a while."""

    seconds: float


ModelEnd = Literal[
    "serves",
    "fails requests",
    "is slow",
    "fails later",
    "fails its smoke request",
    "cannot be provisioned",
    "is never provisioned",
]
"""What becomes of a model behind an endpoint."""


class ModelFate(NthItem):
    """How the model's n-th version does behind its endpoint; without an item it serves."""

    end: ModelEnd


QuestionEnd = Literal[
    "is approved",
    "is rejected",
    "is approved and rejected",
    "is answered for another hash",
    "is answered by another person",
    "is answered too late",
    "is not answered",
]


class QuestionFate(NthItem):
    """What people do about the n-th question; one without an item is approved."""

    end: QuestionEnd
    delay: float = 600.0
    """How long they think; too late: since the deadline."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """All of it."""

    seed: int
    zone: Zone
    reconcile_every: float
    items: tuple[Item, ...]

    def nth(self, kind: type[AnyNthItem]) -> dict[int, AnyNthItem]:
        """The items of a kind by their numbers."""
        return {item.number: item for item in self.items if isinstance(item, kind)}

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: zone {self.zone}, reconciled every {_time(self.reconcile_every)}"
        ]
        return "\n  ".join([*lines, *(str(item) for item in self.items)])


def _text(name: str, value: object) -> str:
    if name in ("at", "delay", "seconds", "down"):
        return _time(float(str(value)))
    return str(value)


def _time(seconds: float) -> str:
    days, rest = divmod(round(seconds, 1), DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, 60)
    clock = f"{hours:02.0f}:{minutes:02.0f}:{rest:04.1f}"
    return f"{days:.0f}d {clock}" if days else clock

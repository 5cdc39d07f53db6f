"""A story: what people, other systems and bad luck do to the app in one simulated week.

It is all that a seed draws beside latencies, as a list of small items, so that a story that fails
can be told with the fewest of them (`shrinking`). Times are seconds since the start.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

HOUR = 3_600.0
DAY = 24 * HOUR

Service = Literal["blobs", "service_bus", "event_grid", "azure_ml", "webhooks", "task_hub"]
SERVICES: tuple[Service, ...] = get_args(Service)
Zone = Literal["quiet", "marked", "daily", "copied", "queued"]
"""Which pipeline a story is about; `queued` has another one beside it that wants its nodes."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that happens."""

    def __str__(self) -> str:
        told = ", ".join(
            f"{field.name} {_text(field.name, getattr(self, field.name))}" for field in fields(self)
        )
        return f"{type(self).__name__}: {told}"


@dataclass(frozen=True, kw_only=True)
class Upload(Item):
    """Somebody writes a blob, new or over what is there."""

    at: float
    path: str
    content: str


@dataclass(frozen=True, kw_only=True)
class RivalUpload(Item):
    """Somebody writes a blob into the zone of the other pipeline, if there is one."""

    at: float
    path: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Delete(Item):
    """Somebody deletes a blob, if it is there."""

    at: float
    path: str


@dataclass(frozen=True, kw_only=True)
class Mark(Item):
    """Somebody writes the marker of a batch."""

    at: float
    path: str = "_SUCCESS"


@dataclass(frozen=True, kw_only=True)
class RequestRun(Item):
    """Another system asks for a run over the HTTP API."""

    at: float
    key: str


@dataclass(frozen=True, kw_only=True)
class CancelRun(Item):
    """Somebody cancels the newest run over the HTTP API, if it goes on."""

    at: float


@dataclass(frozen=True, kw_only=True)
class Terminate(Item):
    """Somebody terminates the newest run or landing over the durable API, if it goes on."""

    at: float
    orchestrator: Literal["retraining", "landing"]


@dataclass(frozen=True, kw_only=True)
class TerminateAfter(Item):
    """Somebody terminates the instance whose activity this was, when it has run `number` times.

    So an orchestration ends between two steps that are milliseconds apart.
    """

    activity: str
    number: int


@dataclass(frozen=True, kw_only=True)
class OutageAfter(Item):
    """A service answers nothing for a while, from the end of an activity's n-th execution on."""

    activity: str
    number: int
    service: Service
    seconds: float
    hangs: bool = False


@dataclass(frozen=True, kw_only=True)
class Redrive(Item):
    """Somebody redrives all that is dead-lettered."""

    at: float


Change = Literal["compute", "limits", "attempts", "job", "without a file"]


@dataclass(frozen=True, kw_only=True)
class RedriveChanged(Item):
    """Somebody redrives the first of the dead-lettered runs, with a change."""

    at: float
    change: Change


@dataclass(frozen=True, kw_only=True)
class Deploy(Item):
    """The app is deployed with another gate in `pipeline.yml` and another command in `job.yml`."""

    at: float
    floor: float


@dataclass(frozen=True, kw_only=True)
class Shortage(Item):
    """For a while there is no quota for these clusters; those that are there are taken away."""

    at: float
    seconds: float
    clusters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeCluster(Item):
    """Somebody changes a cluster, if it is there; for so long it takes no other change."""

    at: float
    seconds: float
    cluster: str


@dataclass(frozen=True, kw_only=True)
class Release(Item):
    """Somebody releases the batch that was held last, if there is one."""

    at: float


@dataclass(frozen=True, kw_only=True)
class LoseEvent(Item):
    """The n-th blob event never comes."""

    number: int


@dataclass(frozen=True, kw_only=True)
class RepeatEvent(Item):
    """The n-th blob event comes a second time, so much later."""

    number: int
    delay: float


@dataclass(frozen=True, kw_only=True)
class DelayEvent(Item):
    """The n-th blob event comes so much later, behind others."""

    number: int
    delay: float


@dataclass(frozen=True, kw_only=True)
class LoseJobEvent(Item):
    """The n-th event of Azure ML never comes."""

    number: int


@dataclass(frozen=True, kw_only=True)
class DelayJobEvent(Item):
    """The n-th event of Azure ML comes so much later, when its run may have ended."""

    number: int
    delay: float


StrayKind = Literal["unknown run", "other workspace", "unknown type", "not JSON", "wrong state"]


@dataclass(frozen=True, kw_only=True)
class StrayJobEvent(Item):
    """An event on the queue of Azure ML that is not what it should be.

    `wrong state`: it says of the newest job that it has completed, whatever it does.
    """

    at: float
    kind: StrayKind


CallEnd = Literal["unavailable", "throttled", "answer lost", "sent twice"]


@dataclass(frozen=True, kw_only=True)
class CallFault(Item):
    """The n-th call of a service goes wrong, after all retries of its SDK.

    `answer lost`: it took effect, and raises. `sent twice`: the SDK's own retry after a lost
    answer, so that the answer is that to the second request.
    """

    service: Service
    number: int
    end: CallEnd


@dataclass(frozen=True, kw_only=True)
class Outage(Item):
    """A service answers nothing for a while; `hangs`: it takes connections and says nothing."""

    service: Service
    at: float
    seconds: float
    hangs: bool = False


@dataclass(frozen=True, kw_only=True)
class Crash(Item):
    """The host dies at its n-th call of any service, and comes back after a while.

    `after`: when the call has taken effect, and before its answer.
    """

    call: int
    after: bool
    down: float


@dataclass(frozen=True, kw_only=True)
class SecondCopy(Item):
    """The n-th execution of an activity is begun a second time while the first one runs."""

    number: int
    delay: float


@dataclass(frozen=True, kw_only=True)
class EveryActivityTwice(Item):
    """Every execution of an activity that returns is repeated, and the second result counts.

    As `localazure up --run-activities-twice` does it.
    """


JobEnd = Literal[
    "completes",
    "is worse",
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


@dataclass(frozen=True, kw_only=True)
class JobFate(Item):
    """The fate of the n-th job; those without an item complete."""

    number: int
    end: JobEnd


@dataclass(frozen=True, kw_only=True)
class Story:
    """All of it."""

    seed: int
    zone: Zone
    reconcile_every: float
    items: tuple[Item, ...]

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

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

Service = Literal["blobs", "service_bus", "event_grid", "azure_ml", "webhooks", "task_hub"]
SERVICES: tuple[Service, ...] = get_args(Service)
Zone = Literal["quiet", "marked", "daily", "copied", "queued"]
"""The pipeline of a story; in `queued`, another pipeline competes for its nodes."""


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
    """Something that happens to the n-th of many."""

    number: int


AnyNthItem = TypeVar("AnyNthItem", bound=NthItem)


class Upload(Act):
    """Somebody writes a blob, new or over what is there."""

    path: str
    content: str


class RivalUpload(Act):
    """Somebody writes a blob into the zone of the other pipeline, if there is one."""

    path: str
    content: str


class Delete(Act):
    """Somebody deletes a blob, if it is there."""

    path: str


class Mark(Act):
    """Somebody writes the marker of a batch."""

    path: str = "_SUCCESS"


class RequestRun(Act):
    """Another system asks for a run over the HTTP API."""

    key: str


class CancelRun(Act):
    """Cancel the newest run over the HTTP API, if it has not ended."""


class Terminate(Act):
    """Terminate the newest run or landing over the durable API, if it has not ended."""

    orchestrator: Literal["retraining", "landing"]


class TerminateAfter(Item):
    """Somebody terminates the instance whose activity this was, when it has run `number` times.

    So an orchestration ends between two steps that are milliseconds apart.
    """

    activity: str
    number: int


class OutageAfter(Item):
    """A service answers nothing for a while, from the end of an activity's n-th execution on."""

    activity: str
    number: int
    service: Service
    seconds: float
    hangs: bool = False


class Redrive(Act):
    """Somebody redrives all that is dead-lettered."""


Change = Literal["compute", "limits", "attempts", "job", "without a file"]


class RedriveChanged(Act):
    """Somebody redrives the first of the dead-lettered runs, with a change."""

    change: Change


class Deploy(Act):
    """The app is deployed with another gate in `pipeline.yml` and another command in `job.yml`."""

    floor: float


class Shortage(Act):
    """For a while there is no quota for these clusters; those that are there are taken away."""

    seconds: float
    clusters: tuple[str, ...]


class ChangeCluster(Act):
    """Somebody changes a cluster, if it is there; for so long it takes no other change."""

    seconds: float
    cluster: str


class Release(Act):
    """Somebody releases the batch that was held last, if there is one."""


class LoseEvent(NthItem):
    """The n-th blob event never comes."""


class RepeatEvent(NthItem):
    """The n-th blob event comes a second time, so much later."""

    delay: float


class DelayEvent(NthItem):
    """The n-th blob event comes so much later, behind others."""

    delay: float


class LoseJobEvent(NthItem):
    """The n-th event of Azure ML never comes."""


class DelayJobEvent(NthItem):
    """The n-th event of Azure ML comes so much later, when its run may have ended."""

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
    """A service answers nothing for a while; `hangs`: it takes connections and says nothing."""

    service: Service
    at: float
    seconds: float
    hangs: bool = False


class Crash(Item):
    """The host dies at its n-th call of any service, and comes back after a while.

    `after`: when the call has taken effect, and before its answer.
    """

    call: int
    after: bool
    down: float


class SecondCopy(NthItem):
    """The n-th execution of an activity is begun a second time while the first one runs."""

    delay: float


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


class JobFate(NthItem):
    """The fate of the n-th job; those without an item complete."""

    end: JobEnd


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

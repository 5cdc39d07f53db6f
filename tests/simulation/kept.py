"""Short stories that found defects, all of them mended."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.rollout_items import (
    DeleteEndpoint,
    ModelFate,
    RollBackModel,
)
from tests.simulation.story import (
    DAY,
    HOUR,
    CallFault,
    CancelRun,
    Crash,
    Delete,
    Deploy,
    DriftSignal,
    Forget,
    Item,
    JobFate,
    Mark,
    OpenPage,
    Outage,
    OutageAfter,
    QuestionFate,
    Redrive,
    RedriveChanged,
    Refuse,
    ReleaseAfter,
    RemovePipeline,
    RequestRun,
    SecondCopy,
    Story,
    Terminate,
    TerminateAfter,
    Upload,
    Zone,
)

UPLOAD = Upload(at=HOUR, path="1.png", content="one")


LATER = 8 * HOUR
"""When another upload leads to a second model."""
TWO_MODELS = (UPLOAD, Upload(at=LATER, path="2.png", content="two"))


def quiet_week(*items: Item, seed: int = 1) -> Story:
    """A week with few faults."""
    return week("quiet", *items, seed=seed)


def week(zone: Zone, *items: Item, seed: int = 1) -> Story:
    """A week of a pipeline."""
    return Story(seed=seed, zone=zone, reconcile_every=4 * HOUR, items=items)


KEPT: Mapping[str, Story] = {
    "a redrive of a run that was terminated while people were asked": quiet_week(
        Deploy(at=100.0, floor=0.8, changes=("approvals",)),
        UPLOAD,
        QuestionFate(number=1, end="is not answered"),
        Terminate(at=2 * HOUR, orchestrator="retraining"),
        Redrive(at=LATER),
    ),
    "people are asked about a second attempt": quiet_week(
        Deploy(at=100.0, floor=0.8, changes=("approvals",)),
        UPLOAD,
        JobFate(number=1, end="fails"),
        QuestionFate(number=1, end="is not answered"),
    ),
    "the task hub is away when a run begins to wait for people": quiet_week(
        Deploy(at=100.0, floor=0.8, changes=("approvals",)),
        UPLOAD,
        OutageAfter(activity="ask_approval", number=1, service="task_hub", seconds=8 * HOUR),
        QuestionFate(number=1, end="is not answered"),
    ),
    "a cancellation while Service Bus hangs": quiet_week(
        UPLOAD,
        JobFate(number=1, end="never ends"),
        Outage(service="service_bus", at=HOUR + 200, seconds=8 * HOUR, hangs=True),
        CancelRun(at=2 * HOUR),
    ),
    "a deadline while Service Bus hangs": quiet_week(
        UPLOAD,
        JobFate(number=1, end="never ends"),
        Outage(service="service_bus", at=HOUR + 200, seconds=8 * HOUR, hangs=True),
    ),
    "events that Service Bus gave up on": quiet_week(
        Outage(service="blobs", at=HOUR, seconds=2 * HOUR),
        *(Upload(at=HOUR + n, path=f"{n}.png", content=f"{n}") for n in range(3)),
        seed=34,
    ),
    "a host that is down for days after a claim": quiet_week(
        UPLOAD,
        TerminateAfter(activity="claim_dataset", number=1),
        Crash(call=28, after=True, down=48 * HOUR),
        seed=1546,
    ),
    "changes for a run whose next attempt had begun": quiet_week(
        UPLOAD,
        JobFate(number=1, end="fails"),
        TerminateAfter(activity="schedule_retry", number=1),
        RedriveChanged(at=9 * HOUR, change="compute"),
        seed=209,
    ),
    "a rollout that Service Bus gave up on": week(
        "online",
        UPLOAD,
        OutageAfter(activity="start_rollout", number=1, service="blobs", seconds=600),
    ),
    "a run that broke before its first record": quiet_week(
        UPLOAD,
        OutageAfter(activity="claim_dataset", number=1, service="blobs", seconds=2 * HOUR),
        seed=1126,
    ),
    "storage refuses the zone for days": quiet_week(
        UPLOAD, Refuse(at=HOUR + 100, seconds=30 * HOUR, status=403)
    ),
    "the zone's container is gone for days": quiet_week(
        UPLOAD, Refuse(at=HOUR + 100, seconds=30 * HOUR, status=404)
    ),
    "a pipeline is removed while its batch settles": quiet_week(
        UPLOAD, RemovePipeline(at=HOUR + 100, seconds=30 * HOUR)
    ),
    "a drift signal without new data": quiet_week(
        UPLOAD, *(DriftSignal(at=DAY + n * HOUR, number=1) for n in range(2))
    ),
    "a request for the content of a cancelled run": quiet_week(
        UPLOAD,
        JobFate(number=1, end="never ends"),
        CancelRun(at=2 * HOUR),
        RequestRun(at=DAY, key="again"),
    ),
    "a run is cancelled when its model is registered, and has not learned of it": quiet_week(
        UPLOAD,
        CallFault(service="azure_ml", number=26, end="answer lost"),
        Outage(service="azure_ml", at=HOUR + 568, seconds=2 * HOUR),
        CancelRun(at=HOUR + 600),
    ),
    "a request for the same data with new code": quiet_week(
        UPLOAD, Deploy(at=DAY - HOUR, floor=0.7), RequestRun(at=DAY, key="again")
    ),
    "people and pages while Service Bus hangs for hours": quiet_week(
        UPLOAD,
        JobFate(number=1, end="never ends"),
        Outage(service="service_bus", at=3.9 * HOUR, seconds=3 * HOUR, hangs=True, endless=True),
        OpenPage(at=3.95 * HOUR, seconds=1_800),
        CancelRun(at=4.2 * HOUR),
    ),
    "other files are taken while a batch settles": quiet_week(
        UPLOAD,
        Upload(at=HOUR, path="9.png", content="nine"),
        Deploy(at=HOUR + 100, floor=0.7, changes=("include",)),
    ),
    "another marker while a batch settles": quiet_week(
        UPLOAD, Mark(at=HOUR + 1), Deploy(at=HOUR + 100, floor=0.7, changes=("marker",))
    ),
    "files are copied from now on while a batch settles": quiet_week(
        UPLOAD, Deploy(at=HOUR + 100, floor=0.7, changes=("copies",))
    ),
    "other rules of settling for a zone that is never quiet": quiet_week(
        *(Upload(at=HOUR + 200 * n, path="1.png", content=f"{n}") for n in range(40)),
        Deploy(at=HOUR + 100, floor=0.7, changes=("settle",)),
    ),
    "jobs that cannot be read while a healthy model bakes": week(
        "batch",
        UPLOAD,
        OutageAfter(activity="observe_rollout", number=10, service="azure_ml", seconds=600),
    ),
    "Azure ML is away while a deployment is provisioned": week(
        "online", UPLOAD, Outage(service="azure_ml", at=HOUR + 900, seconds=2 * HOUR)
    ),
    "steps of a rollout run a second time, when it has ended": week(
        "online",
        UPLOAD,
        ModelFate(number=1, end="fails its smoke request"),
        *(SecondCopy(number=number, delay=HOUR) for number in range(1, 150)),
    ),
    "a batch is released while the landing that held it ends": quiet_week(
        *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(4)),
        *(Delete(at=DAY, path=f"{n}.png") for n in range(3)),
        Upload(at=DAY, path="9.png", content="nine"),
        ReleaseAfter(number=1, delay=2.6),
    ),
    "a blob is forgotten after a champion was scored on new files": quiet_week(
        Deploy(at=100, floor=0.7, changes=("jobs of checks",)),
        *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(3)),
        Upload(at=9 * HOUR, path="9.png", content="nine"),
        *(JobFate(number=n, end="completes") for n in (1, 2, 3, 4)),
        Forget(at=DAY),
    ),
    "a file is left out of a batch with a forgotten one": quiet_week(
        *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(3)),
        JobFate(number=1, end="leaves no metrics"),
        Forget(at=9 * HOUR),
        Delete(at=10 * HOUR, path="0.png"),
        RedriveChanged(at=5 * DAY, change="without a file"),
    ),
    "the batch endpoint of a rollout is deleted": week(
        "batch", *TWO_MODELS, DeleteEndpoint(at=LATER + 3_000)
    ),
    "a bad model of a batch endpoint is rolled back by people": week(
        "batch", *TWO_MODELS, RollBackModel(at=LATER + 3 * HOUR)
    ),
}
"""Name → a story that found a defect, described in docs/simulation.md."""

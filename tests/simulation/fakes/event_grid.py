"""Event Grid: system events on their way to the queues, and the custom topic `landfall`."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from handlers.operate.job_events import THRESHOLD_TAG
from tests.fakes.storage_account import ACCOUNT, Blob
from tests.simulation.fakes.service_bus import Broker
from tests.simulation.network import Network
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import (
    DelayEvent,
    DelayJobEvent,
    LoseEvent,
    LoseJobEvent,
    RepeatEvent,
    Story,
    StrayKind,
)

TOPIC = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}"
WORKSPACE = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
)
TRANSIT_SECONDS = 0.5


class SystemTopics:
    """Delivers events of storage and Azure ML to Service Bus queues, not always once, nor soon."""

    def __init__(self, scheduler: Scheduler, broker: Broker, story: Story) -> None:
        self._scheduler = scheduler
        self._broker = broker
        self._lost = story.nth(LoseEvent)
        self._repeated = story.nth(RepeatEvent)
        self._delayed = story.nth(DelayEvent)
        self._lost_of_jobs = story.nth(LoseJobEvent)
        self._delayed_of_jobs = story.nth(DelayJobEvent)
        self._of_jobs = 0
        self._newest_job = "none-1"
        self.signals: dict[int, float] = {}
        """Number of a drift signal → when it was first sent."""
        self.malformed = 0
        """How many events of Azure ML on the queue are of no job of the workspace's."""
        self.delivered: dict[str, float] = {}
        """Ids of the blob events that reached their queue."""
        self.blobs: dict[str, str] = {}
        """Id of a blob event → the blob's name."""
        self._of_blobs = 0

    def blob_changed(self, container: str, name: str, blob: Blob | None) -> None:
        """Storage reports a write or a deletion."""
        self._of_blobs += 1
        number = self._of_blobs
        if number in self._lost:
            return
        self.blobs[f"event-{number}"] = name
        event = {
            "id": f"event-{number}",
            "topic": TOPIC,
            "subject": f"/blobServices/default/containers/{container}/blobs/{name}",
            "eventType": f"Microsoft.Storage.Blob{'Deleted' if blob is None else 'Created'}",
            "eventTime": self._scheduler.now.isoformat(),
            "dataVersion": "",
            "data": {} if blob is None else {"eTag": blob.etag, "contentLength": len(blob.content)},
        }
        delayed = self._delayed.get(number)
        delay = TRANSIT_SECONDS + (delayed.delay if delayed else 0.0)
        self._deliver("blob-events", event, delay)
        if number in self._repeated:
            self._deliver("blob-events", event, delay + self._repeated[number].delay)

    def job_changed(self, job: str) -> None:
        """Azure ML reports that a job has another state."""
        self._of_jobs += 1
        if self._of_jobs in self._lost_of_jobs:
            return
        self._newest_job = job
        delayed = self._delayed_of_jobs.get(self._of_jobs)
        delay = TRANSIT_SECONDS + (delayed.delay if delayed else 0.0)
        self._deliver("job-events", self._job_event(job), delay)

    def stray_job_event(self, kind: StrayKind) -> None:
        """Something else reports a job."""
        self._of_jobs += 1
        event = self._job_event(self._newest_job)
        match kind:
            case "unknown run":
                event["data"] = {"runId": "of-another-system"}
            case "other workspace":
                event["topic"] = WORKSPACE + "-2"
            case "unknown type":
                event["eventType"] = "Microsoft.MachineLearningServices.ModelRegistered"
            case "not JSON":
                event["body"] = "no event"
            case "wrong state":
                event["eventType"] = "Microsoft.MachineLearningServices.RunCompleted"
                event["data"]["runStatus"] = "Completed"
        self.malformed += kind in ("other workspace", "unknown type", "not JSON")
        self._deliver("job-events", event, TRANSIT_SECONDS)

    def drift_signal(self, number: int, pipeline: str) -> None:
        """A monitor's run has ended, and a threshold is breached; equal numbers, equal runs."""
        self._of_jobs += 1
        event = self._job_event(f"monitor-{number}")
        event["data"]["runTags"] = {THRESHOLD_TAG: signal_text(number, pipeline)}
        self.signals.setdefault(number, self._scheduler.time())
        self._deliver("job-events", event, TRANSIT_SECONDS)

    def _job_event(self, job: str) -> dict[str, Any]:
        return {
            "id": f"job-event-{self._of_jobs}",
            "topic": WORKSPACE,
            "subject": f"experiments/e/runs/{job}",
            "eventType": "Microsoft.MachineLearningServices.RunStatusChanged",
            "eventTime": self._scheduler.now.isoformat(),
            "dataVersion": "",
            "data": {"runId": job},
        }

    def _deliver(self, queue: str, event: dict[str, Any], delay: float) -> None:
        def arrive() -> None:
            if queue == "blob-events":
                self.delivered.setdefault(event["id"], self._scheduler.time())
            self._broker.send("queue", queue, message)

        message = SimpleNamespace(
            message_id=event["id"],
            body=event.get("body", json.dumps(event)).encode(),
            application_properties=None,
            subject=None,
            scheduled_enqueue_time_utc=None,
        )
        self._scheduler.after(delay, arrive)


def signal_text(number: int, pipeline: str) -> str:
    """The text of a drift signal, which becomes the run's reason."""
    return f"{pipeline}_data_drift: signal {number}"


class EventGridTopic:
    """In the place of `handlers.platform.event_grid.EventGridTopic`."""

    def __init__(self, network: Network, take: Callable[[Any], None]) -> None:
        self._network = network
        self._take = take

    def publish(self, event: Any) -> None:
        self._network.call_rest("event_grid", "publish", lambda: self._take(event))

"""One simulated week: the app between fake services, and what the story does to it."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from handlers.configuration.clients import Clients
from handlers.configuration.pipeline_files import load_pipelines
from handlers.configuration.settings import Settings
from handlers.notifications.webhook_signature import parse_secrets, sign
from handlers.triggers import http_api
from handlers.triggers.release import release_batch
from orchestrations.activities import ACTIVITIES
from orchestrations.freezing import freezing
from orchestrations.landing import landing
from orchestrations.pipeline import Pipeline
from orchestrations.retraining import retraining
from tests.simulation.fakes.azure_ml import MLClient, Workspace
from tests.simulation.fakes.blob_storage import Blob, BlobServiceClient, StorageAccount
from tests.simulation.fakes.event_grid import EventGridTopic, SystemTopics
from tests.simulation.fakes.service_bus import Broker, ServiceBusClient
from tests.simulation.fakes.training import LANDING_CONTAINER, RECORDS_CONTAINER, Cluster
from tests.simulation.fakes.webhooks import WebhookReceiver
from tests.simulation.host import Host
from tests.simulation.network import Network
from tests.simulation.scheduler import Scheduler, VirtualBackground
from tests.simulation.story import (
    DAY,
    CancelRun,
    Delete,
    Item,
    Mark,
    Outage,
    OutageAfter,
    Redrive,
    Release,
    RequestRun,
    Story,
    Terminate,
    TerminateAfter,
    Upload,
)
from tests.simulation.task_hub import ActivityCall, ExecutionMode, HubInstance, TaskHub
from tests.simulation.virtual_time import installed

PIPELINES_FOLDER = Path(__file__).parent / "pipelines"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SETTINGS = {
    "PIPELINES_FOLDER": str(PIPELINES_FOLDER),
    "AZUREML_SUBSCRIPTION_ID": "s",
    "AZUREML_RESOURCE_GROUP": "g",
    "AZUREML_WORKSPACE_NAME": "w",
    "MODEL_WATCH_URL": "https://models.example/hook",
    "MODEL_WATCH_SECRET": SECRET,
    "INBOUND_WEBHOOK_SECRET": SECRET,
}
STORY_SECONDS = 7 * DAY
# A receiver's retries take 75 hours. What still goes on after this is taken to wait for ever.
PATIENCE_SECONDS = STORY_SECONDS + 7 * DAY
ROUNDS_UNTIL_IDLE = 2
ASK_AGAIN_SECONDS = 60.0
CALL_LIMIT = 60_000


@dataclass(frozen=True)
class Snapshot:
    """What a zone held from a moment on."""

    at: float
    blobs: dict[str, Blob]


class World:
    """Everything, wired up."""

    def __init__(self, story: Story, *, execution: ExecutionMode = "resident") -> None:
        self.story = story
        self.scheduler = scheduler = Scheduler()
        self.network = network = Network(scheduler, story, random.Random(f"net {story.seed}"))
        self.account = account = StorageAccount(scheduler)
        self.broker = broker = Broker(scheduler)
        self.topics = topics = SystemTopics(scheduler, broker, story)
        self.workspace = workspace = Workspace()
        self.cluster = Cluster(scheduler, workspace, account, story, topics.job_changed)
        self.hub = hub = TaskHub(
            scheduler,
            orchestrators={each.__name__: each for each in (landing, freezing, retraining)},
            activities=tuple(ACTIVITIES),
            latency=network.latency,
            execution=execution,
        )
        self.pipelines: dict[str, Pipeline] = {story.zone: _pipelines()[story.zone]}
        self.host = Host(scheduler, network, hub, broker, story, self.pipelines, self._make_clients)
        self.webhooks: list[tuple[str, str]] = []
        """Id and type of every webhook that was taken."""
        self.events: list[tuple[str, str]] = []
        """The same of every event on the custom topic."""
        self.zone: list[Snapshot] = []
        self.ended_instances: list[HubInstance] = []
        self.redrives = 0
        self._idle_rounds = 0
        self._is_over = False
        self.is_idle = False
        """Whether it came to rest."""
        account.on_change = self._on_change
        self._executions = Counter[str]()
        self._following = {
            (item.activity, item.number): item
            for item in story.items
            if isinstance(item, TerminateAfter | OutageAfter)
        }
        self.host.on_activity_ended = self._on_activity_ended

    @property
    def pipeline(self) -> Pipeline:
        return self.pipelines[self.story.zone]

    def run(self) -> None:
        """Let the week pass, and what follows from it come to its end."""
        receiver = WebhookReceiver(self.network, self._take_webhook)
        with installed(self.scheduler, receiver):
            self.host.start()
            for item in self.story.items:
                act = self._act(item)
                if act is not None:
                    self.scheduler.after(getattr(item, "at"), act)  # noqa: B009 - every act has one
            self.scheduler.after(self.story.reconcile_every, self._tick)
            self.scheduler.run(until=lambda: self._is_over)
            self.scheduler.kill_threads()

    # --- time ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.scheduler.time() > STORY_SECONDS and self.host.is_up:
            self._idle_rounds = self._idle_rounds + 1 if self._rests() else 0
            self.is_idle = self._idle_rounds >= ROUNDS_UNTIL_IDLE
        too_long = self.scheduler.time() > PATIENCE_SECONDS
        too_much = self.network.total_calls > CALL_LIMIT
        if self.is_idle or too_long or too_much:
            self._is_over = True
            return
        self.host.reconcile()
        self.scheduler.after(self.story.reconcile_every, self._tick)

    def _rests(self) -> bool:
        return not self.what_goes_on()

    def what_goes_on(self) -> list[str]:
        """Everything that is not at its end."""
        live = [f"instance {each.id}" for each in self.hub.instances.values() if each.is_live]
        waiting = [
            f"{len(queue.messages)} messages on {queue.name}"
            for queue in self.broker.queues.values()
            if queue.messages and not queue.name.startswith("rejected-runs/")
        ]
        records = self.account.container(RECORDS_CONTAINER)
        kept = [f"record {blob.name}" for blob in records.below("outbox/")]
        jobs = [f"job {life.name}" for life in self.cluster.lives.values() if not life.has_ended]
        return [*live, *waiting, *kept, *jobs]

    # --- acts ------------------------------------------------------------------------------------

    def _act(self, item: Item) -> Callable[[], object] | None:
        prefix = self.pipeline.source.prefix
        match item:
            case Upload():
                content = item.content.encode()
                return functools.partial(
                    self.account.write, LANDING_CONTAINER, prefix + item.path, content
                )
            case Mark():
                return functools.partial(
                    self.account.write, LANDING_CONTAINER, prefix + item.path, b""
                )
            case Delete():
                return functools.partial(self._delete, prefix + item.path)
            case RequestRun():
                return functools.partial(self._ask, functools.partial(self._request_run, item.key))
            case CancelRun():
                return functools.partial(self._ask, self._cancel_run)
            case Terminate():
                return functools.partial(self._terminate, item.orchestrator)
            case Redrive():
                return functools.partial(self._ask, self._redrive)
            case Release():
                return functools.partial(self._ask, self._release)
            case _:
                return None

    def _ask(self, make_request: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """A caller of the HTTP API asks again until there is an answer."""

        def answered(succeeded: bool) -> None:  # noqa: FBT001 - a callback
            if not succeeded:
                self.scheduler.after(ASK_AGAIN_SECONDS, again)

        again = functools.partial(self._ask, make_request)
        if self.host.is_up:
            self.host.run(make_request(), answered)
        else:
            answered(False)  # noqa: FBT003 - a callback

    def _delete(self, name: str) -> None:
        if name in self.account.container(LANDING_CONTAINER).blobs:
            self.account.delete(LANDING_CONTAINER, name)

    async def _request_run(self, key: str) -> None:
        body = json.dumps({"callback_url": "https://caller.example/done"}).encode()
        # The library that verifies it reads the wall clock.
        now = datetime.now(UTC)
        headers = sign(parse_secrets(SECRET, setting=""), message_id=key, at=now, body=body)
        clients, starter = self.host.clients, self.host.starter
        answer = await http_api.start_run(
            clients.settings,
            self.pipelines,
            starter,
            name=self.pipeline.name,
            headers=headers,
            body=body,
        )
        assert answer.status == 202, answer

    def _newest(self, orchestrator: str) -> HubInstance | None:
        live = [
            each
            for each in self.hub.instances.values()
            if each.execution.name == orchestrator and each.is_live
        ]
        return max(live, key=lambda each: each.created_at, default=None)

    async def _cancel_run(self) -> None:
        run = self._newest(retraining.__name__)
        if run is not None:
            body = b'{"by": "ada", "reason": "a wrong upload"}'
            await http_api.cancel_run(
                self.host.clients, self.host.starter, run=run.id, headers={}, body=body
            )

    def _on_activity_ended(self, call: ActivityCall) -> None:
        self._executions[call.name] += 1
        item = self._following.get((call.name, self._executions[call.name]))
        if isinstance(item, TerminateAfter):
            self.hub.terminate(call.instance_id, "somebody wanted it so")
        elif item is not None:
            outage = Outage(
                service=item.service,
                at=self.scheduler.time(),
                seconds=item.seconds,
                hangs=item.hangs,
            )
            self.network.outages.append(outage)

    def _terminate(self, orchestrator: str) -> None:
        instance = self._newest(orchestrator)
        if instance is not None:
            self.hub.terminate(instance.id, "somebody wanted it so")

    async def _redrive(self) -> None:
        answer = await http_api.redrive(
            self.host.clients, headers={}, body=b'{"maximum": 100}', now=self.scheduler.now
        )
        assert answer.status == 200, answer
        self.redrives += 1

    async def _release(self) -> None:
        held = self.account.container(RECORDS_CONTAINER).below(f"held/{self.pipeline.name}/")
        if held:
            newest = max(held, key=lambda blob: blob.last_modified)
            version = newest.name.rpartition("/")[2].removesuffix(".json")
            body = json.dumps({"dataset_version": version}).encode()
            await release_batch(
                self.host.clients,
                self.pipelines,
                self.host.starter,
                name=self.pipeline.name,
                body=body,
            )

    # --- what others see -------------------------------------------------------------------------

    def _on_change(self, container: str, name: str, blob: Blob | None) -> None:
        if container == LANDING_CONTAINER:
            blobs = dict(self.account.container(container).blobs)
            self.zone.append(Snapshot(self.scheduler.time(), blobs))
            self.topics.blob_changed(container, name, blob)

    def _take_webhook(self, message_id: str, document: dict[str, Any]) -> None:
        self.webhooks.append((message_id, document["type"]))

    def _take_event(self, event: Any) -> None:
        self.events.append((event.id, event.type))

    def _note(self, error: Exception) -> None:
        self.host.note(error)

    def _make_clients(self) -> Clients:
        clients = Clients(Settings(SETTINGS))
        ml = MLClient(self.workspace, self.network)
        blobs = BlobServiceClient(self.account, self.network)
        # Where functools.cached_property keeps what it made.
        vars(clients).update(
            blobs=blobs,
            workspace_blobs=blobs,
            service_bus=ServiceBusClient(self.broker, self.network, self.scheduler),
            event_grid=EventGridTopic(self.network, self._take_event),
            ml=ml,
            background=VirtualBackground(self.scheduler, self._note),
        )
        return clients


@functools.cache
def _pipelines() -> dict[str, Pipeline]:
    return dict(load_pipelines(PIPELINES_FOLDER, records_container=RECORDS_CONTAINER))

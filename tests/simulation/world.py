"""One simulated week: the app between fake services, and what the story does to it."""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_destinations
from handlers.platform.settings import Settings
from handlers.training.admission import RECORD as ADMISSION_RECORD
from localazure.functions.durable.engine.instance import Status
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.platform.activities import ACTIVITIES
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining
from tests.fakes.blob_storage import BlobServiceClient
from tests.fakes.storage_account import Blob, StorageAccount
from tests.simulation.acts import Acts
from tests.simulation.fakes.azure_ml import MLClient, Workspace
from tests.simulation.fakes.endpoint_clients import PipelineClients
from tests.simulation.fakes.event_grid import EventGridTopic, SystemTopics
from tests.simulation.fakes.service_bus import Broker, ServiceBusClient
from tests.simulation.fakes.serving import Serving
from tests.simulation.fakes.training import LANDING_CONTAINER, RECORDS_CONTAINER, Cluster
from tests.simulation.fakes.webhooks import WebhookReceiver
from tests.simulation.features.approvals import Approvers
from tests.simulation.features.faults import CALL_LIMIT
from tests.simulation.folders import PIPELINES_FOLDER, QUEUED_PIPELINES_FOLDER
from tests.simulation.host import Host
from tests.simulation.network import Network
from tests.simulation.people import CALLER_URL, SECRET
from tests.simulation.releases import (
    pipelines_of,
    read_release,
    write_release,
    write_release_without,
)
from tests.simulation.scheduler import START, Scheduler, VirtualBackground
from tests.simulation.story import (
    DAY,
    Act,
    Deploy,
    Outage,
    OutageAfter,
    Release,
    ReleaseAfter,
    Story,
    TerminateAfter,
)
from tests.simulation.task_hub import ActivityCall, ExecutionMode, HubInstance, TaskHub
from tests.simulation.virtual_time import installed

SETTINGS = {
    "AZUREML_SUBSCRIPTION_ID": "s",
    "AZUREML_RESOURCE_GROUP": "g",
    "AZUREML_WORKSPACE_NAME": "w",
    "CLUSTER_IDENTITY": "/subscriptions/s/userAssignedIdentities/cluster",
    "MODEL_WATCH_URL": "https://models.example/hook",
    "MODEL_WATCH_SECRET": SECRET,
    "INBOUND_WEBHOOK_SECRET": SECRET,
    "CALLER_URL": CALLER_URL,
    "CALLER_SECRET": SECRET,
}
STORY_SECONDS = 7 * DAY
# A receiver's retries take 75 hours. Work that has not ended after this counts as stuck.
PATIENCE_SECONDS = STORY_SECONDS + 7 * DAY
ROUNDS_UNTIL_IDLE = 2
DEPLOYMENT_SECONDS = 20.0


@dataclass(frozen=True)
class Snapshot:
    """The content of a zone from a moment on."""

    at: float
    blobs: dict[str, Blob]


@dataclass(frozen=True)
class Failure:
    """A landing that failed."""

    at: float
    landing: str
    error: str


class World:
    """Everything, wired up."""

    def __init__(  # noqa: PLR0915 - all is wired up here
        self, story: Story, *, execution: ExecutionMode = "resident"
    ) -> None:
        self.story = story
        folder = QUEUED_PIPELINES_FOLDER if story.zone == "queued" else PIPELINES_FOLDER
        self._source_folder = folder
        self._settings = SETTINGS | {"PIPELINES_FOLDER": str(folder)}
        self.releases = [read_release(folder, story.zone, START)]
        """One after another; the first one is there from the start."""
        self.last_deployed = Deploy(at=0.0, floor=0.8)
        self.acts = Acts(self)
        self.approvers = Approvers(self)
        self.scheduler = scheduler = Scheduler()
        self.network = network = Network(scheduler, story, random.Random(f"net {story.seed}"))
        self.account = account = StorageAccount(lambda: scheduler.now)
        self.broker = broker = Broker(scheduler)
        self.topics = topics = SystemTopics(scheduler, broker, story)
        self.workspace = workspace = Workspace(clock=lambda: scheduler.now)
        self.production = Workspace(clock=lambda: scheduler.now)
        """The workspace that models are promoted to, and its account."""
        self.production_account = StorageAccount(lambda: scheduler.now)
        self.overwritten: dict[str, bytes] = {}
        """Files of models that were written again."""
        self.serving = Serving(scheduler, story)
        self.cluster = Cluster(scheduler, workspace, account, story, topics.job_changed)
        self.hub = hub = TaskHub(
            scheduler,
            orchestrators={
                each.__name__: each
                for each in (landing, freezing, forgetting, retraining, rollout, promotion)
            },
            activities=tuple(ACTIVITIES),
            latency=network.latency,
            execution=execution,
        )
        known = pipelines_of(folder)
        # All that share nodes, or the only one that anything happens to.
        self._names = list(known) if story.zone == "queued" else [story.zone]
        self.pipelines: dict[str, Pipeline] = {name: known[name] for name in self._names}
        self.host = Host(scheduler, network, hub, broker, story, self.pipelines, self._make_clients)
        self.webhooks: list[tuple[str, str]] = []
        """Id and type of every webhook that a receiver accepted."""
        self.callers: list[tuple[str, str]] = []
        """Id and type of every webhook to the receiver that callers of the API name."""
        self.events: list[tuple[str, str]] = []
        """Id and type of every event on the custom topic."""
        self.zone: list[Snapshot] = []
        """The history of the zone of the story's pipeline."""
        self.admissions: list[tuple[float, bytes]] = []
        """Second → the document of admission that was written."""
        self._idle_rounds = 0
        self._is_over = False
        self.is_idle = False
        """Whether it came to rest."""
        account.on_change = self._on_change
        self._executions = Counter[str]()
        self._following = {
            (item.activity, item.number): item
            for item in story.items
            if isinstance(item, TerminateAfter | OutageAfter | ReleaseAfter)
        }
        self.host.on_activity_ended = self._on_activity_ended
        self.failures: list[Failure] = []
        """Landings that failed, one after another; a restarted instance keeps only its last end."""
        self.host.on_reconciled = lambda: self.acts.look() if self.failures else None
        self.landed: list[tuple[float, str]] = []
        """Second and id of landings that ended well."""
        hub.on_episode = self._on_episode

    @property
    def pipeline(self) -> Pipeline:
        return self.releases[-1].pipeline

    def run(self) -> None:
        """Run the week, and all consequences until they have ended."""
        receiver = WebhookReceiver(self.network, self._take_webhook)
        requests = PipelineClients(self.serving, self.network, self.cluster.post_smoke_job)
        with installed(self.scheduler, receiver, requests):
            self.host.start()
            for item in self.story.items:
                if isinstance(item, Act):
                    self.scheduler.after(item.at, functools.partial(self.acts.do, item))
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

    # --- what a story changes --------------------------------------------------------------------

    def deploy(self, item: Deploy) -> None:
        """Another release: its files are in place, and a new process starts."""
        self.last_deployed = item
        folder = write_release(self._source_folder, tuple(self._names), item.floor, item.changes)
        self.releases.append(read_release(folder, self.story.zone, self.scheduler.now))
        self._use(folder)

    def deploy_without_pipeline(self) -> None:
        """A release without the story's pipeline."""
        removed = self.story.zone
        self._use(write_release_without(self._source_folder, removed))

    def _use(self, folder: Path) -> None:
        self._settings["PIPELINES_FOLDER"] = str(folder)
        found = pipelines_of(folder)
        self.pipelines.clear()
        self.pipelines.update({name: found[name] for name in self._names if name in found})
        self.host.die(DEPLOYMENT_SECONDS)

    def _on_activity_ended(self, call: ActivityCall) -> None:
        self._executions[call.name] += 1
        item = self._following.get((call.name, self._executions[call.name]))
        if isinstance(item, TerminateAfter):
            self.hub.terminate(call.instance_id, "an operator terminated it")
        elif isinstance(item, ReleaseAfter):
            release = Release(at=self.scheduler.time() + item.delay)
            self.scheduler.after(item.delay, functools.partial(self.acts.do, release))
        elif item is not None:
            outage = Outage(
                service=item.service,
                at=self.scheduler.time(),
                seconds=item.seconds,
                hangs=item.hangs,
            )
            self.network.outages.append(outage)

    def _on_episode(self, instance: HubInstance) -> None:
        if instance.execution.name != landing.__name__:
            return
        now = self.scheduler.time()
        if instance.status is Status.FAILED:
            self.failures.append(Failure(now, instance.id, str(instance.error)))
        elif instance.status is Status.COMPLETED:
            self.landed.append((now, instance.id))

    # --- what others see -------------------------------------------------------------------------

    def _on_change(self, container: str, name: str, blob: Blob | None) -> None:
        if container == LANDING_CONTAINER:
            if name.startswith(self.pipeline.source.prefix):
                below = self.account.container(container).below(self.pipeline.source.prefix)
                blobs = {each.name: each for each in below}
                self.zone.append(Snapshot(self.scheduler.time(), blobs))
            self.topics.blob_changed(container, name, blob)
        elif name.startswith("approvals/") and blob is not None:
            self.approvers.see(name)
        elif name == ADMISSION_RECORD and blob is not None:
            self.admissions.append((self.scheduler.time(), blob.content))

    def _take_webhook(self, url: str, message_id: str, document: dict[str, Any]) -> None:
        taken = self.callers if url == CALLER_URL else self.webhooks
        taken.append((message_id, document["type"]))

    def _take_event(self, event: Any) -> None:
        self.events.append((event.id, event.type))

    def _note(self, error: Exception) -> None:
        self.host.note(error)

    def _make_clients(self) -> Clients:
        clients = Clients(Settings(self._settings))
        ml = MLClient(self.workspace, self.serving, self.network)
        blobs = BlobServiceClient(self.account, functools.partial(self.network.call_rest, "blobs"))
        # functools.cached_property stores its values here.
        vars(clients).update(
            blobs=blobs,
            workspace_blobs=blobs,
            service_bus=ServiceBusClient(self.broker, self.network, self.scheduler),
            event_grid=EventGridTopic(self.network, self._take_event),
            ml=ml,
            credential=object(),
            background=VirtualBackground(self.scheduler, self._note),
        )
        there = Clients(Settings({}))
        call = functools.partial(self.network.call_rest, "blobs")
        vars(there).update(
            workspace_blobs=BlobServiceClient(self.production_account, call),
            ml=MLClient(self.production, self.serving, self.network),
        )
        for each in load_destinations(clients.settings.pipelines_folder).values():
            clients.elsewhere[each.id] = there
        return clients

"""Actions of people and other systems in a week, item by item of the story."""

# The table at the end names the methods of the class above it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import results_record
from tests.simulation.fakes.training import LANDING_CONTAINER, RECORDS_CONTAINER, RESULTS_CONTAINER
from tests.simulation.people import AT_THE_API, People
from tests.simulation.rollout_items import (
    DeleteEndpoint,
    NoRequests,
    OverwriteModel,
)
from tests.simulation.story import (
    Act,
    ChangeCluster,
    Delete,
    Deploy,
    DriftSignal,
    Mark,
    Refuse,
    RemovePipeline,
    RivalUpload,
    Shortage,
    StrayJobEvent,
    TakeNodes,
    Terminate,
    Upload,
)

RIVAL = "rival"


class Acts(People):
    """Does what the items of a story say, to one world."""

    def do(self, item: Act) -> None:
        """Do it now."""
        _ACTS[type(item)](self, item)

    # --- the zone --------------------------------------------------------------------------------

    def _upload(self, item: Upload) -> None:
        self._write(self._world.pipeline, item.path, item.content.encode())

    def _upload_of_rival(self, item: RivalUpload) -> None:
        rival = self._world.pipelines.get(RIVAL)
        if rival is not None:
            self._write(rival, item.path, item.content.encode())

    def _mark(self, item: Mark) -> None:
        self._write(self._world.pipeline, item.path, b"")

    def _write(self, pipeline: Pipeline, path: str, content: bytes) -> None:
        self._world.account.write(LANDING_CONTAINER, pipeline.source.prefix + path, content)

    def _delete(self, item: Delete) -> None:
        account, name = self._world.account, self._world.pipeline.source.prefix + item.path
        if name in account.container(LANDING_CONTAINER).blobs:
            account.delete(LANDING_CONTAINER, name)

    # --- what surrounds the app ------------------------------------------------------------------

    def _deploy(self, item: Deploy) -> None:
        self._world.deploy(item)

    def _shortage(self, item: Shortage) -> None:
        workspace = self._world.workspace
        workspace.begin_shortage(item.clusters)
        self._world.scheduler.after(
            item.seconds, functools.partial(workspace.end_shortage, item.clusters)
        )

    def _change_cluster(self, item: ChangeCluster) -> None:
        cluster = self._world.workspace.clusters.get(item.cluster)
        if cluster is not None:
            cluster.provisioning_state = "Updating"
            self._world.scheduler.after(
                item.seconds, lambda: setattr(cluster, "provisioning_state", "Succeeded")
            )

    def _stray_job_event(self, item: StrayJobEvent) -> None:
        self._world.topics.stray_job_event(item.kind)

    def _delete_endpoint(self, _: DeleteEndpoint) -> None:
        deploy = self._world.pipeline.deploy
        if deploy is not None:
            self._world.serving.delete_endpoint(deploy.endpoint)

    def _overwrite_model(self, _: OverwriteModel) -> None:
        world = self._world
        below = world.account.container(RESULTS_CONTAINER).below("landfall/")
        files = [each for each in below if "/results/model/" in each.name]
        if files:
            newest = max(files, key=lambda each: each.last_modified)
            run = newest.name.split("/")[2]
            # Nobody can tell what is written between a job's end and the reading of its results.
            if results_record(run) in world.account.container(RECORDS_CONTAINER).blobs:
                world.overwritten.setdefault(newest.name, newest.content)
                if self._world.hub.instances[run].custom_status["state"] == "judging":
                    self.replaced.add(run)
            world.account.write(RESULTS_CONTAINER, newest.name, b"other bits")

    def _let_nobody_call(self, _: NoRequests) -> None:
        """Do nothing: `Serving` reads it in the story."""

    def _refuse(self, item: Refuse) -> None:
        account = self._world.account
        account.refusals[LANDING_CONTAINER] = item.status
        self._world.scheduler.after(
            item.seconds, functools.partial(account.refusals.pop, LANDING_CONTAINER, None)
        )

    def _remove_pipeline(self, item: RemovePipeline) -> None:
        self._world.deploy_without_pipeline()
        last = self._world.last_deployed
        self._world.scheduler.after(item.seconds, functools.partial(self._world.deploy, last))

    def _send_drift_signal(self, item: DriftSignal) -> None:
        self._world.topics.drift_signal(item.number, self._world.story.zone)

    def _take_nodes(self, item: TakeNodes) -> None:
        self._world.cluster.take_nodes(item.seconds)

    def _terminate(self, item: Terminate) -> None:
        instance = self._newest(item.orchestrator)
        if instance is not None:
            self._world.hub.terminate(instance.id, "an operator terminated it")


_ACTS: Mapping[type[Act], Callable[[Any, Any], None]] = {
    **AT_THE_API,
    Upload: Acts._upload,
    RivalUpload: Acts._upload_of_rival,
    Mark: Acts._mark,
    Delete: Acts._delete,
    Deploy: Acts._deploy,
    RemovePipeline: Acts._remove_pipeline,
    Refuse: Acts._refuse,
    Shortage: Acts._shortage,
    TakeNodes: Acts._take_nodes,
    ChangeCluster: Acts._change_cluster,
    StrayJobEvent: Acts._stray_job_event,
    DriftSignal: Acts._send_drift_signal,
    Terminate: Acts._terminate,
    DeleteEndpoint: Acts._delete_endpoint,
    NoRequests: Acts._let_nobody_call,
    OverwriteModel: Acts._overwrite_model,
}

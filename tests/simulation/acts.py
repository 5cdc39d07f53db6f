"""What the items of a story do to a world; `features` have the others."""

# The table at the end names the methods of the class above it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from collections.abc import Mapping

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.training.retraining import retraining
from tests.simulation.fakes.training import LANDING_CONTAINER
from tests.simulation.feature import Do, asked
from tests.simulation.features import FEATURES
from tests.simulation.people import People
from tests.simulation.story import (
    Act,
    CancelRun,
    ChangeCluster,
    Delete,
    Deploy,
    Mark,
    RivalUpload,
    Shortage,
    StrayJobEvent,
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
        self._write(self.world.pipeline, item.path, item.content.encode())

    def _upload_of_rival(self, item: RivalUpload) -> None:
        rival = self.world.pipelines.get(RIVAL)
        if rival is not None:
            self._write(rival, item.path, item.content.encode())

    def _mark(self, item: Mark) -> None:
        self._write(self.world.pipeline, item.path, b"")

    def _write(self, pipeline: Pipeline, path: str, content: bytes) -> None:
        self.world.account.write(LANDING_CONTAINER, pipeline.source.prefix + path, content)

    def _delete(self, item: Delete) -> None:
        account, name = self.world.account, self.world.pipeline.source.prefix + item.path
        if name in account.container(LANDING_CONTAINER).blobs:
            account.delete(LANDING_CONTAINER, name)

    # --- what surrounds the app ------------------------------------------------------------------

    def _deploy(self, item: Deploy) -> None:
        self.world.deploy(item)

    def _shortage(self, item: Shortage) -> None:
        workspace = self.world.workspace
        workspace.begin_shortage(item.clusters)
        self.world.scheduler.after(
            item.seconds, functools.partial(workspace.end_shortage, item.clusters)
        )

    def _change_cluster(self, item: ChangeCluster) -> None:
        cluster = self.world.workspace.clusters.get(item.cluster)
        if cluster is not None:
            cluster.provisioning_state = "Updating"
            self.world.scheduler.after(
                item.seconds, lambda: setattr(cluster, "provisioning_state", "Succeeded")
            )

    def _stray_job_event(self, item: StrayJobEvent) -> None:
        self.world.topics.stray_job_event(item.kind)

    def _terminate(self, item: Terminate) -> None:
        instance = self.newest(item.orchestrator)
        if instance is not None:
            self.world.hub.terminate(instance.id, "an operator terminated it")


async def _cancel_run(acts: Acts, _: CancelRun) -> None:
    run = acts.newest(retraining.__name__)
    if run is not None:
        body = b'{"by": "ada", "reason": "a wrong upload"}'
        answer = await acts.timed("cancel_run", body, run=run.id)
        if answer.status == 202:
            acts.accept(CancelRun, run.id)


_ACTS: Mapping[type[Act], Do] = {
    CancelRun: asked(_cancel_run),
    Upload: Acts._upload,
    RivalUpload: Acts._upload_of_rival,
    Mark: Acts._mark,
    Delete: Acts._delete,
    Deploy: Acts._deploy,
    Shortage: Acts._shortage,
    ChangeCluster: Acts._change_cluster,
    StrayJobEvent: Acts._stray_job_event,
    Terminate: Acts._terminate,
    **{kind: do for feature in FEATURES for kind, do in feature.acts.items()},
}

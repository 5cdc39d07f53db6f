"""Actions of people and other systems in a week, item by item of the story."""

# The table at the end names the methods of the class above it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from handlers.api import dead_letters
from handlers.notifications.webhook_signature import parse_secrets, sign
from handlers.triggers import http_api
from handlers.triggers.problem_details import Answer
from handlers.triggers.release import release
from orchestrations.pipeline import Pipeline
from orchestrations.retraining import retraining
from tests.simulation.fakes.training import LANDING_CONTAINER, RECORDS_CONTAINER
from tests.simulation.story import (
    Act,
    CancelRun,
    Change,
    ChangeCluster,
    Delete,
    Deploy,
    Mark,
    Redrive,
    RedriveChanged,
    Release,
    RequestRun,
    RivalUpload,
    Shortage,
    StrayJobEvent,
    Terminate,
    Upload,
)
from tests.simulation.task_hub import HubInstance
from tests.unit.handlers.asking import ask

if TYPE_CHECKING:
    from tests.simulation.world import World

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
CALLBACK_URL = "https://caller.example/done"
RIVAL = "rival"
ASK_AGAIN_SECONDS = 60.0
LARGE: dict[str, Any] = {"cluster": "large", "size": "Standard_D16s_v5", "nodes": 2}
MORE_ATTEMPTS = 2
QUEUED_LIMIT_SECONDS = 1_800.0


class Acts:
    """Does what the items of a story say, to one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.redrives = 0
        """Redrives of all dead letters; each allows every run one more attempt."""
        self.cancelled: dict[str, float] = {}
        """Run → the second at which its cancellation was accepted."""
        self.changed: dict[str, Change] = {}
        """Run → with what change it was sent again."""

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
        self._world.deploy(item.floor)

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

    def _terminate(self, item: Terminate) -> None:
        instance = self._newest(item.orchestrator)
        if instance is not None:
            self._world.hub.terminate(instance.id, "an operator terminated it")

    # --- the HTTP API ----------------------------------------------------------------------------

    def ask(self, make_request: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """A caller of the HTTP API asks again until there is an answer."""
        world = self._world

        def answered(succeeded: bool) -> None:  # noqa: FBT001 - a callback
            if not succeeded:
                world.scheduler.after(ASK_AGAIN_SECONDS, again)

        again = functools.partial(self.ask, make_request)
        if world.host.is_up:
            world.host.run(make_request(), answered)
        else:
            answered(False)  # noqa: FBT003 - a callback

    async def _request_run(self, item: RequestRun) -> None:
        world = self._world
        body = json.dumps({"callback_url": CALLBACK_URL}).encode()
        # The library that verifies it reads the wall clock.
        now = datetime.now(UTC)
        headers = sign(parse_secrets(SECRET, setting=""), message_id=item.key, at=now, body=body)
        answer = await self._post(
            http_api.start_run, body, headers=headers, name=world.pipeline.name
        )
        assert answer.status == 202, answer

    def _newest(self, orchestrator: str) -> HubInstance | None:
        live = [
            each
            for each in self._world.hub.instances.values()
            if each.execution.name == orchestrator and each.is_live
        ]
        return max(live, key=lambda each: each.created_at, default=None)

    async def _cancel_run(self, _: CancelRun) -> None:
        run = self._newest(retraining.__name__)
        if run is not None:
            body = b'{"by": "ada", "reason": "a wrong upload"}'
            answer = await self._post(http_api.cancel_run, body, run=run.id)
            if answer.status == 202:
                self.cancelled.setdefault(run.id, self._world.scheduler.time())

    async def _redrive(self, _: Redrive) -> None:
        answer = await self._post(dead_letters.redrive, b'{"maximum": 100}')
        assert answer.status == 200, answer
        self.redrives += 1

    async def _redrive_changed(self, item: RedriveChanged) -> None:
        world = self._world
        letters = world.broker.dead_letters("rejected-runs").messages
        runs = sorted(each.message_id for each in letters if each.message_id in world.hub.instances)
        if not runs:
            return
        document = {
            "run": runs[0],
            "by": "ada",
            "reason": "try",
            "changes": self._changes(item.change),
        }
        answer = await self._post(dead_letters.redrive, json.dumps(document).encode())
        # 400: it has only this file; 404 and 409: it was redriven meanwhile, or its content is
        # another run's.
        assert answer.status in (200, 400, 404, 409), answer
        if answer.status == 200:
            (following,) = answer.document["redriven"]
            self.changed[following] = item.change

    def _changes(self, change: Change) -> dict[str, Any]:
        match change:
            case "compute":
                return {"compute": LARGE}
            case "limits":
                return {"limits": {"queued_seconds": QUEUED_LIMIT_SECONDS}}
            case "attempts":
                return {"attempts": MORE_ATTEMPTS}
            case "job":
                return {"job": "deployed"}
            case "without a file":
                prefix = self._world.pipeline.source.prefix
                zone = self._world.account.container(LANDING_CONTAINER).below(prefix)
                names = [each.name.removeprefix(prefix) for each in zone]
                return {"without_files": names[:1] or ["gone.png"]}

    async def _release(self, _: Release) -> None:
        world = self._world
        held = world.account.container(RECORDS_CONTAINER).below(f"held/{world.pipeline.name}/")
        if held:
            newest = max(held, key=lambda blob: blob.last_modified)
            version = json.loads(newest.content)["dataset"]["version"]
            body = json.dumps({"dataset_version": version}).encode()
            await self._post(release, body, name=world.pipeline.name)

    async def _post(
        self,
        function: Callable[..., Any],
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        run: str = "",
        name: str = "",
    ) -> Answer:
        world = self._world
        host, now = world.host, world.scheduler.now
        return await ask(
            function,
            host.clients,
            host.starter,
            *world.pipelines.values(),
            headers=headers,
            body=body,
            now=now,
            run=run,
            name=name,
        )


def _asking(
    request: Callable[[Acts, Any], Coroutine[Any, Any, None]],
) -> Callable[[Acts, Any], None]:
    def ask(acts: Acts, item: Any) -> None:
        acts.ask(functools.partial(request, acts, item))

    return ask


_ACTS: Mapping[type[Act], Callable[[Acts, Any], None]] = {
    Upload: Acts._upload,
    RivalUpload: Acts._upload_of_rival,
    Mark: Acts._mark,
    Delete: Acts._delete,
    Deploy: Acts._deploy,
    Shortage: Acts._shortage,
    ChangeCluster: Acts._change_cluster,
    StrayJobEvent: Acts._stray_job_event,
    Terminate: Acts._terminate,
    RequestRun: _asking(Acts._request_run),
    CancelRun: _asking(Acts._cancel_run),
    Redrive: _asking(Acts._redrive),
    RedriveChanged: _asking(Acts._redrive_changed),
    Release: _asking(Acts._release),
}

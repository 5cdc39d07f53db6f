"""People and other systems at the HTTP API, item by item of the story."""

# The table at the end names the methods of the class above it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from handlers.notify.webhooks import parse_secrets, sign
from handlers.operate.api.requests import Answer
from handlers.operate.api.routes import ROUTES
from handlers.platform.bulkheads import Unavailable
from handlers.training.champions import choose_champion
from orchestrations.contracts.promotions import PromotionStatus
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining
from tests.simulation.approvers import Approvers
from tests.simulation.fakes.training import LANDING_CONTAINER, RECORDS_CONTAINER
from tests.simulation.rollout_items import (
    PromoteModel,
    PromoteRollout,
    PromoteToProduction,
    RollBackModel,
    RollBackRollout,
    StartRollout,
)
from tests.simulation.story import (
    Act,
    CancelPromotion,
    CancelRun,
    Change,
    Forget,
    OpenPage,
    Redrive,
    RedriveChanged,
    Release,
    Reproduce,
    RequestRun,
)
from tests.simulation.task_hub import HubInstance
from tests.unit.handlers.asking import ask

if TYPE_CHECKING:
    from tests.simulation.world import World

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
CALLER_URL = "https://caller.example/done"
WHY = b'{"by": "ada", "reason": "customers complain"}'
ASK_AGAIN_SECONDS = 60.0
LARGE: dict[str, Any] = {"cluster": "large", "size": "Standard_D16s_v5", "nodes": 2}
MORE_ATTEMPTS = 2
QUEUED_LIMIT_SECONDS = 1_800.0
# The operators' page polls more often; an hour of it should not take a second.
PAGE_POLL_SECONDS = 60.0
POLLED = ("list_runs", "list_pipelines", "list_dead_letters")
"""The routes that an open page asks."""
ROUTES_BY_NAME = {each.name: each for each in ROUTES}


@dataclass
class Asked:
    """A request to the HTTP API."""

    what: str
    at: float
    answered_at: float | None = None
    """None: no answer came."""


class People:
    """Does what people do in a story."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.redrives = 0
        """Redrives of all dead letters; each allows every run one more attempt."""
        self.forgotten: set[str] = set()
        """The names of the blobs that were to be forgotten."""
        self.cancelled: dict[str, float] = {}
        """Run → the second at which its cancellation was accepted."""
        self.changed: dict[str, Change] = {}
        """Run → with what change it was sent again."""
        self.unanswered: set[str] = set()
        """Rollouts about which a decision was sent that may have taken effect: the host died."""
        self.promoted: set[str] = set()
        """Rollouts of which people ended a step."""
        self.rolled_back: dict[str, float] = {}
        """Rollout → the second at which its rollback was accepted."""

        self.reproduced: set[str] = set()
        """Runs that were accepted as reproductions."""
        self.promotions: set[str] = set()
        """Promotions to the other workspace that were accepted."""
        self.cancelled_promotions: dict[str, float] = {}
        """Promotion → the second at which its cancellation was accepted."""
        self.replaced: set[str] = set()
        """Runs whose model was overwritten while it was judged."""
        self.approvers = Approvers(world, self)
        self.champion_changes: list[float] = []
        """When people promoted a model, or rolled one back."""
        self.asked: list[Asked] = []
        """What the page asked for, and cancellations."""
        self.looked: list[tuple[float, Mapping[str, str]]] = []
        """When people looked, and the state of each pipeline then."""
        """Second → the state of the story's pipeline, as the API shows it; None: it has none."""

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

    async def post(self, route: str, body: bytes, *, approval: str) -> Answer:
        """Ask the API about a question, once. Raises `Unavailable` if it has no answer now."""
        return await self._post(route, body, approval=approval)

    async def _request_run(self, item: RequestRun) -> None:
        world = self._world
        parameters = {"seed": item.seed} if "seed" in world.pipeline.parameters else {}
        body = json.dumps({"receiver": "caller", "parameters": parameters}).encode()
        # The library that verifies it reads the wall clock.
        now = datetime.now(UTC)
        headers = sign(parse_secrets(SECRET, setting=""), message_id=item.key, at=now, body=body)
        answer = await self._post("start_run", body, headers=headers, name=world.pipeline.name)
        # 404: the pipeline is not deployed now.
        assert answer.status in (202, 404), answer

    async def _forget(self, _: Forget) -> None:
        world = self._world
        blobs = sorted(world.zone[-1].blobs) if world.zone else []
        if blobs:
            self.forgotten.add(blobs[0])
            body = {"by": "ada", "reason": "a person asked", "blobs": [f"landing/{blobs[0]}"]}
            answer = await self._post("forget", json.dumps(body).encode())
            # 400: the pipeline is not deployed now.
            assert answer.status in (202, 400), answer

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
            answer = await self._timed("cancel_run", body, run=run.id)
            if answer.status == 202:
                self.cancelled.setdefault(run.id, self._world.scheduler.time())

    async def _redrive(self, _: Redrive) -> None:
        answer = await self._post("redrive", b'{"maximum": 100}')
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
        answer = await self._post("redrive", json.dumps(document).encode())
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
            await self._post("release", body, name=world.pipeline.name)

    async def _reproduce(self, _: Reproduce) -> None:
        pipeline = self._world.pipeline
        versions = [it for name, it in self._world.workspace.models if name == pipeline.model.name]
        if versions:
            name, newest = pipeline.name, versions[-1]
            answer = await self._post("reproduce_model", WHY, name=name, version=newest)
            # 404: the pipeline is not deployed now; 409: contents were forgotten; 502: Azure ML.
            assert answer.status in (202, 404, 409, 502), answer
            self.reproduced |= {answer.document["id"]} if answer.status == 202 else set()

    # --- rollouts and models ---------------------------------------------------------------------

    async def _promote_rollout(self, _: PromoteRollout) -> None:
        await self._decide("promote_rollout")

    async def _roll_back_rollout(self, _: RollBackRollout) -> None:
        await self._decide("roll_back_rollout")

    async def _start_rollout(self, _: StartRollout) -> None:
        versions = self._model_versions()
        if not versions or "start_rollout_of_model" not in ROUTES_BY_NAME:
            return
        document = {"pipeline": self._world.pipeline.name, "version": versions[-1], "by": "ada"}
        answer = await self._post("start_rollout_of_model", json.dumps(document).encode())
        # 409: the pipeline has no endpoint now.
        assert answer.status in (202, 404, 409, 502), answer

    async def _decide(self, route: str) -> None:
        newest = self._newest(rollout.__name__)
        if newest is None:
            return
        self.unanswered.add(newest.id)
        answer = await self._post(route, WHY, rollout=newest.id)
        self.unanswered.discard(newest.id)
        # 409: it does not bake, has not begun, or has ended meanwhile.
        assert answer.status in (202, 409), answer
        if answer.status != 202:
            return
        if route == "promote_rollout":
            self.promoted.add(newest.id)
        else:
            self.rolled_back.setdefault(newest.id, self._world.scheduler.time())

    async def _promote_model(self, _: PromoteModel) -> None:
        versions = self._model_versions()
        if versions:
            await self._change_champion("promote_model", versions[0])

    async def _roll_back_model(self, _: RollBackModel) -> None:
        champion = choose_champion(self._world.workspace.models.values())
        if champion is not None:
            await self._change_champion("roll_back_model", str(champion.version))

    async def _promote_to_production(self, item: PromoteToProduction) -> None:
        versions = self._model_versions()
        if not versions:
            return
        document = {"by": "ada", "reason": "it is better", "to": "production"}
        body, name = json.dumps(document).encode(), self._world.pipeline.name
        asked = self._post("promote_to_workspace", body, name=name, version=versions[-1])
        try:
            answer = await asked
        except Unavailable:
            if item.once:
                return
            raise
        # 404: the pipeline is not deployed now; 409: the version was rolled back; 502: no answer.
        assert answer.status in (202, 404, 409, 502), answer
        if answer.status == 202:
            self.promotions.add(answer.document["id"])

    async def _cancel_promotion(self, _: CancelPromotion) -> None:
        newest = self._newest(promotion.__name__)
        if newest is None or newest.custom_status is None:  # it has not begun
            return
        status = PromotionStatus.from_dict(newest.custom_status)
        document = {"by": "ada", "reason": "another workspace", "to": status.to}
        answer = await self._post(
            "cancel_promotion",
            json.dumps(document).encode(),
            name=status.pipeline,
            version=status.version,
        )
        # 404: the pipeline is not deployed now; 409: it has ended meanwhile.
        assert answer.status in (202, 404, 409), answer
        if answer.status == 202:
            now = self._world.scheduler.time()
            self.cancelled_promotions.setdefault(answer.document["id"], now)

    def _model_versions(self) -> list[str]:
        return [version for _, version in self._world.workspace.models]

    async def _change_champion(self, route: str, version: str) -> None:
        name = self._world.pipeline.name
        answer = await self._post(route, WHY, name=name, version=version)
        # 404 and 409: refused; 502: Azure ML does not answer.
        assert answer.status in (200, 202, 404, 409, 502), answer
        if answer.status < 300:
            self.champion_changes.append(self._world.scheduler.time())

    def _open_page(self, item: OpenPage) -> None:
        """Ask for what the page shows, again and again."""
        world = self._world
        if world.host.is_up:
            for route in POLLED:
                world.host.run(self._timed(route, b""))
        left = item.seconds - PAGE_POLL_SECONDS
        if left > 0:
            again = item.model_copy(update={"seconds": left})
            world.scheduler.after(PAGE_POLL_SECONDS, functools.partial(self._open_page, again))

    def look(self) -> None:
        """Look at the state of all pipelines."""

        async def look() -> None:
            pipelines = (await self._timed("list_pipelines", b"")).document["pipelines"]
            states = {each["name"]: each["state"] for each in pipelines}
            self.looked.append((self._world.scheduler.time(), states))

        self._world.host.run(look())

    async def _timed(self, route: str, body: bytes, *, run: str = "") -> Answer:
        asked = Asked(route, self._world.scheduler.time())
        self.asked.append(asked)
        try:
            return await self._post(route, body, run=run)
        finally:  # an exception is an answer, too: 500
            asked.answered_at = self._world.scheduler.time()

    async def _post(
        self,
        route: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        run: str = "",
        rollout: str = "",
        name: str = "",
        version: str = "",
        approval: str = "",
    ) -> Answer:
        world = self._world
        host, now = world.host, world.scheduler.now
        answer = await ask(
            ROUTES_BY_NAME[route].load(),
            host.clients,
            host.starter,
            *world.pipelines.values(),
            headers=headers,
            body=body,
            now=now,
            run=run,
            rollout=rollout,
            name=name,
            version=version,
            approval=approval,
        )
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise Unavailable(answer.document["detail"])  # a caller asks again
        return answer


def _asking(
    request: Callable[[Any, Any], Coroutine[Any, Any, None]],
) -> Callable[[Any, Any], None]:
    """Have a request of somebody made until there is an answer."""

    def ask(people: People, item: Any) -> None:
        people.ask(functools.partial(request, people, item))

    return ask


AT_THE_API: Mapping[type[Act], Callable[[Any, Any], None]] = {
    OpenPage: People._open_page,
    PromoteRollout: _asking(People._promote_rollout),
    RollBackRollout: _asking(People._roll_back_rollout),
    StartRollout: _asking(People._start_rollout),
    PromoteModel: _asking(People._promote_model),
    PromoteToProduction: _asking(People._promote_to_production),
    RollBackModel: _asking(People._roll_back_model),
    RequestRun: _asking(People._request_run),
    Forget: _asking(People._forget),
    CancelRun: _asking(People._cancel_run),
    CancelPromotion: _asking(People._cancel_promotion),
    Redrive: _asking(People._redrive),
    RedriveChanged: _asking(People._redrive_changed),
    Release: _asking(People._release),
    Reproduce: _asking(People._reproduce),
}

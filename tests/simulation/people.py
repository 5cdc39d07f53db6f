"""People and other systems at the HTTP API."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from handlers.operate.api.requests import Answer
from handlers.operate.api.routes import ROUTES
from handlers.platform.bulkheads import Unavailable
from tests.simulation.story import Item, RedriveChange
from tests.simulation.task_hub import HubInstance
from tests.unit.handlers.asking import ask

if TYPE_CHECKING:
    from tests.simulation.world import World

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
CALLER_URL = "https://caller.example/done"
WHY = b'{"by": "ada", "reason": "customers complain"}'
ASK_AGAIN_SECONDS = 60.0
ROUTES_BY_NAME = {each.name: each for each in ROUTES}


@dataclass
class Asked:
    """A request to the HTTP API."""

    what: str
    at: float
    answered_at: float | None = None
    """None: no answer came."""


class People:
    """What people ask for in a week, and what they were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.accepted: Mapping[type[Item], dict[str, float]] = defaultdict(dict)
        """Kind of item → what it is about → the second at which it was accepted first."""
        self.redrives = 0
        """Redrives of all dead letters; each allows every run one more attempt."""
        self.changed: dict[str, RedriveChange] = {}
        """Run → with what change it was sent again."""
        self.unanswered: set[str] = set()
        """Rollouts about which a decision was sent that may have taken effect: the host died."""
        self.champion_changes: list[float] = []
        """When people promoted a model, or rolled one back."""
        self.asked: list[Asked] = []
        """What the page asked for, and cancellations."""
        self.looked: list[tuple[float, Mapping[str, str]]] = []
        """When people looked, and the state of each pipeline then."""

    def accept(self, kind: type[Item], name: str) -> None:
        """Note that the app has accepted what an item is about."""
        self.accepted[kind].setdefault(name, self.world.scheduler.time())

    def ask(self, make_request: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """A caller of the HTTP API asks again until there is an answer."""
        world = self.world

        def answered(succeeded: bool) -> None:  # noqa: FBT001 - a callback
            if not succeeded:
                world.scheduler.after(ASK_AGAIN_SECONDS, again)

        again = functools.partial(self.ask, make_request)
        if world.host.is_up:
            world.host.run(make_request(), answered)
        else:
            answered(False)  # noqa: FBT003 - a callback

    def newest(self, orchestrator: str) -> HubInstance | None:
        """Its newest instance that has not ended."""
        live = [
            each
            for each in self.world.hub.instances.values()
            if each.execution.name == orchestrator and each.is_live
        ]
        return max(live, key=lambda each: each.created_at, default=None)

    def model_versions(self) -> list[str]:
        """All versions, oldest first."""
        return [version for _, version in self.world.workspace.models]

    def look(self) -> None:
        """Look at the state of all pipelines."""

        async def look() -> None:
            pipelines = (await self.timed("list_pipelines", b"")).document["pipelines"]
            states = {each["name"]: each["state"] for each in pipelines}
            self.looked.append((self.world.scheduler.time(), states))

        self.world.host.run(look())

    async def timed(self, route: str, body: bytes, *, run: str = "") -> Answer:
        """Ask, and note how long the answer takes."""
        asked = Asked(route, self.world.scheduler.time())
        self.asked.append(asked)
        try:
            return await self.post(route, body, run=run)
        finally:  # an exception is an answer, too: 500
            asked.answered_at = self.world.scheduler.time()

    async def post(
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
        """Ask the API once. Raises `Unavailable` if it has no answer now."""
        world = self.world
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

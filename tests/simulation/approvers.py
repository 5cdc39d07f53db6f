"""People who are asked before a model goes on: they look at the question, and answer it, or not."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from tests.simulation.scheduler import START
from tests.simulation.story import QuestionFate

if TYPE_CHECKING:
    from tests.simulation.people import People
    from tests.simulation.world import World

Verb = Literal["approve", "reject"]
WRONG_HASH = "0" * 16


@dataclass
class Sent:
    """An answer that a person sent."""

    verb: Verb
    at: float
    by: str
    hash_is_right: bool
    status: int | None = None
    """None: no answer of the API came yet, and it may have taken effect."""

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


class Approvers:
    """Sees every question when it is written."""

    def __init__(self, world: World, people: People) -> None:
        self._world = world
        self._people = people
        self.sent: dict[str, list[Sent]] = {}
        """Question → the answers to it, in order."""

    def see(self, record: str) -> None:
        """A question was written, or is written again."""
        name = record.removeprefix("approvals/").removesuffix(".json")
        if name in self.sent:
            return
        self.sent[name] = []
        fate = self._world.story.nth(QuestionFate).get(
            len(self.sent), QuestionFate(number=0, end="is approved")
        )
        if fate.end != "is not answered":
            look = functools.partial(self._look, name, fate)
            self._world.scheduler.after(fate.delay, functools.partial(self._people.ask, look))

    async def _look(self, name: str, fate: QuestionFate) -> None:
        shown = (await self._people.post("get_approval", b"", approval=name)).document
        deadline = (datetime.fromisoformat(shown["deadline"]) - START).total_seconds()
        if fate.end == "is answered too late":
            later = max(deadline + fate.delay - self._world.scheduler.time(), 0.0)
            answer = functools.partial(self._people.ask, self._answering(name, shown, "approve"))
            self._world.scheduler.after(later, answer)
            return
        verb: Verb = "reject" if fate.end == "is rejected" else "approve"
        is_right = fate.end != "is answered for another hash"
        by = "eve" if fate.end == "is answered by another person" else "ada"
        self._people.ask(self._answering(name, shown, verb, by=by, hash_is_right=is_right))
        if fate.end == "is approved and rejected":
            self._people.ask(self._answering(name, shown, "reject"))

    def _answering(
        self, name: str, shown: Any, verb: Verb, *, by: str = "ada", hash_is_right: bool = True
    ) -> Any:
        """A request that is made until the API answers: it is one answer, sent again."""
        sent: Sent | None = None

        async def answer() -> None:
            nonlocal sent
            if sent is None:
                sent = Sent(verb, self._world.scheduler.time(), by, hash_is_right)
                self.sent[name].append(sent)
            given = {"by": by, "reason": "its numbers"}
            given["hash"] = shown["hash"] if hash_is_right else WRONG_HASH
            found = await self._people.post(verb, json.dumps(given).encode(), approval=name)
            # 403: another person may answer; 409: it is answered, void, over or has changed.
            assert found.status in (200, 403, 409), found
            sent.status = found.status

        return answer

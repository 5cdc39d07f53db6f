"""The stage of a recording: one pipeline of the running app, and what is waited for on its tape."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from azure.storage.blob.aio import BlobServiceClient
from standardwebhooks import Webhook

from demo.waiting import eventually
from tests.replay.tape import Generation, Tape

CONTAINER = "landing"
TIMEOUT_SECONDS = 180.0

Holds = Callable[[Generation], bool]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One pipeline on the running app, and what is on the tape of it."""

    pipeline: str
    endpoints: Mapping[str, Any]
    http: aiohttp.ClientSession
    blobs: BlobServiceClient
    tape: Tape
    secret: str
    pipelines: Path
    """The deployed pipelines."""

    async def remove(self) -> None:
        """Deploy the app without the pipeline."""
        await asyncio.to_thread(shutil.rmtree, self.pipelines / self.pipeline)

    async def land(self, /, *names: str, **script: float) -> None:
        """Upload files, each with content of its own; `script` is what the training shall do."""
        container = self.blobs.get_container_client(CONTAINER)
        files = dict.fromkeys(names, "a file")
        if script:
            files["script.json"] = json.dumps(script)
        prefix = f"{self.pipeline}/"
        # At once: on a busy machine, pauses between them would make them two batches.
        await asyncio.gather(
            *(
                container.upload_blob(prefix + name, content, overwrite=True)
                for name, content in files.items()
            )
        )

    async def until(self, orchestrator: str, holds: Holds, number: int = 1) -> Generation:
        """Wait for the first generation, or a later one, of which something holds."""

        def find() -> Generation | None:
            found = [
                each for each in self.tape.generations(orchestrator, self.pipeline) if holds(each)
            ]
            return found[number - 1] if len(found) >= number else None

        what = f"{orchestrator} {number} of {self.pipeline} that is as it should be"
        try:
            return await eventually(find, TIMEOUT_SECONDS, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; there are {self._told() or 'none'}") from None

    def _told(self) -> str:
        """Where each generation of this pipeline stands, or how it ended."""
        shown = ((each, each.status) for each in self.tape.all_generations(self.pipeline))
        return "; ".join(
            f"{each.orchestrator} {status.get('phase') or status.get('state')}"
            f"{' and done' if each.is_done else ''} {status.get('error') or status.get('reason')}"
            for each, status in shown
        )

    async def landed(self, number: int = 1) -> Generation:
        """Wait for the end of so many generations of `landing`."""
        return await self.until("landing", is_done, number)

    async def ended(self, state: str) -> Generation:
        """Wait for a run that ended in that state."""
        return await self.until("retraining", ended_as(state))

    async def running(self) -> Generation:
        """Wait for a run that waits for its running job."""
        return await self.until("retraining", is_in("running"))

    async def delete(self, *names: str) -> None:
        """Delete files."""
        container = self.blobs.get_container_client(CONTAINER)
        for name in names:
            await container.delete_blob(f"{self.pipeline}/{name}")

    async def train(self) -> None:
        """Train a model."""
        await self.land("1", accuracy=0.7)
        await self.landed()

    async def ask_people(self) -> None:
        """Train a model that waits for people's approval."""
        await self.land("1", accuracy=0.7)
        await self.until("retraining", is_in("judging"))

    async def hold(self) -> None:
        """Train on a batch, then land one that is held."""
        await self.land("1", "2", "3", "4", accuracy=0.7)
        await self.landed()
        await self.delete("2", "3")
        await self.land("5")
        await self.until("landing", landed_as("held"))

    async def be_busy(self) -> None:
        """Start a job that runs until it is cancelled."""
        await self.land("1", seconds=1000)
        await self.running()

    async def wake_up(self, generation: Generation) -> None:
        """Raise the event `wake_up`."""
        path = f"runtime/webhooks/durabletask/instances/{generation.instance}/raiseEvent/wake_up"
        await self.post(path, key="system_key")

    async def restart(self, generation: Generation) -> None:
        """Raise two events at a time, of which it awaits one, until it continues as new."""

        def moved() -> bool:
            self.tape.read_on()
            return len(generation.answers) > episodes and (generation.waits or generation.is_done)

        while not generation.is_done:
            episodes = len(generation.answers)
            await asyncio.gather(self.wake_up(generation), self.wake_up(generation))
            await eventually(moved, TIMEOUT_SECONDS, f"episode of {generation.instance}")

    async def request(self, key: str, **given: str) -> None:
        """Ask for a run over the HTTP API."""
        body = json.dumps(given)
        now = datetime.now(UTC)
        headers = {
            "webhook-id": key,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(self.secret).sign(key, now, body),
        }
        await self.post(f"api/pipelines/{self.pipeline}/runs", body=body, headers=headers)

    async def answer(self, verb: str) -> None:
        """Wait for an open question about this pipeline, and answer it."""
        functions = self.endpoints["functions"]

        async def find() -> Any | None:
            headers = {"x-functions-key": functions["function_key"]}
            address = f"{functions['base_url']}/api/approvals"
            async with self.http.get(address, headers=headers) as response:
                found = (await response.json())["approvals"]
            ours = (each for each in found if each["agreed"]["pipeline"] == self.pipeline)
            return next(ours, None)

        question = await eventually(find, TIMEOUT_SECONDS, f"a question about {self.pipeline}")
        body = json.dumps({"by": "ada", "reason": "its numbers", "hash": question["hash"]})
        await self.post(f"api/approvals/{question['id']}/{verb}", body=body)

    async def post(
        self,
        path: str,
        *,
        key: str = "function_key",
        body: str = "{}",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """POST to the Functions host."""
        functions = self.endpoints["functions"]
        async with self.http.post(
            f"{functions['base_url']}/{path}",
            data=body,
            headers={"x-functions-key": functions[key], "content-type": "application/json"}
            | dict(headers or {}),
        ) as response:
            response.raise_for_status()


def is_done(generation: Generation) -> bool:
    """It has returned or continued as new."""
    return generation.is_done


def is_continued(generation: Generation) -> bool:
    """It has continued as new."""
    return generation.is_continued


def is_in(phase: str) -> Holds:
    """It waits in that phase (a landing) or state (a run)."""
    return lambda generation: generation.phase == phase


def ended_as(state: str) -> Holds:
    """It is the last generation of a run that ended in that state."""
    return lambda generation: generation.ended_as == state


def landed_as(outcome: str) -> Holds:
    """It is a landing whose last batch ended in that way."""

    def holds(generation: Generation) -> bool:
        output = generation.answers[-1].get("output") if generation.is_done else None
        return output is not None and output["outcome"] == outcome

    return holds


def has(event_key: str) -> Holds:
    """An event of its history has that key."""
    return lambda generation: any(
        event_key in event for event in generation.triggers[-1]["history"]
    )

"""The app on the laptop's runtime, with runs of every kind: what operators look at."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.storage.blob.aio import BlobServiceClient

from demo.waiting import eventually
from localazure.runtime.endpoints import describe_endpoints
from localazure.runtime.supervisor import running
from tests.replay.record import copy_pipeline, make_app
from tests.replay.situations import SITUATIONS, Scene, is_in, landed_as
from tests.replay.tape import Tape

# Two models, a run without quota, one that fails twice, and one that pays for its nodes.
PLAYED = ("batches", "no-quota", "hopeless", "admitted")
# What a test changes is its own, so that tests may come in any order.
HELD = "shrunk"
"""Its second batch waits to be released."""
IN_QUEUE = "over-budget"
"""Its run waits for money, until somebody cancels it."""
FAILING = ("without-quota-1", "without-quota-2", "without-quota-3")
"""Copies of `no-quota`, whose runs gave up: older data of one pipeline would be superseded."""
# A zone that waits for its marker.
WAITING = "marked"
# A run may have to fail on a busy machine first.
LIMIT_SECONDS = 180
# Its job runs for longer than the tests: until somebody cancels it.
BUSY = "cancelled"


@dataclass(frozen=True)
class Laptop:
    """The app, seen over HTTP."""

    url: str
    key: str
    http: aiohttp.ClientSession
    busy: Scene
    """The pipeline whose run is under way."""

    async def get(self, path: str, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        """Status, document and headers of an answer."""
        given = {"x-functions-key": self.key, **headers}
        async with self.http.get(self.url + path, headers=given) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None, answer.headers

    async def until(self, path: str, holds: Callable[[Any], Any]) -> Any:
        """Wait until something holds of a document; returns what it is."""

        last: Any = None

        async def found() -> Any:
            nonlocal last
            _, last, _ = await self.get(path)
            return holds(last) or None

        try:
            return await eventually(found, LIMIT_SECONDS, f"{path} that is as it should be")
        except TimeoutError as error:
            error.add_note(f"the last answer: {json.dumps(last)[:2000]}")
            raise

    async def dead_letters(self, count: int, *of: str) -> list[dict[str, Any]]:
        """Wait until there are so many, of some pipelines if they are named."""

        async def found() -> list[dict[str, Any]] | None:
            _, document, _ = await self.get("/api/dead-letters")
            letters = [
                each
                for each in document["dead_letters"]
                if not of or (each["run"] or "").startswith(of)
            ]
            return letters if len(letters) >= count else None

        return await eventually(found, LIMIT_SECONDS, f"{count} dead letters")


async def hold(scene: Scene) -> None:
    """Train on a batch, and have the next one held."""
    await scene.land("1", "2", "3", "4", accuracy=0.7)
    await scene.landed()
    await scene.delete("2", "3")
    await scene.land("5")
    await scene.until("landing", landed_as("held"))


async def wait_in_queue(scene: Scene) -> None:
    """Have a run wait that may not be paid for."""
    await scene.land("1")
    await scene.until("retraining", is_in("waiting_for_nodes"))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def laptop(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Laptop]:
    state = tmp_path_factory.mktemp("operators")
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    tape = state / "tape.jsonl"
    settings = {"INBOUND_WEBHOOK_SECRET": secret, "TAPE": str(tape)}
    names = (*PLAYED, HELD, IN_QUEUE, WAITING, BUSY)
    options = make_app(state, names, settings)
    for name in FAILING:
        copy_pipeline(options.app, "no-quota", name)
    async with running(options, lambda _: None) as (environment, _):
        endpoints = describe_endpoints(environment)
        async with (
            aiohttp.ClientSession() as http,
            BlobServiceClient.from_connection_string(
                endpoints["storage_accounts"]["landfalldata"]
            ) as blobs,
        ):

            def scene(name: str) -> Scene:
                return Scene(
                    pipeline=name,
                    endpoints=endpoints,
                    http=http,
                    blobs=blobs,
                    tape=Tape(tape),
                    secret=secret,
                )

            await scene(WAITING).land("1", "2")
            await asyncio.gather(
                *(SITUATIONS[name].play(scene(name)) for name in PLAYED),
                hold(scene(HELD)),
                wait_in_queue(scene(IN_QUEUE)),
                *(SITUATIONS["no-quota"].play(scene(name)) for name in FAILING),
            )
            # Last: its job takes all nodes of the cluster.
            await scene(BUSY).land("1", seconds=1000)
            await scene(BUSY).running()
            functions = endpoints["functions"]
            yield Laptop(functions["base_url"], functions["function_key"], http, scene(BUSY))

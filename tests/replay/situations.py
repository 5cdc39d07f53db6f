"""The situations that are recorded: what is brought about, and which generations are kept.

Each has a pipeline of its own, named after it, so that they can run side by side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
from azure.storage.blob.aio import BlobServiceClient
from standardwebhooks import Webhook

from demo.waiting import eventually
from tests.replay.recording import Document
from tests.replay.tape import Generation, Tape

CONTAINER = "landing"
NO_QUOTA_SIZE = "Standard_NC6s_v3"
TIMEOUT_SECONDS = 180.0
MARKER = "_SUCCESS"
MANIFEST = "manifest.jsonl"
RUNNING_LIMIT_SECONDS = 1
QUEUES: Document = {
    "flavors": [{"name": "queued", "cluster": "queued", "nodes": 4, "price_per_node_hour": 100}],
    "queues": [
        {"name": "open", "quotas": [{"flavor": "queued"}]},
        # A first run's expected cost exceeds the budget: it waits.
        {
            "name": "poor",
            "quotas": [{"flavor": "queued"}],
            "budget": {"amount": 1, "days": 7},
        },
    ],
}
"""The content of `queues.yml`."""
IN_QUEUE: Document = {"compute": [{"cluster": "queued", "size": "Standard_D4s_v5", "nodes": 1}]}
BASE: Document = {
    "source": {"container": CONTAINER},
    "settle": {"quiet_seconds": 1, "maximum_wait_seconds": 60},
    "dataset": {"datastore": "landing"},
    "compute": [{"cluster": "cpu", "size": "Standard_D4s_v5", "nodes": 4}],
    "gate": {"metric": "accuracy", "floor": 0.5},
    "retry": {"attempts": 2, "delays_seconds": [0]},
}


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

    async def land(self, /, *names: str, **script: float) -> None:
        """Upload files, each with content of its own; `script` is what the training shall do."""
        container = self.blobs.get_container_client(CONTAINER)
        files = dict.fromkeys(names, "a file")
        if script:
            files["script.json"] = json.dumps(script)
        for name, content in files.items():
            await container.upload_blob(f"{self.pipeline}/{name}", content, overwrite=True)

    async def until(self, orchestrator: str, holds: Holds, number: int = 1) -> Generation:
        """Wait for the first generation, or a later one, of which something holds."""

        def find() -> Generation | None:
            found = [
                each for each in self.tape.generations(orchestrator, self.pipeline) if holds(each)
            ]
            return found[number - 1] if len(found) >= number else None

        what = f"{orchestrator} {number} of {self.pipeline} that is as it should be"
        return await eventually(find, TIMEOUT_SECONDS, what)

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

    async def wake_up(self, generation: Generation) -> None:
        """Raise the event `wake_up`."""
        path = f"runtime/webhooks/durabletask/instances/{generation.instance}/raiseEvent/wake_up"
        await self.post(path, key="system_key")

    async def restart(self, generation: Generation) -> None:
        """Raise two events at a time, of which it waits for one, until it goes on as new."""

        def moved() -> bool:
            self.tape.read_on()
            return len(generation.answers) > episodes and (generation.waits or generation.is_done)

        while not generation.is_done:
            episodes = len(generation.answers)
            await asyncio.gather(self.wake_up(generation), self.wake_up(generation))
            await eventually(moved, TIMEOUT_SECONDS, f"episode of {generation.instance}")

    async def request(self, key: str) -> None:
        """Ask for a run over the HTTP API."""
        now = datetime.now(UTC)
        headers = {
            "webhook-id": key,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(self.secret).sign(key, now, "{}"),
        }
        await self.post(f"api/pipelines/{self.pipeline}/runs", body="{}", headers=headers)

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


async def three_batches(scene: Scene) -> None:
    """A first batch, a second one that beats the champion, and the second one once more."""
    await scene.land("1", "2", accuracy=0.7)
    await scene.landed()
    await scene.land("3", accuracy=0.9)
    await scene.landed(2)
    await scene.land("3")
    await scene.landed(3)


async def marked(scene: Scene) -> None:
    """The marker blob says that the batch is whole; and again while the landing is closing."""
    await scene.land("1", accuracy=0.9)
    await scene.until("landing", is_in("settling"))
    await scene.land(MARKER)
    await scene.until("landing", is_in("closing"))
    await scene.land(MARKER)
    await scene.landed()


async def woken_twice(scene: Scene) -> None:
    """Two events at the same time make a settling landing go on as new."""
    await scene.land("1", accuracy=0.9)
    await scene.restart(await scene.until("landing", is_in("settling")))
    await scene.until("landing", is_in("settling"))


async def overdue(scene: Scene) -> None:
    """The marker does not come."""
    await scene.land("1")
    await scene.landed()


async def shrunk(scene: Scene) -> None:
    """Files are gone: alone that starts nothing; with a new one the batch is held, and released."""
    await scene.land("1", "2", "3", "4", accuracy=0.7)
    await scene.landed()
    await scene.delete("2", "3")
    await scene.land("1")
    await scene.until("landing", landed_as("only-deletions"))
    await scene.land("5")
    held = await scene.until("landing", landed_as("held"))
    version = held.answers[-1]["output"]["dataset_version"]
    body = json.dumps({"dataset_version": version})
    await scene.post(f"api/pipelines/{scene.pipeline}/release", body=body)
    await scene.until("landing", landed_as("started"), 2)


async def large(scene: Scene) -> None:
    """A zone that is listed in ranges of names: here its partitions (see `recorded_app`)."""
    await scene.land("date=2026-11-20/1", "date=2026-11-21/2", "date=2026-11-22/3", accuracy=0.9)
    await scene.landed()


async def copied(scene: Scene) -> None:
    """The job trains on copies of the blobs."""
    await scene.land("1", "2", accuracy=0.9)
    await scene.landed()


async def invalid_manifest(scene: Scene) -> None:
    """The uploader's manifest breaks its rules."""
    await scene.land("1")
    await scene.land(MANIFEST)
    await scene.landed()


async def followed_up(scene: Scene) -> None:
    """More lands while the run is training."""
    await scene.land("1", seconds=3)
    await scene.running()
    await scene.land("2", seconds=0)
    await scene.landed(2)


async def requested(scene: Scene) -> None:
    """Another system asks for a run, twice on the same data."""
    await scene.land("1", accuracy=0.9)
    await scene.until("landing", is_in("settling"))
    await scene.request("first")
    await scene.landed()
    await scene.request("second")
    await scene.landed(2)


async def late_container(scene: Scene) -> None:
    """An activity fails until the container is there, which then is empty."""
    await scene.request("too-early")
    await scene.until("landing", has("Reason"))
    await scene.blobs.create_container("late")
    await scene.landed()


async def poisoned(scene: Scene) -> None:
    """A file that the trainer refuses: it is left out, and the landing follows itself up."""
    await scene.land("1", "2.bad", accuracy=0.9)
    await scene.landed(2)


async def overwritten(scene: Scene) -> None:
    """The trainer finds its data overwritten; the landing follows itself up."""
    await scene.land("1", changed=1)
    await scene.landed()


async def crashed(scene: Scene) -> None:
    """A job fails without a word; the next attempt resumes."""
    await scene.land("1", crashes=1)
    await scene.ended("retrying")
    await scene.ended("succeeded")


async def hopeless(scene: Scene) -> None:
    """Every attempt fails."""
    await scene.land("1", crashes=9)
    await scene.ended("failed")


async def superseded(scene: Scene) -> None:
    """Newer data is claimed before the next attempt begins."""
    await scene.land("1", crashes=1)
    await scene.ended("retrying")
    await scene.land("2", crashes=0)
    await scene.ended("superseded")


async def cancelled(scene: Scene) -> None:
    """Somebody cancels the run while its job is running."""
    await scene.land("1", seconds=100)
    run = await scene.running()
    await scene.post(f"api/runs/{run.instance}/cancel")
    await scene.ended("cancelled")


async def admitted(scene: Scene) -> None:
    """A run gets the nodes of its queue, and gives them back."""
    await scene.land("1", accuracy=0.9)
    await scene.ended("succeeded")


async def over_budget(scene: Scene) -> None:
    """Somebody cancels a run that waits in its queue."""
    await scene.land("1")
    run = await scene.until("retraining", is_in("waiting_for_nodes"))
    await scene.post(f"api/runs/{run.instance}/cancel")
    await scene.ended("cancelled")


async def too_slow(scene: Scene) -> None:
    """The job runs for longer than the pipeline's limits allow."""
    await scene.land("1", seconds=100)
    run = await scene.running()
    await asyncio.sleep(RUNNING_LIMIT_SECONDS + 0.5)
    await scene.wake_up(run)
    await scene.ended("failed")


async def rejected(scene: Scene) -> None:
    """A run that no further attempt could help."""
    await scene.land("1", accuracy=0.4)
    await scene.ended("rejected")


async def not_promoted(scene: Scene) -> None:
    """A model below the floor."""
    await scene.land("1", accuracy=0.4)
    await scene.ended("not_promoted")


async def long_wait(scene: Scene) -> None:
    """A run waits over the end of a generation, and over a timer's."""
    await scene.land("1", seconds=40)
    await scene.restart(await scene.running())
    await scene.ended("succeeded")


async def terminated(scene: Scene) -> None:
    """An operator terminates the run under the landing."""
    await scene.land("1", seconds=3)
    run = await scene.running()
    await scene.post(
        f"runtime/webhooks/durabletask/instances/{run.instance}/terminate?reason=by+hand",
        key="system_key",
    )
    await scene.landed()


async def rolled_out(scene: Scene) -> None:
    """A model goes live; a second one is superseded while it bakes; a third one is rolled back."""
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("2", accuracy=0.8)
    await scene.until("rollout", is_in("baking"))
    await scene.land("3", accuracy=0.9)
    await scene.until("rollout", ended_as("superseded"))
    baking = await scene.until("rollout", is_in("baking"))
    body = json.dumps({"by": "ada", "reason": "it answers in another language"})
    await scene.post(f"api/rollouts/{baking.instance}/rollback", body=body)
    await scene.until("rollout", ended_as("rolled_back"))


async def rolled_out_for_batches(scene: Scene) -> None:
    """A model is the default of a batch endpoint; the smoke job of a second one fails."""
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("0-damaged", accuracy=0.8)
    await scene.until("rollout", ended_as("rolled_back"))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Which generation of an orchestrator is recorded: the n-th of which something holds."""

    orchestrator: str
    holds: Holds = is_done
    number: int = 1


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One situation: its pipeline is `BASE` with `changes`."""

    play: Callable[[Scene], Awaitable[None]]
    keep: Mapping[str, Kept]
    """Name of the recording, without the orchestrator's → what is kept under it."""
    changes: Document = field(default_factory=Document)


_LONG_QUIET: Document = {"settle": {"quiet_seconds": 100, "maximum_wait_seconds": 1000}}


def _landing(number: int = 1) -> Kept:
    return Kept(orchestrator="landing", number=number)


def _run(state: str, number: int = 1) -> Kept:
    return Kept(orchestrator="retraining", holds=ended_as(state), number=number)


def _rollout(state: str) -> Kept:
    return Kept(orchestrator="rollout", holds=ended_as(state))


SITUATIONS: Mapping[str, Situation] = {
    "batches": Situation(
        play=three_batches,
        keep={
            "started": _landing(1),
            "duplicate": _landing(3),
            "succeeded": _run("succeeded"),
            "beat-the-champion": _run("succeeded", 2),
        },
    ),
    "marked": Situation(
        play=marked,
        keep={"marked": _landing()},
        changes={**_LONG_QUIET, "source": {"marker": MARKER}},
    ),
    "overdue": Situation(
        play=overdue,
        keep={"overdue": _landing()},
        changes={
            "source": {"marker": MARKER},
            "settle": {"quiet_seconds": 1, "maximum_wait_seconds": 3},
        },
    ),
    "shrunk": Situation(
        play=shrunk,
        keep={
            "only-deletions": Kept(orchestrator="landing", holds=landed_as("only-deletions")),
            "held": Kept(orchestrator="landing", holds=landed_as("held")),
            "released": Kept(orchestrator="landing", holds=landed_as("started"), number=2),
        },
    ),
    "overwritten": Situation(play=overwritten, keep={"data-changed": _landing()}),
    "woken-twice": Situation(play=woken_twice, keep={"restarted": _landing()}, changes=_LONG_QUIET),
    "large": Situation(
        play=large,
        keep={"in-ranges": _landing(), "ranges": Kept(orchestrator="freezing")},
        changes={
            "source": {"partitions": "date=%Y-%m-%d"},
            "dataset": {"newest_partitions": 3},
        },
    ),
    "copied": Situation(
        play=copied,
        keep={"copied": _landing(), "copies": Kept(orchestrator="freezing")},
        changes={"dataset": {"freeze": "copy"}},
    ),
    "uploaded": Situation(
        play=invalid_manifest,
        keep={"invalid-manifest": _landing()},
        changes={"source": {"manifest": MANIFEST}},
    ),
    "followed-up": Situation(play=followed_up, keep={"followed-up": _landing()}),
    "requested": Situation(
        play=requested,
        keep={"requested": _landing(1), "requested-duplicate": _landing(2)},
        changes=_LONG_QUIET,
    ),
    "late": Situation(
        play=late_container,
        keep={"activity-retried": _landing()},
        changes={"source": {"container": "late"}},
    ),
    "poisoned": Situation(
        play=poisoned, keep={"quarantined": _landing(), "data-rejected": _run("rejected")}
    ),
    "crashed": Situation(
        play=crashed, keep={"retrying": _run("retrying"), "resumed": _run("succeeded")}
    ),
    "hopeless": Situation(play=hopeless, keep={"out-of-attempts": _run("failed")}),
    "superseded": Situation(
        play=superseded,
        keep={"superseded": _run("superseded")},
        changes={"retry": {"delays_seconds": [20]}},
    ),
    "cancelled": Situation(play=cancelled, keep={"cancelled": _run("cancelled")}),
    "admitted": Situation(
        play=admitted,
        keep={"admitted": _run("succeeded")},
        changes={**IN_QUEUE, "queue": "open", "minimum_scaling_efficiency": 0.8},
    ),
    "over-budget": Situation(
        play=over_budget,
        keep={"cancelled-in-queue": _run("cancelled")},
        changes={**IN_QUEUE, "queue": "poor"},
    ),
    "too-slow": Situation(
        play=too_slow,
        keep={"deadline-exceeded": _run("failed")},
        changes={
            "retry": {"attempts": 1},
            "limits": {"running_seconds": RUNNING_LIMIT_SECONDS},
        },
    ),
    "below-floor": Situation(play=not_promoted, keep={"not-promoted": _run("not_promoted")}),
    "no-quota": Situation(
        play=rejected,
        keep={"quota-exceeded": _run("rejected")},
        changes={"compute": [{"cluster": "gpu", "size": NO_QUOTA_SIZE, "nodes": 1}]},
    ),
    "long-wait": Situation(
        play=long_wait,
        keep={
            "restarted": Kept(orchestrator="retraining", holds=is_continued),
            "long-wait": _run("succeeded"),
        },
    ),
    "rolled-out": Situation(
        play=rolled_out,
        keep={
            "deployed": _run("succeeded"),
            "finished": _rollout("finished"),
            "superseded-while-baking": _rollout("superseded"),
            "rolled-back": _rollout("rolled_back"),
        },
        changes={
            "deploy": {
                "endpoint": "rolled-out",
                "instance_type": "Standard_DS3_v2",
                "smoke_request": "smoke.json",
                "steps": [
                    {"traffic": 50, "bake_minutes": 60},
                    {"traffic": 100, "bake_minutes": 0},
                ],
                "guards": {
                    "minimum_requests": 0,
                    "answers": [
                        {"metric": "mean", "field": "x", "max": 1, "collection": "response"}
                    ],
                },
            }
        },
    ),
    "batch-rolled-out": Situation(
        play=rolled_out_for_batches,
        keep={
            "batch-finished": _rollout("finished"),
            "batch-rolled-back": _rollout("rolled_back"),
        },
        changes={
            "deploy": {"kind": "batch", "endpoint": "batch-rolled-out", "compute": "cpu"},
        },
    ),
    "terminated": Situation(play=terminated, keep={"run-terminated": _landing()}),
}


def pipeline_document(name: str) -> Document:
    """The content of a situation's `pipeline.yml`."""
    document = json.loads(json.dumps(BASE))
    document["source"]["prefix"] = f"{name}/"
    document["dataset"]["name"] = name
    document["model"] = {"name": name}
    for section, values in SITUATIONS[name].changes.items():
        given = document.get(section, {})
        document[section] = given | values if isinstance(values, dict) else values
    return document

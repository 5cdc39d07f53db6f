"""The six stories. Each returns facts that it read back, and raises an error if one is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, get_args

from demo.cloud import ENDED, LANDING_CONTAINER, PIPELINE, PREFIX, Cloud, Run
from demo.digits import File, no_images, shifted
from demo.endpoint import Customers, read_endpoint
from demo.receivers import Channel, Mailbox
from demo.training_processes import find_rank, kill, seconds_of_training, suspended
from demo.waiting import API_POLL_SECONDS, POLL_SECONDS, Answer, eventually

EVENT_COPIES = 3
WANTED_ACCURACY = 0.95
LIVE = "digits-live"
"""A pipeline that deploys, its model and its endpoint."""
CUSTOMERS_IMAGES = 100
PROGRESS_TIMEOUT_SECONDS = 120.0

Facts = dict[str, Any]


class StoryFailed(Exception):
    """A story did not have its expected outcome."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many files land in the stories, and how long an upload pauses."""

    first_batch: int = 600
    pause_seconds: float = 6.0
    """The pause between the halves of the first batch: longer than `quiet_seconds`."""
    landed_again: int = 150
    poisoned: int = 60
    shifted: int = 600
    """The number of moved digits that land while a training process is killed."""
    first_day: int = 400
    """The number of digits for the model that goes live."""


@dataclass
class Stage:
    """The shared state of the stories: clients, received notifications, the report."""

    cloud: Cloud
    mailbox: Mailbox
    say: Callable[[str], None]
    digits: list[File]
    patience: float = 1.0
    """Factor for the timeout: with injected faults, lost messages arrive later."""
    sizes: Sizes = field(default_factory=Sizes)
    known_runs: int = 0
    late: bool = False
    """Whether a wait of the current story took longer than its timeout, on a slow machine."""

    async def land(self, files: list[File], *, whole: bool = True) -> None:
        """Upload with progress, and then the marker if the batch is complete."""
        await self.cloud.upload(
            files,
            lambda done: self.say(f"{done} of {len(files)} files have landed"),
            whole=whole,
        )

    async def wait(
        self,
        question: Callable[[], Answer | None] | Callable[[], Awaitable[Answer | None]],
        what: str,
        poll_seconds: float = API_POLL_SECONDS,
    ) -> Answer:
        """Wait for a result as long as runs, rollouts, notifications or jobs make progress.

        Raises:
            TimeoutError: there was neither a result nor progress in time.
        """
        limit, began = self.patience * PROGRESS_TIMEOUT_SECONDS, time.monotonic()
        answer = await eventually(question, limit, what, poll_seconds, self._progress)
        self.late |= time.monotonic() - began > limit
        return answer

    async def _progress(self) -> object:
        received = len(self.mailbox.notifications), len(self.mailbox.blob_events)
        return await self.cloud.records(), received, seconds_of_training()

    async def wait_for_runs(self, before: int, new: int, pipeline: str = PIPELINE) -> list[Run]:
        """Wait until `new` runs after the first `before` ones have ended, and say their states."""

        async def ended() -> list[Run] | None:
            runs = (await self.cloud.runs(pipeline))[before:]
            for run in runs:
                self.say(_state(run))
            over = len(runs) >= new and all(run["state"] in ENDED for run in runs)
            return runs if over else None

        return await self.wait(ended, f"end of {new} run(s)")

    async def runs_end(self, count: int) -> list[Run]:
        """Wait until new runs have ended and the zone has settled; check their exact number."""
        await self.wait_for_runs(self.known_runs, count)
        await self.wait(self.cloud.has_landed, "end of the landing")
        runs = (await self.cloud.runs(PIPELINE))[self.known_runs :]
        expect(len(runs) == count, f"{len(runs)} runs, expected {count}: {_states(runs)}")
        self.known_runs += count
        return runs

    async def told(self, run: str, kind: str) -> dict[Channel, str]:
        """Wait for the notification on every channel; return the ids as received."""
        received = {
            channel: await self.wait(
                lambda channel=channel: self.mailbox.on(channel, kind, run),
                f"{kind} notification of {run} on {channel}",
            )
            for channel in get_args(Channel)
        }
        return {channel: each.id for channel, each in received.items()}


def expect(holds: object, otherwise: str) -> None:
    """Check a fact of the story.

    Raises:
        StoryFailed: the fact is wrong.
    """
    if not holds:
        raise StoryFailed(otherwise)


def _digit(event: dict[str, Any]) -> str:
    """The path of the digit in a BlobCreated event; empty if it is not about a digit."""
    _, found, path = event["subject"].partition(f"/{LANDING_CONTAINER}/blobs/{PREFIX}")
    return path if found else ""


def _state(run: Run) -> str:
    return f"run {run['id']}: {run['state']}"


def _states(runs: list[Run]) -> str:
    return ", ".join(map(_state, runs)) or "none"


def _succeeded(run: Run) -> Run:
    error = run["error"] or {}
    why = f": {error.get('type')}: {error.get('message')}" if error else ""
    expect(run["state"] == "succeeded", f"run {run['id']} ended {run['state']}{why}")
    return run


async def first_batch(stage: Stage) -> Facts:
    """Half a batch lands, and after a pause the rest with the marker: one run on all of it."""
    files = stage.digits[: stage.sizes.first_batch]
    half = len(files) // 2
    await stage.land(files[:half], whole=False)
    stage.say(f"the upload pauses for {stage.sizes.pause_seconds:g} s, longer than quiet_seconds")
    await asyncio.sleep(stage.sizes.pause_seconds)
    runs = await stage.cloud.runs(PIPELINE)
    expect(not runs, f"half a batch was trained on: {_states(runs)}")
    await stage.land(files[half:])
    runs = await stage.runs_end(1)
    run = _succeeded(runs[0])
    told = await stage.told(run["id"], "succeeded")
    return {
        "files": len(files),
        "runs": len(runs),
        "dataset_version": run["dataset_version"],
        "model_version": run["model"]["version"],
        "accuracy": run["metrics"]["accuracy"],
        "told_on": sorted(told),
    }


async def the_rest(stage: Stage) -> Facts:
    """The rest lands, its events duplicated, shuffled and through both doors: one more run."""
    await stage.cloud.open_second_door()
    rest = stage.digits[stage.sizes.first_batch :]
    await stage.land(rest)
    paths = {path for path, _ in rest}

    def delivered() -> list[dict[str, Any]] | None:
        events = [each for each in stage.mailbox.blob_events if _digit(each) in paths]
        return events if len(events) >= len(rest) else None

    events = await stage.wait(delivered, "delivery of every BlobCreated event")
    flood = await stage.cloud.publish_again(events, EVENT_COPIES)
    runs = await stage.runs_end(1)
    run = _succeeded(runs[0])
    accuracy, champion = run["metrics"]["accuracy"], run["metrics"]["champion_accuracy"]
    expect(accuracy >= WANTED_ACCURACY, f"accuracy {accuracy} is below {WANTED_ACCURACY}")
    await stage.told(run["id"], "succeeded")
    return {
        "files": len(rest),
        "extra_events": flood,
        "runs": len(runs),
        "dataset_version": run["dataset_version"],
        "model_version": run["model"]["version"],
        "accuracy": accuracy,
        "former_champion_accuracy": champion,
    }


async def the_same_again(stage: Stage) -> Facts:
    """The same content lands again: no run, and explain says why."""
    files = stage.digits[: stage.sizes.landed_again]
    await stage.land(files)
    stage.say("waiting for the landing to settle")

    async def explained() -> dict[str, Any] | None:
        explanation = await stage.cloud.explain(files[-1][0])
        return explanation if explanation["state"] == "duplicate" else None

    explanation = await stage.wait(explained, "explanation of the duplicate")
    runs = await stage.runs_end(0)
    return {
        "files": len(files),
        "runs": len(runs),
        "state": explanation["state"],
        "reason": explanation["reason"],
        "events": len(explanation["events"]),
    }


async def poisoned(stage: Stage) -> Facts:
    """Files that are not images: rejected, dead-lettered, alerted; the pipeline continues."""
    files = no_images(stage.sizes.poisoned)
    await stage.land(files)
    runs = await stage.runs_end(1)
    run = runs[0]
    expect(run["state"] == "rejected", f"run {run['id']} ended {run['state']}, not rejected")
    letters = [each for each in await stage.cloud.dead_letters() if each["run"] == run["id"]]
    expect(len(letters) == 1, f"{len(letters)} dead letters of {run['id']}, expected 1")
    told = await stage.told(run["id"], "failed")
    return {
        "files": len(files),
        "runs": len(runs),
        "state": run["state"],
        "dead_letter_reason": letters[0]["reason"],
        "dead_letter_description": letters[0]["description"],
        "alert": told["service_bus"],
    }


async def killed(stage: Stage) -> Facts:
    """A training process dies during training: the run is retried, resumes, and succeeds."""
    await stage.land(shifted(stage.digits[: stage.sizes.shifted]))

    async def submitted() -> Run | None:
        new = (await stage.cloud.runs(PIPELINE))[stage.known_runs :]
        return new[0] if new and new[0]["state"] in ("queued", "running") else None

    first = await stage.wait(submitted, "run whose job is submitted")
    job = first["job"]
    process = await stage.wait(lambda: find_rank(job, 1), f"process of rank 1 of job {job}")
    stage.say(f"run {first['id']}: waiting for a checkpoint")

    async def killed_after_checkpoint() -> str | None:
        # With injected faults, a listing may be slow. The job must not end before the kill.
        with suspended(process):
            name = await stage.cloud.first_checkpoint(first["dataset_version"])
            if name is not None:
                kill(process)
            return name

    checkpoint = await stage.wait(killed_after_checkpoint, "checkpoint", POLL_SECONDS)
    stage.say(f"killed process {process.pid}, rank 1 of job {job}")
    failed, again = await stage.runs_end(2)
    expect(failed["state"] == "retrying", f"run {failed['id']} ended {failed['state']}")
    _succeeded(again)
    metrics = await stage.cloud.all_metrics(again)
    resumed_from = metrics["resumed_from_step"]
    expect(resumed_from > 0, f"run {again['id']} started from scratch")
    await stage.told(again["id"], "succeeded")
    return {
        "checkpoint": checkpoint,
        "killed_run": failed["id"],
        "retried_as": again["id"],
        "resumed_from_step": resumed_from,
        "steps": metrics["steps"],
        "accuracy": again["metrics"]["accuracy"],
        "model_version": again["model"]["version"],
    }


async def _day_lands(stage: Stage, day: str, files: list[File]) -> Run:
    """A day's digits land, as a batch of their own; the run that registers its model."""
    known = len(await stage.cloud.runs(LIVE))
    await stage.cloud.upload(files, lambda _: None, folder=f"{LIVE}/date={day}/")
    (run,) = await stage.wait_for_runs(known, 1, LIVE)
    return _succeeded(run)


async def _rolled_out(stage: Stage, run: Run, *states: str) -> dict[str, Any]:
    """Wait until the rollout of a run's model is in one of the states."""
    rollout = f"rollout-{LIVE}-{run['model']['version']}"
    stage.say(f"{rollout}: waiting for {' or '.join(states)}")
    return await stage.wait(
        lambda: stage.cloud.rollout(rollout, *states), f"{' or '.join(states)} of {rollout}"
    )


async def goes_live(stage: Stage) -> Facts:
    """A model of all digits goes live; one that only knows zeros and ones passes the gate.

    On its own held-out digits it is even better. It cannot read what customers send: the guard on
    the copies of their requests takes it back, and no customer has noticed.
    """
    number = stage.sizes.first_day
    first_day, later = stage.digits[:number], stage.digits[number:]
    second_day = [file for file in later if file[0].startswith(("0/", "1/"))]
    good = await _day_lands(stage, "2026-11-21", first_day)
    await _rolled_out(stage, good, "baking", "live", "finished")
    endpoint = await asyncio.to_thread(read_endpoint, stage.cloud, LIVE)
    customers = Customers(stage.cloud, endpoint, [image for _, image in later[-CUSTOMERS_IMAGES:]])
    async with customers.sending():
        live = await _rolled_out(stage, good, "finished", "rolled_back")
        expect(live["state"] == "finished", f"the first model did not go live: {live['reason']}")
        worse = await _day_lands(stage, "2026-11-22", second_day)
        customers.answers.clear()
        end = await _rolled_out(stage, worse, "finished", "rolled_back", "superseded")
        expect(end["state"] == "rolled_back", f"the worse model is {end['state']}")
    await stage.told(live["id"], "deployed")
    await stage.told(end["id"], "rolledback")
    endpoint = await asyncio.to_thread(read_endpoint, stage.cloud, LIVE)
    expect(endpoint.traffic == {live["deployment"]: 100}, f"traffic is {endpoint.traffic}")
    expect(endpoint.deployments == [live["deployment"]], f"there are {endpoint.deployments}")
    return {
        "live_model": good["model"]["version"],
        "worse_model": worse["model"]["version"],
        "worse_models_held_out_accuracy": worse["metrics"]["accuracy"],
        "live_models_on_the_same": worse["metrics"]["champion_accuracy"],
        "rolled_back_because": end["reason"],
        "customers_requests_meanwhile": customers.answers.total(),
        "answered_by": sorted({each for each, _ in customers.answers if each}),
        "answered_with_a_label": sum(
            count for (_, status), count in customers.answers.items() if status == HTTPStatus.OK
        ),
    }


@dataclass(frozen=True)
class Story:
    """One story: its action, and the outcome that it must have."""

    play: Callable[[Stage], Awaitable[Facts]]
    outcome: str
    is_beside: bool = False
    """Whether it has its own zone and endpoint, and can be played in parallel."""


STORIES: Mapping[str, Story] = {
    "a first batch lands, with a pause": Story(
        first_batch, "nothing before its marker, then one run, one model"
    ),
    "the rest lands, events duplicated and shuffled": Story(
        the_rest, "one more run, a better champion"
    ),
    "the same content lands again": Story(the_same_again, "no run, and explain says why"),
    "a poisoned batch lands": Story(poisoned, "rejected, dead-lettered, alerted"),
    "a training process is killed": Story(killed, "retried, resumed from its checkpoint"),
    "a model goes live, and a worse one after it": Story(
        goes_live, "rolled back by its guard, before a customer met it", is_beside=True
    ),
}

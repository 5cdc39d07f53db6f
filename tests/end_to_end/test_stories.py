"""The demo's six stories, played in order on one runtime; each has exactly its expected effects.

Every successful activity runs twice, as after the loss of a worker. The tests count all effects, so
that they detect an effect that is repeated instead of adopted by its name. `make demo` plays the
same stories without this, with more digits and with torch.
After a story that fails, the later ones are skipped, because they depend on its results. The story
of the live model has its own zone, and runs in parallel with the others from the beginning.

All parties reach the services by their identities, as on Azure: the app, the topics of Event Grid,
the cluster and the deployer. At the end, somebody goes through the checklist of the first live run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio

from demo import laptop
from demo.audience import Audience, audience
from demo.cloud import PIPELINE, Run
from demo.digits import File, digit_files, shifted
from demo.receivers import Channel, Received
from demo.rehearsal import rehearse
from demo.stories import (
    EVENT_COPIES,
    LIVE,
    STORIES,
    WANTED_ACCURACY,
    Facts,
    Sizes,
    Stage,
)
from demo.waiting import eventually
from localazure.runtime.environment import RUN_ACTIVITIES_TWICE
from tests.end_to_end.pipelines import copy_pipelines, without_torch
from tests.end_to_end.workspace import (
    app_settings,
    jobs,
    manifest,
    model_tags,
    models_by_dataset,
    whole_trace,
)
from tests.local.span_receiver import Spans, receiving

DIGITS = 350
SIZES = Sizes(
    first_batch=200, pause_seconds=2, landed_again=50, poisoned=20, shifted=60, first_day=200
)
PAUSE = "pause"

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]


@dataclass
class Performance:
    """The stories, with their stage."""

    stage: Stage = field(repr=False)
    audience: Audience = field(repr=False)
    endpoints: dict[str, Any] = field(repr=False)  # contains keys
    pause: Path
    """While this file exists, a training from scratch waits at its first checkpoint."""
    beside: Mapping[str, asyncio.Future[Facts]] = field(repr=False)
    """The stories that run in parallel, by name."""
    spans: Spans = field(repr=False)
    told: list[str] = field(default_factory=list[str])

    async def play(self, story: str) -> tuple[Facts, list[Run]]:
        """Play one story, if the earlier ones succeeded; return its facts and its runs."""
        before = list(STORIES)[: list(STORIES).index(story)]
        if self.told != before:
            pytest.skip(f"depends on {before}, of which {self.told} succeeded")
        if story in self.beside:
            facts, known = await self.beside[story], []
            runs = await self.stage.cloud.runs(LIVE)
        else:
            known = await self.runs()  # fails immediately if the runtime has ended
            facts = await STORIES[story].play(self.stage)
            runs = await self.runs()
        assert runs[: len(known)] == known, "an ended run has changed"
        self.told.append(story)
        return facts, runs[len(known) :]

    async def runs(self) -> list[Run]:
        """The runs of the stories that are played in order, oldest first."""
        return await self.stage.cloud.runs(PIPELINE)

    def notifications(self) -> list[Received]:
        """The notifications about these runs."""
        return [each for each in self.stage.mailbox.notifications if LIVE not in each.run]

    async def models(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(models_by_dataset, self.stage.cloud)

    async def jobs(self, pipeline: str = PIPELINE) -> dict[str, Any]:
        """Name → status of a pipeline's jobs. A job has the name of its run: `<pipeline>-…`."""
        found = await asyncio.to_thread(jobs, self.stage.cloud)
        return {name: found[name] for name in found if name.rsplit("-", 2)[0] == pipeline}

    async def manifest(self, run: Run) -> dict[str, str]:
        """Path → MD5 of the files in a run's dataset."""
        lines = await manifest(self.stage.cloud.blobs, run["dataset_version"])
        return {line["path"]: line["md5"] for line in lines}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def performance(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Performance]:
    state = tmp_path_factory.mktemp("stories")
    pipelines = copy_pipelines(state / "pipelines", job=without_torch(state / PAUSE), pipeline={})
    settings = {RUN_ACTIVITIES_TWICE: "true", "PIPELINES_FOLDER": str(pipelines)}
    with receiving() as (receiver, spans):
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver
        async with perform(state, settings, spans) as performance:
            yield performance


@contextlib.asynccontextmanager
async def perform(
    state: Path, settings: dict[str, str], spans: Spans
) -> AsyncGenerator[Performance]:
    async with (
        audience() as listeners,
        laptop.running(state, {**listeners.settings, **settings}) as endpoints,
        listeners.watching(endpoints) as cloud,
    ):
        digits = digit_files(state / "digits")[:DIGITS]
        stage = Stage(cloud, listeners.mailbox, lambda _: None, digits, sizes=SIZES)
        with app_settings(endpoints):
            beside = {
                name: asyncio.ensure_future(story.play(stage))
                for name, story in STORIES.items()
                if story.is_beside
            }
            yield Performance(stage, listeners, endpoints, state / PAUSE, beside, spans)
            for task in beside.values():
                task.cancel()
            await asyncio.gather(*beside.values(), return_exceptions=True)


def content_of(files: list[File]) -> dict[str, str]:
    return {path: hashlib.md5(content).hexdigest() for path, content in files}  # noqa: S324 - storage uses it


async def test_a_first_batch_lands(performance: Performance) -> None:
    facts, (run,) = await performance.play("a first batch lands, with a pause")

    assert await performance.manifest(run) == content_of(
        performance.stage.digits[: SIZES.first_batch]
    )
    assert (run["pipeline"], run["attempt"], run["job"]) == ("digits", 1, run["id"])
    assert await performance.jobs() == {run["id"]: "Completed"}
    models = await performance.models()
    assert models.keys() == {run["dataset_version"]}
    model = models[run["dataset_version"]]
    assert (model["job"], model["version"]) == (run["id"], facts["model_version"])
    assert model["metrics"]["accuracy"] == pytest.approx(facts["accuracy"])
    await performance.audience.was_told(run, "started", "succeeded")


async def test_one_trace_leads_from_the_event_to_the_model_and_the_notifications(
    performance: Performance,
) -> None:
    if not performance.told:
        pytest.skip("depends on the first story")
    (run, *_) = await performance.runs()
    registered = await asyncio.to_thread(model_tags, performance.stage.cloud, run["id"])
    trace = registered["landfall.traceparent"].split("-")[1]
    received = [
        each for each in performance.audience.mailbox.notifications if each.run == run["id"]
    ]
    assert len(received) == 6
    assert {str(each.traceparent).split("-")[1] for each in received} == {trace}

    def complete() -> list[dict[str, Any]] | None:
        spans = whole_trace(performance.spans, trace, run["id"]) or []
        ids = {span["spanId"] for span in spans}
        # The trigger that opened the batch sends its span independently of the run.
        opened = [span for span in spans if span["name"] == "batch digits"]
        return spans if any(span["parentSpanId"] in ids for span in opened) else None

    spans: list[dict[str, Any]] = await eventually(complete, 120, f"the whole trace {trace}")
    by_id = {span["spanId"]: span for span in spans}
    # No "running": as on Azure no event reports it, and a short job can run between two polls.
    known = {"accept digits", "batch digits", "run digits", "queued", "publishing", "train"}
    assert {span["name"] for span in spans} >= known

    def ancestors(span: dict[str, Any]) -> list[str]:
        above = by_id.get(span.get("parentSpanId", ""))
        return [span["name"], *(ancestors(above) if above else [])]

    to_the_event = ["run digits", "batch digits", "accept digits"]
    for name in ("train", "publishing"):
        (span,) = [each for each in spans if each["name"] == name]
        assert ancestors(span) == [name, *to_the_event]
    # Each delivery to a receiver is a span of the trace.
    for each in received:
        _, _, span_id, _ = str(each.traceparent).split("-")
        assert ancestors(by_id[span_id])[1:] == to_the_event


async def test_the_rest_lands_with_each_event_four_times(performance: Performance) -> None:
    facts, (run,) = await performance.play("the rest lands, events duplicated and shuffled")

    assert facts["extra_events"] >= EVENT_COPIES * (DIGITS - SIZES.first_batch)
    assert await performance.manifest(run) == content_of(performance.stage.digits)
    models = await performance.models()
    assert len(models) == 2
    better = models[run["dataset_version"]]
    assert better["job"] == run["id"]
    assert better["metrics"]["accuracy"] >= WANTED_ACCURACY
    assert int(better["version"]) > min(int(model["version"]) for model in models.values())
    # Judged against the model of the first story, on the same held-out digits.
    assert 0 < run["metrics"]["champion_accuracy"] <= 1
    assert (await performance.jobs()).keys() == {model["job"] for model in models.values()}
    await performance.audience.was_told(run, "started", "succeeded")


async def test_the_same_content_lands_again(performance: Performance) -> None:
    before = await performance.models(), await performance.jobs(), performance.notifications()
    facts, runs = await performance.play("the same content lands again")

    assert runs == []
    assert facts["state"] == "duplicate"
    assert facts["events"] >= 1
    after = await performance.models(), await performance.jobs(), performance.notifications()
    assert after == before
    # The explanation is the same for other files than the one in the story.
    for path, _ in performance.stage.digits[: SIZES.landed_again : SIZES.landed_again // 5]:
        found = await performance.stage.cloud.explain(path)
        assert found["state"] == "duplicate", path


async def test_a_poisoned_batch_lands(performance: Performance) -> None:
    models = await performance.models()
    facts, (run,) = await performance.play("a poisoned batch lands")

    lines = await performance.manifest(run)
    assert len(lines) == len(performance.stage.digits) + SIZES.poisoned
    assert (run["attempt"], run["model"]) == (1, None)  # not retried
    assert facts["dead_letter_reason"] == run["error"]["type"] == "DataRejected"
    assert f"{SIZES.poisoned} of {len(lines)} files" in facts["dead_letter_description"]
    assert await performance.models() == models
    assert (await performance.jobs())[run["id"]] == "Failed"
    await performance.audience.was_told(run, "started", "failed")


async def test_a_training_process_is_killed(performance: Performance) -> None:
    performance.pause.touch()
    facts, runs = await performance.play("a training process is killed")

    first, second = runs
    assert [run["attempt"] for run in runs] == [1, 2]
    assert first["dataset_version"] == second["dataset_version"]
    assert 0 < facts["resumed_from_step"] < facts["steps"]
    # The poisoned files were left out; the batch is the digits and the shifted ones.
    digits = performance.stage.digits
    assert await performance.manifest(second) == content_of(
        [*digits, *shifted(digits[: SIZES.shifted])]
    )
    models = await performance.models()
    assert len(models) == 3
    assert models[second["dataset_version"]]["job"] == second["id"]
    found = await performance.jobs()
    assert (found[first["id"]], found[second["id"]]) == ("Failed", "Completed")
    await performance.audience.was_told(first, "started", "retrying")
    await performance.audience.was_told(second, "started", "succeeded")


async def test_a_model_goes_live_and_a_worse_one_is_rolled_back(performance: Performance) -> None:
    facts, (good, worse) = await performance.play("a model goes live, and a worse one after it")

    assert good["dataset_version"] != worse["dataset_version"]
    trained = await performance.jobs(LIVE)
    assert trained == {good["id"]: "Completed", worse["id"]: "Completed"}
    # The worse model has the better metric at the gate.
    assert facts["worse_models_held_out_accuracy"] > facts["live_models_on_the_same"]
    assert re.fullmatch(
        r"\d\d\.\d% of \d+ requests failed; deploy\.guards\.error_rate is 10\.0%",
        facts["rolled_back_because"],
    )
    listed = (await performance.stage.cloud.api("rollouts"))["rollouts"]
    assert [(each["run"], each["state"]) for each in listed] == [
        (worse["id"], "rolled_back"),
        (good["id"], "finished"),
    ]
    # The guard measured copies of the requests: the first model answered every customer.
    live = f"model-{good['model']['version']}"
    assert facts["answered_by"] == [live]
    assert facts["customers_requests_meanwhile"] > 40
    assert facts["answered_with_a_label"] > 0.9 * facts["customers_requests_meanwhile"]
    for run, kinds in ((good, ("deploying", "deployed")), (worse, ("deploying", "rolledback"))):
        rollout = f"rollout-{LIVE}-{run['model']['version']}"
        received = [each for each in performance.stage.mailbox.notifications if each.run == rollout]
        assert sorted((each.kind, each.channel) for each in received) == sorted(
            (kind, channel) for kind in kinds for channel in get_args(Channel)
        )
    # Its steps are in the trace that began with the batch's event.
    for run, error in ((good, None), (worse, "rolled_back")):
        tags = await asyncio.to_thread(model_tags, performance.stage.cloud, run["id"], LIVE)
        trace = tags["landfall.traceparent"].split("-")[1]

        def complete(trace: str = trace, run: Run = run) -> list[dict[str, Any]] | None:
            rollout = f"rollout {run['pipeline']}"
            return whole_trace(performance.spans, trace, run["id"], rollout)

        spans: list[dict[str, Any]] = await eventually(complete, 30, f"the rollout in {trace}")
        (above,) = [each for each in spans if each["name"].startswith("rollout ")]
        steps = [each for each in spans if each.get("parentSpanId") == above["spanId"]]
        assert {each["name"] for each in steps} == {"waiting", "deploying", "testing", "baking"}
        errors = [each["value"] for each in above["attributes"] if each["key"] == "error.type"]
        assert errors == ([] if error is None else [{"stringValue": error}])


async def test_every_notification_came_once_on_each_channel(
    performance: Performance,
) -> None:
    if performance.told != list(STORIES):
        pytest.skip("not every story succeeded")
    channels: dict[str, list[Channel]] = defaultdict(list)
    for each in performance.stage.mailbox.notifications:
        channels[each.id].append(each.channel)
    runs = await performance.stage.cloud.runs()
    assert len(channels) == 2 * (len(runs) + 2), sorted(channels)  # two rollouts
    assert {tuple(sorted(each)) for each in channels.values()} == {
        ("event_grid", "service_bus", "webhook")
    }
    assert len(runs) == 7
    assert len(await performance.jobs()) == 5


async def test_the_checklist_of_the_first_live_run(performance: Performance) -> None:
    """It has azd's hook land a batch; no log contains a refusal by infra/roles.json."""
    outcomes = [each async for each in rehearse(performance.endpoints)]
    states = Counter(each.state for each in outcomes)
    differing = {each.line.command: each.output for each in outcomes if each.state == "differs"}
    # The stories left a dead letter.
    assert differing.keys() <= {"landfall doctor", "landfall dead-letters list"}, differing
    assert states["ok"] >= 10
    folder = performance.pause.with_name("logs")
    logs = [path.read_text("utf-8", "replace") for path in folder.iterdir()]
    refusals = ("AuthorizationPermissionMismatch", "AuthorizationFailed", "Unauthorized access")
    assert [each for each in refusals if any(each in log for log in logs)] == []

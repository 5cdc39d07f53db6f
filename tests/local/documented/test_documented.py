"""Every command of the pages runs on a laptop as the page shows it, or says what it needs.

Example values of a page (`6d14107ab3046c71`, a run, a dead letter) stand for the laptop's own; a
pattern stands for what an earlier command of the block printed. Blocks of the tasks run in
`tests/local/operators/test_tasks_by_command.py`, and each target of `make` by itself:
`tests/contract` sees that there are no others.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from standardwebhooks import Webhook

from demo.console import ROOT, Block, blocks, confirmed, run, shows
from demo.rehearsal import variables
from demo.waiting import API_POLL_SECONDS, eventually
from tests.replay.record import copy_pipeline, make_app, on_stage
from tests.replay.scene import Scene, ended_as, is_in

LIMIT_SECONDS = 180
LIVE = "digits-live"
WITHOUT_QUOTA = ("without-quota-1", "without-quota-2")
BUSY, FAILING, HELD = "cancelled", "hopeless", "shrunk"
SLICED = "sliced"
ASKED, ASKED_TOO = "asked", "asked-too"
PROMOTED = "promoted"
IN_PRODUCTION = [
    {"principal": "app", "role": role, "scope": scope, "when": "always", "reason": "docs/deploy.md"}
    for role, scope in (
        ("Storage Blob Data Contributor", "storageAccounts/production"),
        ("AzureML Data Scientist", "workspaces/production"),
    )
]
"""The app's roles for the workspace to which models are promoted."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass
class Reader:
    """Somebody who types what a page shows."""

    scene: Scene
    folder: Path
    """Looks like the repository; commands may write into it."""
    variables: Mapping[str, str]
    people: asyncio.TaskGroup | None = None
    """Others, who act while a command waits for them."""

    async def until(self, path: str, found: Callable[[Any], Any]) -> Any:
        functions = self.scene.endpoints["functions"]
        url, key = f"{functions['base_url']}/api/{path}", functions["function_key"]

        async def look() -> Any:
            async with self.scene.http.get(url, headers={"x-functions-key": key}) as answer:
                return found(await answer.json()) or None

        return await eventually(look, LIMIT_SECONDS, f"{path} as wanted", API_POLL_SECONDS)

    async def run_of(self, pipeline: str, state: str = "") -> str:
        """The id of a pipeline's newest run, or its newest one in a state."""
        path = f"runs?pipeline={pipeline}" + (f"&state={state}" if state else "")
        return (await self.until(path, lambda found: found["runs"]))[0]["id"]

    async def question(self, pipeline: str) -> str:
        """The id of the open question about a pipeline."""

        def ours(found: Any) -> Any:
            asked = found["approvals"]
            return [each["id"] for each in asked if each["agreed"]["pipeline"] == pipeline]

        return (await self.until("approvals", ours))[0]


Values = Mapping[str, str | re.Pattern[str]]
"""What a page says -> what is meant on this laptop."""


async def as_it_is(_: Reader) -> Values:
    return {}


async def signed_request(reader: Reader) -> Values:
    now = datetime.now(UTC)
    signature = Webhook(reader.scene.secret).sign("a-request", now, "")
    return {
        "webhook-id: …": "webhook-id: a-request",
        "webhook-timestamp: …": f"webhook-timestamp: {int(now.timestamp())}",
        "webhook-signature: v1,…": f"webhook-signature: {signature}",
        "4f1c…": "…",
    }


async def two_versions(reader: Reader) -> Values:
    def three(found: Any) -> Any:
        return found["runs"][2:] and [run["dataset_version"] for run in found["runs"]]

    newest, _, oldest = await reader.until("runs?pipeline=digits", three)
    return {"6d14107ab3046c71": newest, "09f1c2aa51be7d3e": oldest}


async def a_person(reader: Reader) -> Values:
    (reader.folder / "blobs.txt").write_text("landing/digits/person\n")
    return {"forget-20261128T071500-1f0c2a4b": re.compile(r"forget-\w+-\w+")}


async def three_models(_: Reader) -> Values:
    return {'"version": "3"': '"version": "1"', "rollout-digits-live-3_1": "rollout-digits-live-…"}


async def a_letter(reader: Reader) -> Values:
    wanted = await reader.run_of(FAILING)

    def of_run(found: Any) -> Any:
        return [each["id"] for each in found["dead_letters"] if each["run"] == wanted]

    (letter,) = await reader.until("dead-letters", of_run)
    return {"[7]": f"[{letter}]"}


async def a_busy_run(reader: Reader) -> Values:
    return {"digits-6d14107ab3046c71-1": await reader.run_of(BUSY)}


async def a_held_batch(reader: Reader) -> Values:
    held = await reader.until(f"pipelines/{HELD}", lambda found: found["zones"][0]["held"])
    return {"pipelines/digits/": f"pipelines/{HELD}/", "6d14107ab3046c71": held["dataset_version"]}


async def a_failed_run(reader: Reader) -> Values:
    """A run without quota that is dead-lettered, and was not redriven yet."""

    def waiting(found: Any) -> Any:
        return sorted(
            each["run"] for each in found["dead_letters"] if each["reason"] == "QuotaExceeded"
        )

    failed = (await reader.until("dead-letters", waiting))[0]
    attempt = int(failed[-1])
    return {
        "digits-93a43eed5c156d42-1": failed,
        "digits-93a43eed5c156d42-2": f"{failed[:-1]}{attempt + 1}",
        "cpu-large": "gpu",
        "Standard_D8s_v5": "Standard_NC6s_v3",
    }


async def a_rollout(reader: Reader) -> Values:
    def baking(found: Any) -> Any:
        return [each for each in found["rollouts"] if each["state"] == "baking"]

    (found,) = await reader.until("rollouts", baking)
    version = found["model"]["version"]
    return {
        "rollout-digits-live-4": found["id"],
        "digits-live:3": f"{LIVE}:{version}",
        "on version 2": f"on version {int(version) - 1}",  # first: 3 may become 2
        "on version 3": f"on version {version}",
    }


async def a_sliced_run(reader: Reader) -> Values:
    return {"sliced-bf209882d8ed2883-1": await reader.run_of(SLICED, "not_promoted")}


async def two_questions(reader: Reader) -> Values:
    return {
        "rollout-digits-live-4.rollout": await reader.question(ASKED),
        "digits-6d14107ab3046c71-2.registration": await reader.question(ASKED_TOO),
    }


async def somebody_who_approves(reader: Reader) -> Values:
    assert reader.people is not None
    reader.people.create_task(replace(reader.scene, pipeline=PROMOTED).answer("approve"))
    # An answer within a second comes before the command has read that it is awaited.
    awaited = "awaiting_approval: waiting for approval before promotion; without an answer it is"
    return {"--reason": "--by eve --reason", f"{awaited} rejected at": "…"}


async def a_model(_: Reader) -> Values:
    return {"digits:1": "digits:3"}  # whose files nothing has overwritten since


MEANT: Mapping[tuple[str, str], Callable[[Reader], Awaitable[Values]]] = {
    ("docs/operators.md", "The command line"): as_it_is,
    ("landfall_cli/README.md", "landfall"): as_it_is,
    ("docs/data-checks.md", "What changed"): two_versions,
    ("docs/data-checks.md", "What if"): as_it_is,
    ("docs/deploy.md", "First run, step by step"): as_it_is,
    ("README.md", "Add a pipeline"): signed_request,
    ("docs/operations.md", "What the gate compares"): a_sliced_run,
    ("docs/operations.md", "Reproduce a model"): a_model,
    ("docs/rollout.md", "People decide"): a_rollout,
    ("docs/rollout.md", "One way there, one way back"): a_rollout,
    ("docs/rollout.md", "Ask people first"): two_questions,
    ("docs/rollout.md", "To another workspace"): somebody_who_approves,
    ("docs/http-api.md", "Models"): three_models,
    ("docs/http-api.md", "Cancel"): a_busy_run,
    ("docs/operations.md", "Release a held batch"): a_held_batch,
    ("docs/operations.md", "Dead letters and redrive"): a_failed_run,
    ("docs/http-api.md", "Dead letters"): a_letter,
    # The last one: what is forgotten is in no later dataset.
    ("docs/data-checks.md", "Forget"): a_person,
}
"""Page and section of the blocks that run here, in this order."""
ORDER = list(MEANT)
RUN_HERE = sorted(
    (
        each
        for each in blocks()
        if not (each.needs or each.run_by) and (each.page, each.section) in MEANT
    ),
    key=lambda each: ORDER.index((each.page, each.section)),
)


async def three_batches(scene: Scene) -> None:
    await scene.blobs.get_container_client("landing").upload_blob("digits/person", "ada")
    for number, accuracy in enumerate((0.7, 0.8, 0.9), start=1):
        await scene.land(str(number), accuracy=accuracy)
        await scene.landed(number)


async def live(scene: Scene) -> None:
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("2", accuracy=0.8)
    await scene.until("rollout", is_in("baking"))


async def failing(scene: Scene) -> None:
    await scene.land("1", crashes=9)
    await scene.ended("failed")


async def without_quota(scene: Scene) -> None:
    await scene.land("1")
    await scene.ended("rejected")


async def a_fallen_slice(scene: Scene) -> None:
    await scene.land("1", accuracy=0.7)
    await scene.landed()
    await scene.land("2", accuracy=0.9, fell=60)
    await scene.landed(2)


PLAYS: Mapping[str, Callable[[Scene], Coroutine[Any, Any, None]]] = {
    "digits": three_batches,
    LIVE: live,
    HELD: Scene.hold,
    BUSY: Scene.be_busy,
    FAILING: failing,
    SLICED: a_fallen_slice,
    PROMOTED: Scene.train,
    **dict.fromkeys((ASKED, ASKED_TOO), Scene.ask_people),
    **dict.fromkeys(WITHOUT_QUOTA, without_quota),
}
"""Pipeline → what brings about what the pages tell of."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Reader]:
    state = tmp_path_factory.mktemp("documented")
    same = (HELD, BUSY, FAILING, SLICED, PROMOTED)
    options = make_app(state, ("batches", "rolled-out", "no-quota", *same))
    copies = {"digits": "batches", LIVE: "rolled-out", **dict.fromkeys(WITHOUT_QUOTA, "no-quota")}
    for copy, name in copies.items():
        copy_pipeline(options.app, name, copy)
    pipelines = options.app / "pipelines"
    for name in (ASKED, ASKED_TOO):
        copy_pipeline(options.app, "batches", name)
        with (pipelines / name / "pipeline.yml").open("a", encoding="utf-8") as file:
            file.write("approve: {before: registration}\n")
    for each in pipelines.glob("*/pipeline.yml"):  # no run waits for another's nodes
        name = each.parent.name
        each.write_text(each.read_text("utf-8").replace("cluster: cpu\n", f"cluster: {name}\n"))
    live = pipelines / LIVE / "pipeline.yml"
    document = yaml.safe_load(live.read_text("utf-8"))
    bakes = [(20, 60), (50, 60), (100, 0)]
    # A first answer that takes longer than 5 s fails: on a busy machine that says nothing.
    document["deploy"]["guards"]["error_rate"] = 1.0
    document["deploy"]["steps"] = [{"traffic": t, "bake_minutes": b} for t, b in bakes]
    live.write_text(yaml.safe_dump(document))
    roles = json.loads((ROOT / "infra" / "roles.json").read_text("utf-8"))  # with a deployer
    roles["assignments"] += IN_PRODUCTION
    (options.app / "infra" / "roles.json").write_text(json.dumps(roles))
    (pipelines / "smoke").symlink_to(ROOT / "pipelines" / "smoke")
    folder = state / "clone"
    folder.mkdir()
    for each in ("infra", "pipelines"):
        (folder / each).symlink_to(ROOT / each)
    async with on_stage(options, lambda _: None) as scene:
        async with asyncio.TaskGroup() as group:
            for name, play in PLAYS.items():
                group.create_task(play(replace(scene, pipeline=name)))
        yield Reader(scene, folder, variables(scene.endpoints))


@pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: block.place)
async def test_the_commands_of_a_page_do_what_it_says(reader: Reader, block: Block) -> None:
    url, key = (reader.variables[name] for name in ("LANDFALL_URL", "LANDFALL_KEY"))
    everywhere = dict.fromkeys(
        ("https://<app>.azurewebsites.net", "https://<app>", "http://127.0.0.1:7071"), url
    )
    async with asyncio.TaskGroup() as people:
        meant = await MEANT[block.page, block.section](replace(reader, people=people))
        values: Values = {**everywhere, "<function key>": key, **meant}
        await run_all(block, values, reader)


async def run_all(block: Block, values: Values, reader: Reader) -> None:
    """Run the commands of a block, one after the other, and compare what they print."""
    exports: list[str] = []
    printed = ""

    def said(text: str) -> str:
        for example, value in values.items():
            found = value.search(printed) if isinstance(value, re.Pattern) else None
            text = text.replace(example, found[0] if found else str(value))
        return re.sub(r"\b(\w+)=…", r"\1=$\1", text)  # a variable that is set already

    for command in block.commands:
        text = said(command.text)
        exports += [text] if text.startswith("export ") else []
        done = await run("\n".join([*exports, confirmed(text)]), reader.variables, reader.folder)
        printed += done.output
        # There are dead letters here, and doctor says so.
        tells = "exit status 1" in text or text.startswith("landfall doctor")
        assert done.status in ((0, 1) if tells else (0,)), (text, done.output)
        assert '"status": 4' not in done.output, (text, done.output)  # a problem of the API
        assert shows(done.output, said(command.output)), (text, done.output)

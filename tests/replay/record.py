"""Record the histories that `test_replay.py` replays, from real runs of the app.

    python -m tests.replay.record --state DIR [--only SITUATION ...] [--jobs N]

It runs the app on localazure, on free ports and with all state in DIR (which is emptied first),
brings each of `situations.SITUATIONS` about with real blobs, events, messages and jobs, and writes
what the orchestrators were asked and answered to `histories/`. It takes about three minutes.

Record again, and read the difference, when an orchestrator takes other steps on purpose. Instances
that run during a deployment replay their old histories with the new code, and fail where these
differ. Such a change needs a new `defaultVersion` in host.json (CONTRIBUTING.md, Change an
orchestrator).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import importlib.metadata
import json
import re
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import aiohttp
import yaml
from azure.storage.blob.aio import BlobServiceClient

from localazure.supervision.endpoints import describe_endpoints
from localazure.supervision.supervisor import Options, running
from tests.replay.recording import HISTORIES, Recording
from tests.replay.scene import Scene
from tests.replay.situations import (
    NO_QUOTA_SIZE,
    QUEUES,
    SITUATIONS,
    WORKSPACES,
    pipeline_document,
)
from tests.replay.tape import Tape, without_machine

ROOT = Path(__file__).parents[2]
PARTS = Path(__file__).parent / "recorded_app"
INFRA = ROOT / "infra" / "local"
SDK = "azure-functions-durable"


def main() -> int:
    """Record; exit status 0 when every situation came about."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True, help="is emptied first")
    parser.add_argument("--only", nargs="+", choices=sorted(SITUATIONS), default=list(SITUATIONS))
    parser.add_argument("--jobs", type=int, default=3, help="situations at a time (default: 3)")
    given = parser.parse_args()
    return asyncio.run(_record(given.state.resolve(), given.only, given.jobs))


async def _record(state: Path, names: list[str], at_a_time: int) -> int:
    shutil.rmtree(state, ignore_errors=True)
    # Trace ids would differ in each recording.
    options = make_app(state, SITUATIONS, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
    turns = asyncio.Semaphore(at_a_time)
    async with on_stage(options, _say) as any_scene:

        async def play(name: str) -> bool:
            scene = replace(any_scene, pipeline=name)
            async with turns:
                try:
                    await SITUATIONS[name].play(scene)
                except Exception as error:  # noqa: BLE001 - the others are recorded all the same
                    _say(f"{name}: {type(error).__name__}: {error}")
                    return False
            for recording in _recordings(name, scene.tape):
                _write(recording, state)
            return True

        came_about = await asyncio.gather(*(play(name) for name in names))
    return 0 if all(came_about) else 1


@asynccontextmanager
async def on_stage(options: Options, say: Callable[[str], None]) -> AsyncGenerator[Scene]:
    """Run the app of `make_app`; a scene without a pipeline."""
    settings = json.loads((options.app / "app-settings.json").read_text("utf-8"))
    async with running(options, say) as (environment, _):
        endpoints = describe_endpoints(environment)
        storage = endpoints["storage_accounts"]["landfalldata"]
        async with (
            aiohttp.ClientSession() as http,
            BlobServiceClient.from_connection_string(storage) as blobs,
        ):
            yield Scene(
                pipeline="",
                endpoints=endpoints,
                http=http,
                blobs=blobs,
                tape=Tape(Path(settings["TAPE"])),
                secret=settings["INBOUND_WEBHOOK_SECRET"],
                pipelines=Path(settings["PIPELINES_FOLDER"]),
            )


def _recordings(name: str, tape: Tape) -> list[Recording]:
    release = _release()
    sdk = f"{SDK} {importlib.metadata.version(SDK)}"
    recordings: list[Recording] = []
    for kept_as, kept in SITUATIONS[name].keep.items():
        generations = [
            each for each in tape.generations(kept.orchestrator, name) if kept.holds(each)
        ]
        chosen = generations[kept.number - 1]
        recordings.append(chosen.to_recording(f"{kept.orchestrator}-{kept_as}", release, sdk))
    return recordings


def _write(recording: Recording, state: Path) -> None:
    places = {
        str(state): "/state",
        sys.prefix: "/venv",
        sys.base_prefix: "/python",
        str(ROOT): "/app",
    }
    HISTORIES.mkdir(exist_ok=True)
    file = HISTORIES / f"{recording.name}.json"
    file.write_text(without_machine(recording.to_text(), places), "utf-8")
    _say(f"{file.name}: {len(recording.episodes)} episodes, {file.stat().st_size} bytes")


def make_app(
    state: Path, situations: Iterable[str], settings: Mapping[str, str] = MappingProxyType({})
) -> Options:
    """An app folder that loads the repository's app, with a pipeline for each situation."""
    app = state / "app"
    (app / "program").mkdir(parents=True)
    shutil.copy(PARTS / "function_app.py", app)
    shutil.copy(PARTS / "train.py", app / "program")
    shutil.copy(ROOT / "host.json", app)
    for name in situations:
        folder = app / "pipelines" / name
        folder.mkdir(parents=True)
        (folder / "pipeline.yml").write_text(yaml.safe_dump(pipeline_document(name)))
        shutil.copy(PARTS / "job.yml", folder)
        deploy = pipeline_document(name).get("deploy")
        if deploy is not None:
            parts = "deploy-batch" if deploy.get("kind") == "batch" else "deploy"
            shutil.copytree(PARTS / parts, folder, dirs_exist_ok=True)
    (app / "pipelines" / "queues.yml").write_text(yaml.safe_dump(QUEUES))
    (app / "pipelines" / "workspaces.yml").write_text(yaml.safe_dump(WORKSPACES))
    ours = json.loads((INFRA / "app-settings.json").read_text("utf-8"))
    own = {
        "RECORDED_APP": str(ROOT),
        "PIPELINES_FOLDER": str(app / "pipelines"),
        "TAPE": str(state / "tape.jsonl"),
        "ProductionStorage": "{storage_connection_string:production}",
        "INBOUND_WEBHOOK_SECRET": "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode(),
    }
    (app / "app-settings.json").write_text(json.dumps({**ours, **own, **settings}))
    azure_ml = json.loads((INFRA / "azure-ml.json").read_text("utf-8"))
    azure_ml["quota"] = {NO_QUOTA_SIZE: 0}
    azure_ml["provisioningSeconds"] = 0
    azure_ml["otherWorkspaces"] = [{"name": "production", "storageAccount": "production"}]
    storage = json.loads((INFRA / "storage.json").read_text("utf-8"))
    storage["accounts"].append({"name": "production", "containers": ["azureml-blobstore"]})
    config = app / "infra" / "local"
    shutil.copytree(INFRA, config)
    (config / "azure-ml.json").write_text(json.dumps(azure_ml))
    (config / "storage.json").write_text(json.dumps(storage))
    return Options(
        app=app,
        state=state,
        port_base=0,
        config=config,
        app_settings=app / "app-settings.json",
    )


def copy_pipeline(app: Path, name: str, copy: str) -> None:
    """A pipeline more in an app's folder, as another one but for its name."""
    folder = app / "pipelines" / copy
    shutil.copytree(app / "pipelines" / name, folder)
    file = folder / "pipeline.yml"
    file.write_text(file.read_text("utf-8").replace(name, copy))


def _release() -> str:
    """The changelog's newest heading."""
    match = re.search(
        r"^## \[?([^\]\n]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert match is not None
    return match[1].strip()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

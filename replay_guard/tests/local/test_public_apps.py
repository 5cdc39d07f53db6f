"""Public Durable apps run on localazure, and each kind of change to them is refused.

`PUBLIC_DURABLE_APPS` is a folder with clones of the repositories in `APPS`, each under its name.
None of them is in this repository, so that the tests are skipped without it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durable_apps.commands import check, export, guard, is_completed, running, start, until
from durable_apps.planted_changes import KINDS, plant, set_version

FOLDER = os.environ.get("PUBLIC_DURABLE_APPS")
VERSION = "1.0"

pytestmark = pytest.mark.skipif(FOLDER is None, reason="PUBLIC_DURABLE_APPS is not set")


@dataclass(frozen=True, kw_only=True)
class PublicApp:
    """An app, and what of it is run and changed."""

    repository: str
    folder: str
    orchestrators: dict[str, Any]
    """Name → input. Changes are made to the first one that has something of their kind."""
    import_root: str = "."
    """The folder of its modules, relative to the app's: it is deployed as the root."""
    edited: tuple[str, str, str] | None = None
    """A file, and a text that is replaced in it, so that a worker on this Python loads the app."""
    ends: bool = True
    """Otherwise the history is exported while it waits for a timer."""


APPS = {
    "function chaining": PublicApp(
        repository="azure-functions-durable-python",
        folder="samples-v2/function_chaining",
        orchestrators={"my_orchestrator": None},
    ),
    "work item filtering": PublicApp(
        repository="Durable-Task-Scheduler",
        folder="samples/durable-functions/python/work-item-filtering",
        orchestrators={
            "parent_orchestration": None,
            "counter_orchestration": None,
            "fan_out_orchestration": None,
        },
    ),
    "monitor": PublicApp(
        repository="azure-durable-functions-python-testing-samples",
        folder=".",
        orchestrators={"example_orchestration": {"input": "Hello, World!"}},
        import_root="src",
        # The worker refuses parametrised types on bindings.
        edited=("app/activties/example_echo_activity.py", "dict[str, Any]", "dict"),
        ends=False,
    ),
    "fan-out of downloads": PublicApp(
        repository="durable-functions-quickstart-python-azd",
        folder="src",
        orchestrators={"fetch_orchestration": None},
    ),
}
# Its only steps begin in one instant, which has no order in what the management API shows.
WITHOUT_ORDER = frozenset({"fan-out of downloads"})


def deploy(app: PublicApp, folder: Path) -> Path:
    """A copy of the app, whose instances are of a version."""
    assert FOLDER is not None
    source = Path(FOLDER) / app.repository / app.folder
    names = shutil.ignore_patterns(".git", "tests", "local.settings.json")
    shutil.copytree(source, folder, ignore=names)
    if app.import_root != ".":
        shutil.copytree(folder / app.import_root, folder, dirs_exist_ok=True)
        shutil.rmtree(folder / app.import_root)
    if app.edited is not None:
        file, old, new = app.edited
        text = (folder / file).read_text("utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new))
    set_version(folder, VERSION)
    return folder


def has_timer(status: Any) -> bool:
    kinds = {each["EventType"] for each in status.get("historyEvents") or ()}
    return is_completed(status) or "TimerCreated" in kinds


async def run_and_export(app: PublicApp, deployed: Path, folder: Path) -> None:
    async with running(deployed, folder / "state") as (url, client):
        for name, given in app.orchestrators.items():
            await start(client, name, given)
            await until(client, f"{name}-1", is_completed if app.ends else has_timer)
        await export(url, folder / "histories")


@pytest.fixture(scope="module", params=APPS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    name: str = request.param
    folder = tmp_path_factory.mktemp("public")
    deployed = deploy(APPS[name], folder / "app")
    asyncio.run(run_and_export(APPS[name], deployed, folder))
    return name, deployed, folder / "histories"


def test_unchanged_code_fits(exported: tuple[str, Path, Path]) -> None:
    name, deployed, histories = exported
    ran = check(deployed, histories, guard)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(list(histories.glob('*.json')))} histories" in ran.stdout, name


@pytest.mark.parametrize("kind", [*KINDS, "version"])
def test_a_planted_change_is_refused(
    exported: tuple[str, Path, Path], tmp_path: Path, kind: str
) -> None:
    name, _, histories = exported
    if kind == "order" and name in WITHOUT_ORDER:
        pytest.skip("its steps have no order")
    changed, orchestrator = plant_in_one(APPS[name], tmp_path, kind)
    ran = check(changed, histories, guard)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert orchestrator in ran.stdout


def plant_in_one(app: PublicApp, folder: Path, kind: str) -> tuple[Path, str]:
    """The changed app, and its orchestrator that was changed."""
    for number, orchestrator in enumerate(app.orchestrators):
        changed = deploy(app, folder / f"app-{number}")
        try:
            plant(kind, changed, orchestrator)
        except LookupError:
            continue
        return changed, orchestrator
    raise AssertionError(f"{app.repository} has nothing for a change of {kind}")

"""`landfall check` on a copy of the app, with and without errors in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from handlers.platform.settings import APP_FOLDER
from landfall_cli.__main__ import app
from tests.replay.recording import HISTORIES

HISTORY = HISTORIES / "landing-started.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the app's deployed files, with one recorded history."""
    for name in ("handlers", "orchestrations", "pipelines"):
        shutil.copytree(APP_FOLDER / name, tmp_path / name)
    for name in ("function_app.py", "host.json"):
        shutil.copy(APP_FOLDER / name, tmp_path)
    for name in ("recorded", "trainers"):
        (tmp_path / name).mkdir()
    shutil.copy(HISTORY, tmp_path / "recorded")
    return tmp_path


def check(folder: Path, histories: str = "recorded", *more: str) -> tuple[int, dict[str, Any]]:
    given = ["--json", "check", "--app", str(folder), "--histories", str(folder / histories), *more]
    done = CliRunner().invoke(app, given)
    checks = json.loads(done.output)["checks"]
    # Several warnings may be about the same pipelines.
    return done.exit_code, {
        each["finding"] if each["verdict"] == "warning" else each["name"]: each for each in checks
    }


def test_valid_files_are_counted_and_errors_are_named(folder: Path) -> None:
    code, checks = check(folder)
    assert code == 0, checks
    assert "pipelines in " in checks["pipelines"]["finding"]

    file = folder / "pipelines" / "digits" / "pipeline.yml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("floor:", "flour:"), "utf-8")
    code, checks = check(folder, "nothing")
    assert code == 1
    assert "pipeline.yml" in checks["pipelines"]["finding"]
    assert "flour" in checks["pipelines"]["finding"]
    assert checks["pipelines"]["remedy"] == "Fix that file: the app does not start with it."
    assert checks["histories"]["verdict"] == "bad"
    assert "replay-guard export" in checks["histories"]["remedy"]

    file.write_text(text, "utf-8")
    activities = folder / "orchestrations" / "platform" / "activities.py"
    call = "call_activity("
    renamed = activities.read_text("utf-8").replace(call, f"{call}'new_' + ")
    activities.write_text(renamed, "utf-8")
    code, checks = check(folder)
    assert (code, checks["pipelines"]["verdict"]) == (1, "good")
    assert "new_" in checks["histories"]["finding"]
    assert checks["histories"]["remedy"].startswith("Give the orchestrator its old steps again")


REWOUND = {
    "replayGuard": 1,
    "instanceId": "i",
    "name": "retraining",
    "runtimeStatus": "Running",
    "historyEvents": [{"EventType": "GenericEvent", "Timestamp": "2026-01-01T00:00:00Z"}],
}


def test_what_is_slow_apart_or_cannot_be_checked_is_a_warning(folder: Path) -> None:
    file = folder / "pipelines" / "digits" / "pipeline.yml"
    text = file.read_text("utf-8").replace("Standard_D4s_v5", "Standard_NC24ads_A100_v4")
    file.write_text(text.replace("nodes: 1", "nodes: 2"), "utf-8")
    (folder / "recorded" / "rewound.json").write_text(json.dumps(REWOUND), "utf-8")
    code, checks = check(
        folder, "recorded", "--regions", "app=eastus data=eastus workspace=northcentralus"
    )
    assert code == 0, checks
    warnings = [each["finding"] for each in checks.values() if each["verdict"] == "warning"]
    for word in ("InfiniBand", "workspace in northcentralus", "did not offer"):
        assert any(word in each for each in warnings), word
    assert any("the instance was rewound" in each for each in warnings)
    assert "northcentralus offers Standard_D4s_v5" in checks["compute"]["finding"]
    assert checks["compute"]["verdict"] == "good"

    code, checks = check(folder, "recorded", "--regions", "dta=eastus")
    assert (code, checks["pipelines"]["verdict"]) == (1, "bad")
    assert "data=<region>" in checks["pipelines"]["finding"]

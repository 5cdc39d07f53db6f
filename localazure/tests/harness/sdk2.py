"""The story of an app of azure-functions-durable 2: with the SDK, or with a stand-in for it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from harness.child_process import ChildProcess
from harness.waiting import until
from harness.wheel import Host
from localazure.processes.ports import free_ports

APP: Final = Path(__file__).parent / "sdk2_app"
START_SECONDS: Final = 60


def copy_app(folder: Path, *, with_sdk: bool) -> Path:
    """Copy the app. Without the SDK, metadata in the app's folder say that it has version 2."""
    shutil.copytree(APP, folder)
    if with_sdk:
        (folder / "sdk.py").write_text("from azure.durable_functions import DFApp")
    else:
        metadata = folder / "azure_functions_durable-2.0.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Name: azure-functions-durable\nVersion: 2.0.0\n")
    return folder


class Story:
    """A host that runs the app, in a process of its own, or several.

    Args:
        python: the interpreter.
        app: the app's folder, made by `copy_app`.
        options: of `localazure start`.
    """

    def __init__(self, python: Path, app: Path, *options: str) -> None:
        (port,) = free_ports(1)
        command = [python, "-m", "localazure", "start", "--port", str(port), *options]
        self._process = ChildProcess(command, app.parent / "host.log", folder=app)
        self._host = Host(port)

    def run(self) -> None:
        """Run all chapters."""
        with self._process:
            self._wait_for_start()
            self._steps_survive_a_kill()
            self._clients_operate_instances()
            self._clients_reach_entities()

    def _wait_for_start(self) -> None:
        self._process.wait_for_output("square: activityTrigger", START_SECONDS)

    def _state(self, instance_id: str) -> dict[str, Any]:
        return self._client("get_orchestration_state", instance_id)

    def _client(self, operation: str, subject: str, **arguments: Any) -> Any:
        return self._host.get(f"/api/client/{operation}/{subject}", arguments)

    def _until_status(self, url: str, field: str, wanted: str) -> dict[str, Any]:
        return until(lambda: (found := self._host.get(url))[field] == wanted and found)

    def _steps_survive_a_kill(self) -> None:
        started = {one: self._host.get("/api/start/all_steps", one) for one in (1, 2, 3)}
        self._until_status(started[1]["statusQueryGetUri"], "customStatus", "waits")
        self._process.kill()
        self._process.wait()
        self._process.start()
        self._wait_for_start()
        for number, urls in started.items():
            self._host.get(urls["sendEventPostUri"].replace("{eventName}", "go"), number)
            squares = [n * n for n in range(number)]
            expected = [squares, 49, "tried again", 5, number]
            assert self._host.outcome(urls["statusQueryGetUri"]) == expected

    def _clients_operate_instances(self) -> None:
        urls = self._host.get("/api/start/generations", 3)
        status, one = urls["statusQueryGetUri"], urls["id"]
        assert self._host.outcome(status) == "done"
        self._client("schedule_new_orchestration", "generations", instance_id=one, input=1)
        assert self._host.outcome(status) == "done"
        again = self._client("restart_orchestration", one, restart_with_new_instance_id=True)
        assert self._host.outcome(status.replace(one, again)) == "done"
        urls = self._host.get("/api/start/failing")
        status, one = urls["statusQueryGetUri"], urls["id"]
        failed = self._until_status(status, "runtimeStatus", "Failed")
        assert "the first time" in failed["output"]
        self._client("rewind_orchestration", one, reason="it may work now")
        assert self._host.outcome(status) == "tried again"
        assert self._client("purge_orchestration", one)["deleted_instance_count"] == 1
        assert self._state(one) is None
        assert self._host.get(f"/api/blocking/{one}") is None
        urls = self._host.get("/api/start/all_steps", 1)
        status, one = urls["statusQueryGetUri"], urls["id"]
        self._until_status(status, "customStatus", "waits")
        self._client("suspend_orchestration", one)
        self._until_status(status, "runtimeStatus", "Suspended")
        self._client("resume_orchestration", one)
        self._until_status(status, "runtimeStatus", "Running")
        self._client("terminate_orchestration", one, output="enough")
        assert self._until_status(status, "runtimeStatus", "Terminated")["output"] == "enough"

    def _clients_reach_entities(self) -> None:
        assert self._host.get("/api/entity/k", 5) is None
        until(lambda: self._host.get("/api/entity/k") == 5)
        address = "/runtime/webhooks/durabletask/entities/counter/k"
        self._host.get(f"{address}?op=add", 6)
        until(lambda: self._host.get(address) == 11)

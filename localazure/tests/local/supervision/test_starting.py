"""Errors at start are one or a few lines, and leave no process running."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from harness.child_process import REPOSITORY
from harness.runtime import processes_of
from localazure.__main__ import main
from localazure.errors import StartError
from localazure.eventgrid import service as eventgrid
from localazure.functions import service as functions
from localazure.machinelearning import service as machinelearning
from localazure.runtime.environment import LISTENERS, Environment
from localazure.servicebus import service as servicebus
from localazure.storage import service as storage
from localazure.supervision import supervisor
from localazure.supervision.part import Serve


def error_of(*arguments: str) -> str:
    """Run a command in this process; return its error, which is not a traceback."""
    # `start` ends its process one second later, even if the app's threads still run.
    with (
        mock.patch("localazure.__main__.ends_soon_after", return_value=contextlib.nullcontext()),
        pytest.raises(SystemExit) as ended,
    ):
        main(list(arguments))
    assert isinstance(ended.value.code, str)  # the interpreter prints it and exits with 1
    return ended.value.code


def refusal(app: Path, state: Path, *arguments: str) -> str:
    """The error of `up`."""
    return error_of("up", "--app", str(app), "--state", str(state), *arguments)


def free_base() -> int:
    """Return a port base whose ports are all free now."""
    for base in range(20000, 30000, 100):
        try:
            for offset, _ in LISTENERS.values():
                socket.create_server(("127.0.0.1", base + offset)).close()
        except OSError:
            continue
        return base
    raise AssertionError("no hundred ports are free")


@pytest.mark.parametrize("listener", ["functions", "azurite_blob", "identity"])
def test_a_port_in_use_is_named_with_the_part_that_uses_it(
    app: Path, tmp_path: Path, listener: str
) -> None:
    base = free_base()
    port = base + LISTENERS[listener].offset
    with socket.create_server(("127.0.0.1", port)):
        said = refusal(app, tmp_path / "state", "--port-base", str(base))
    assert said.startswith(f"localazure: {LISTENERS[listener].part} cannot have port {port}")
    assert "\n" not in said
    assert "--port-base" in said


def test_an_app_that_is_missing(tmp_path: Path) -> None:
    said = error_of("up", "--app", str(tmp_path / "nowhere"))
    assert said == f"localazure: --app {tmp_path / 'nowhere'} is not a folder"


def unusable(tmp_path: Path) -> list[Path]:
    """Folders that nobody can write, not even root."""
    file = tmp_path / "file"
    file.write_text("no folder")
    return [file, file / "below", tmp_path / ("long" * 100), Path("/proc"), Path("/proc/new")]


@pytest.mark.parametrize("number", range(5))
def test_a_state_folder_that_cannot_be_written_is_named(
    app: Path, tmp_path: Path, number: int
) -> None:
    state = unusable(tmp_path)[number]
    said = refusal(app, state)
    assert said.startswith(f"localazure: state folder {state} cannot be written")
    assert "\n" not in said


@pytest.mark.parametrize("name", ["start", "start --hosts 2", "faults --moderate 1"])
def test_every_command_names_a_state_folder_that_cannot_be_written(app: Path, name: str) -> None:
    given = [str(app)] if name.startswith("start") else []
    said = error_of(*name.split(), *given, "--state", "/proc")
    assert said.startswith("localazure: state folder /proc cannot be written")
    assert "\n" not in said


def test_a_state_folder_without_space_is_named(app: Path, tmp_path: Path) -> None:
    """A limit on the size of files fails as a full disk does: when something is written."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from localazure.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "start", str(app), "--state", str(tmp_path / "state")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"localazure: state folder {tmp_path / 'state'} cannot be written"
    )
    assert done.stderr.count("\n") == 1


def test_a_config_folder_that_is_missing(app: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    said = refusal(app, tmp_path / "state", "--config", str(nowhere))
    assert said == f"localazure: --config {nowhere} is not a folder"


def test_malformed_app_settings_are_named_with_their_file(app: Path, tmp_path: Path) -> None:
    file = app / "infra" / "local" / "app-settings.json"
    file.write_text('{"DataStorage": "{strorage_connection_string}"}')
    said = refusal(app, tmp_path / "state", "--port-base", "0")
    assert said.startswith(
        f"localazure: {file}:1: DataStorage: unknown placeholder {{strorage_connection_string}}"
    )
    assert not processes_of(tmp_path / "state")


def test_a_broken_app_ends_up_and_its_log_is_shown(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SERVICES", ("servicebus",))  # the smallest part
    (app / "function_app.py").write_text("import azure.functions\n\nlanding = undefined_name\n")
    state = tmp_path / "state"
    said = refusal(app, state, "--port-base", "0")
    assert said.startswith("localazure: functions did not start:\n")
    assert "function_app.py" in said
    assert "line 3" in said
    assert "NameError: name 'undefined_name' is not defined" in said
    assert len(said.splitlines()) < 15
    assert not processes_of(state)
    assert not (state / "endpoints.json").exists()


BAD_FILES = [
    (storage.serve, "storage.json", '{"containers": ["Landing"]}', "containers[0]: string should"),
    (servicebus.serve, "Config.json", '{"UserConfig": 3}', "UserConfig"),
    (eventgrid.serve, "event-grid.json", '{"topics": [{"nam": "a"}]}', "topics[0]"),
    (machinelearning.serve, "azure-ml.json", '{"quotas": {}}', "quotas: unknown key"),
    (functions.serve, "host.json", '{"version": "1.0"}', "version"),
]


@pytest.mark.parametrize(
    ("serve", "file", "content", "named"), BAD_FILES, ids=[file for _, file, *_ in BAD_FILES]
)
async def test_a_part_does_not_start_with_a_bad_file(
    app: Path, tmp_path: Path, serve: Serve, file: str, content: str, named: str
) -> None:
    target = app / file if file == "host.json" else app / "infra" / "local" / file
    target.write_text(content)
    environment = Environment.draw(tmp_path / "state", app=app)
    with pytest.raises(StartError) as error:
        async with serve(environment):
            pass
    assert str(target) in str(error.value)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_start_on_a_port_in_use(app: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = error_of("start", str(app), "--port", str(port), "--state", str(tmp_path / "state"))
    assert f"'127.0.0.1', {port}" in said
    assert said.splitlines()[-1].startswith("localazure: ")

"""What keeps a runtime from starting is said short and clear, and leaves nothing running."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.child_process import REPOSITORY
from harness.runtime import processes_of
from localazure.runtime.environment import Environment, Ports
from localazure.runtime.supervisor import PART_OF_PORT


def localazure(*arguments: str, module: str = "localazure") -> tuple[int, str]:
    """Exit status and stderr of a command that is to fail."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=90,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def up(app: Path, state: Path, *arguments: str) -> tuple[int, str]:
    return localazure("up", "--app", str(app), "--state", str(state), *arguments)


def free_base() -> int:
    """A port base all of whose ports are free just now."""
    for base in range(20000, 30000, 100):
        try:
            for offset in Ports.OFFSETS.values():
                socket.create_server(("127.0.0.1", base + offset)).close()
        except OSError:
            continue
        return base
    raise AssertionError("no hundred ports are free")


@pytest.mark.parametrize("listener", ["functions", "azurite_blob", "identity"])
def test_a_port_in_use_is_named_with_the_part_that_wants_it(
    app: Path, tmp_path: Path, listener: str
) -> None:
    base = free_base()
    port = base + Ports.OFFSETS[listener]
    with socket.create_server(("127.0.0.1", port)):
        status, said = up(app, tmp_path / "state", "--port-base", str(base))
    assert status == 1
    assert said.startswith(f"localazure: {PART_OF_PORT[listener]} cannot have port {port}")
    assert said.count("\n") == 1
    assert "--port-base" in said


def test_an_app_that_is_not_there(tmp_path: Path) -> None:
    status, said = up(tmp_path / "nowhere", tmp_path / "state")
    assert (status, said) == (1, f"localazure: --app {tmp_path / 'nowhere'} is no folder\n")


def test_a_config_folder_that_is_not_there(app: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    status, said = up(app, tmp_path / "state", "--config", str(nowhere))
    assert (status, said) == (1, f"localazure: --config {nowhere} is no folder\n")


def test_malformed_app_settings_are_named_with_their_file(app: Path, tmp_path: Path) -> None:
    file = app / "infra" / "local" / "app-settings.json"
    file.write_text('{"DataStorage": "{strorage_connection_string}"}')
    status, said = up(app, tmp_path / "state", "--port-base", "0")
    assert status == 1
    assert said.startswith(
        f"localazure: {file}: DataStorage: unknown placeholder {{strorage_connection_string}}"
    )
    assert not processes_of(tmp_path / "state")


def test_a_broken_app_ends_up_and_its_log_is_shown(app: Path, tmp_path: Path) -> None:
    (app / "function_app.py").write_text("import azure.functions\n\nlanding = undefined_name\n")
    state = tmp_path / "state"
    status, said = up(app, state, "--port-base", "0")
    assert status == 1
    assert said.startswith("localazure: functions did not start:\n")
    assert "function_app.py" in said
    assert "line 3" in said
    assert "NameError: name 'undefined_name' is not defined" in said
    assert len(said.splitlines()) < 15
    assert not processes_of(state)
    assert not (state / "endpoints.json").exists()


def test_only_the_last_start_is_quoted(app: Path, tmp_path: Path) -> None:
    for missing in ("first_name", "second_name"):
        (app / "function_app.py").write_text(missing)
        _, said = up(app, tmp_path / "state", "--port-base", "0")
    assert "second_name" in said
    assert "first_name" not in said


@pytest.mark.parametrize(
    ("part", "file", "content", "named"),
    [
        (
            "storage",
            "storage.json",
            '{"containers": ["Landing"]}',
            "containers[0]: string should match",
        ),
        ("servicebus", "Config.json", '{"UserConfig": 3}', "UserConfig"),
        ("eventgrid", "event-grid.json", '{"topics": [{"nam": "a"}]}', "topics[0]"),
        ("machinelearning", "azure-ml.json", '{"quotas": {}}', "quotas: unknown key"),
        ("functions", "host.json", '{"version": "1.0"}', "version"),
    ],
)
def test_a_part_says_short_what_is_wrong_with_its_file(
    app: Path, tmp_path: Path, part: str, file: str, content: str, named: str
) -> None:
    local = app / "infra" / "local"
    target = app / file if part == "functions" else local / file
    target.write_text(content)
    ports = Ports.from_base(0)  # none is ever bound
    environment = Environment.draw(tmp_path / "state", app=app, ports=ports)
    environment.save()
    status, said = localazure(part, str(environment.state), module="localazure.runtime.part")
    assert status == 1
    assert str(target) in said
    assert named in said
    assert said.count("\n") == 1


def test_start_says_what_is_wrong_with_the_app(app: Path, tmp_path: Path) -> None:
    (app / "host.json").unlink()
    status, said = localazure("start", str(app), "--state", str(tmp_path / "state"))
    assert status == 1
    assert said.startswith("localazure: ")
    assert "host.json" in said


def test_start_on_a_port_in_use(app: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = localazure(
            "start", str(app), "--port", str(port), "--state", str(tmp_path / "state")
        )
    assert status == 1
    assert f"'127.0.0.1', {port}" in said
    assert said.splitlines()[-1].startswith("localazure: ")

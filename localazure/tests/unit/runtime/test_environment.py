from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import pytest

from localazure.runtime.environment import LISTENERS, STORAGE_KEY, Environment, Keys, Ports


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    drawn = Environment.draw(tmp_path / "state", app=tmp_path / "app", ports=Ports.from_base(7070))
    return dataclasses.replace(drawn, app_settings={"DataStorage": "somewhere"})


def test_it_is_read_back_as_it_was_saved(environment: Environment) -> None:
    environment.save()
    assert Environment.load(environment.state) == environment


def test_the_saved_file_is_readable_by_its_owner_only(environment: Environment) -> None:
    environment.state.mkdir()
    (environment.state / "environment.json").write_text("{}")
    environment.save()
    assert stat.S_IMODE((environment.state / "environment.json").stat().st_mode) == 0o600
    assert [file.name for file in environment.state.iterdir()] == ["environment.json"]


def test_an_unused_state_folder_has_no_environment(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Environment.load(tmp_path)


def test_the_default_base_gives_functions_the_port_of_func() -> None:
    ports = dataclasses.asdict(Ports.from_base(7070))
    assert ports["functions"] == 7071
    assert ports.keys() == LISTENERS.keys()
    assert len(set(ports.values())) == len(ports)


def test_every_key_is_drawn_independently() -> None:
    drawn = [*dataclasses.astuple(Keys.draw()), *dataclasses.astuple(Keys.draw())]
    assert len(set(drawn)) == len(drawn)
    assert all(len(key) >= 43 for key in drawn)  # 256 bits in base64


def test_connection_strings_have_the_parts_that_the_sdks_read(environment: Environment) -> None:
    storage = dict(
        pair.split("=", 1) for pair in environment.storage_connection_string().split(";") if pair
    )
    assert storage == {
        "DefaultEndpointsProtocol": "http",
        "AccountName": "devstoreaccount1",
        "AccountKey": STORAGE_KEY,
        "BlobEndpoint": "http://127.0.0.1:7080/devstoreaccount1",
        "QueueEndpoint": "http://127.0.0.1:7081/devstoreaccount1",
        "TableEndpoint": "http://127.0.0.1:7082/devstoreaccount1",
    }
    bus = environment.service_bus_connection_string
    assert bus.startswith("Endpoint=sb://127.0.0.1:7090;")
    assert f"SharedAccessKey={environment.keys.service_bus};" in bus

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from localazure.runtime.environment import LISTENERS, Environment, Ports


def test_an_unused_state_folder_has_no_environment(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Environment.load(tmp_path)


def test_the_default_base_gives_functions_the_port_of_func() -> None:
    ports = dataclasses.asdict(Ports.from_base(7070))
    assert ports["functions"] == 7071
    assert ports.keys() == LISTENERS.keys()
    assert len(set(ports.values())) == len(ports)

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.check.bicep_file import BicepFile
from infra.check.snapshot_parameters import bicepparam, literal, main
from tests.unit.infra.check.test_check import ROOT


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (3, "3"),
        ("it's \\ ${x", "'it\\'s \\\\ \\${x'"),
        ("${NETWORK=public}", "'private'"),
        ("${REDUNDANCY=LRS}", "'LRS'"),
        ("${TOPIC=}", "''"),
        ("${AZURE_ENV_NAME}", "'azure_env_name'"),
        ([{"name": "a", "maxNodes": 1}], "[{ 'name': 'a', 'maxNodes': 1 }]"),
    ],
)
def test_a_value_is_written_as_bicep_writes_it(value: object, written: str) -> None:
    assert literal(value, {"NETWORK": "private"}) == written


def test_what_json_cannot_hold_without_a_fraction_is_refused() -> None:
    with pytest.raises(TypeError, match=r"0\.5"):
        literal(0.5, {})


def test_the_file_names_its_module_and_every_parameter() -> None:
    text = bicepparam({"network": "${N=public}"}, {})
    assert (
        text == "using 'main.bicep'\n\nparam network = 'public'\nparam thisMonth = '2026-01-01'\n"
    )


def test_our_own_parameters_are_those_of_main_bicep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "infra" / "main.parameters.json", tmp_path)
    monkeypatch.setenv("LANDFALL_NETWORK", "private")
    main(tmp_path / "private.bicepparam")
    lines = (tmp_path / "private.bicepparam").read_text().splitlines()[2:]
    declared = BicepFile.read(ROOT / "infra" / "main.bicep").parameters
    given = {line.split()[1] for line in lines}
    assert given <= declared.keys()
    assert {name for name, each in declared.items() if each.default is None} <= given
    assert "param network = 'private'" in lines
    assert not [line for line in lines if "${" in line]

"""What is said of sizes and regions; nothing is claimed that the recorded list does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration import compute_notes
from handlers.platform.configuration.compute_notes import notes
from handlers.platform.settings import Settings
from orchestrations.configuration.section import ComputeOption
from orchestrations.errors import InvalidSetting
from tests.unit.orchestrations.examples import PIPELINE

EAST = {"app": "eastus", "data": "eastus", "workspace": "eastus"}
SWEEP = "type: sweep\ntrial: {}\n"
STEPS = "type: pipeline\njobs: {a: {resources: {instance_count: 4}}, b: {}}\n"


def noted(
    folder: Path, size: str, nodes: int, regions: dict[str, str] = EAST, job: str = "command: x\n"
) -> compute_notes.Notes:
    (folder / PIPELINE.job).write_text(job, "utf-8")
    option = ComputeOption(cluster="gpus", size=size, nodes=nodes)
    return notes(folder, PIPELINE.model_copy(update={"compute": [option]}), regions)


@pytest.mark.parametrize(
    ("size", "nodes", "job", "warns"),
    [
        ("Standard_NC24ads_A100_v4", 2, "command: x\n", True),
        ("STANDARD_NC80ADIS_H100_V5", 2, "command: x\n", True),
        ("Standard_ND96is_MI300X_v5", 2, "command: x\n", True),
        ("Standard_NC24ads_A100_v4", 1, "command: x\n", False),
        ("Standard_NC24ads_A100_v4", 8, SWEEP, False),  # trials, which exchange nothing
        ("Standard_NC24ads_A100_v4", 1, STEPS, True),  # a step has four
        ("Standard_ND96isr_H100_v5", 2, "command: x\n", False),
        ("Standard_ND128isr_NDR_GB200_v6", 2, "command: x\n", False),
        ("Standard_NC24rs_v3", 2, "command: x\n", False),
        ("Standard_D4s_v5", 8, "command: x\n", False),  # no GPU
        ("Standard_NP20s", 2, "command: x\n", False),  # FPGAs
    ],
)
def test_several_nodes_of_a_gpu_without_infiniband(
    tmp_path: Path, size: str, nodes: int, job: str, *, warns: bool
) -> None:
    found = [each for each in noted(tmp_path, size, nodes, job=job).warnings if "Band" in each]
    assert bool(found) == warns
    assert all(f"nodes of {size}" in each and "Ethernet" in each for each in found)


@pytest.mark.parametrize(
    ("size", "region", "warns", "is_known"),
    [
        ("Standard_ND96isr_H100_v5", "northcentralus", True, True),
        ("standard_nd96isr_h100_v5", "North Central US", True, True),
        ("Standard_ND96isr_H100_v5", "eastus", False, True),
        ("Standard_ND96isr_H100_v5", "westeurope", False, False),  # not in the list
        ("Standard_ND96isr_H300_v7", "eastus", False, False),
        ("Standard_D4s_v5", "eastus", False, False),
    ],
)
def test_a_size_that_was_not_offered_and_what_is_not_known(
    tmp_path: Path, size: str, region: str, *, warns: bool, is_known: bool
) -> None:
    found = noted(tmp_path, size, 1, dict.fromkeys(EAST, region))
    assert len(found.warnings) == warns
    assert len(found.not_known) == (not is_known)
    if warns:
        (sentence,) = found.warnings
        assert compute_notes.recorded().recorded in sentence
        assert "az ml compute list-sizes" in sentence


def test_regions_that_differ_are_named_and_missing_ones_are_not_known(tmp_path: Path) -> None:
    apart = {"app": "eastus", "data": "East US", "workspace": "westus3"}
    (sentence,) = noted(tmp_path, "Standard_NC40ads_H100_v5", 1, apart).warnings
    assert "app in eastus, data in eastus, workspace in westus3" in sentence
    assert "billed" in sentence

    unknown = noted(tmp_path, "Standard_NC40ads_H100_v5", 1, {})
    assert unknown.warnings == []
    assert "app, data, workspace" in unknown.not_known[0]


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        ("", {}),
        ("West Europe", dict.fromkeys(EAST, "westeurope")),
        ("app=eastus data=westus", {"app": "eastus", "data": "westus"}),
    ],
)
def test_regions_are_one_name_or_one_for_each_part(text: str, regions: dict[str, str]) -> None:
    assert Settings({"REGIONS": text}).regions == regions


@pytest.mark.parametrize("text", ["app=eastus dta=eastus", "app=east us", "app=a=b"])
def test_regions_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="data=<region>"):
        _ = Settings({"REGIONS": text}).regions


def test_each_row_of_the_list_is_of_its_regions() -> None:
    listed = compute_notes.recorded()
    assert listed.source.startswith("https://")
    assert all(set(regions) < set(listed.regions) for regions in listed.sizes.values())

from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.configuration.workspace_files import load_destinations
from orchestrations.errors import InvalidWorkspaces

DECLARED = """\
workspaces:
  - name: production
    subscription_id: 11111111-2222-3333-4444-555555555555
    resource_group: ml-production
    workspace: mlw-production
    storage: ProductionStorage
    approve:
      hours: 48
      by: [ada]
"""


def test_a_workspace_and_who_must_approve(tmp_path: Path) -> None:
    assert load_destinations(tmp_path) == {}
    (tmp_path / "workspaces.yml").write_text(DECLARED)
    found = load_destinations(tmp_path)["production"]
    assert found.id.endswith(
        "/resourceGroups/ml-production/providers/Microsoft.MachineLearning"
        "Services/workspaces/mlw-production"
    )
    assert found.approve is not None
    assert (found.approve.before, found.approve.hours) == ("promotion", 48)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hours: 48", "hours: 0", r":8: workspaces\.0\.approve\.hours: .*\(value: 0\)"),
        ("hours: 48", "before: rollout", r":7: workspaces\.0\.approve: .*before is 'promotion'"),
        ("storage: Prod", "storage: https://prod", r":6: workspaces\.0\.storage: .*https://prod"),
        ("    workspace: mlw-production\n", "", r":2: workspaces\.0\.workspace: Field required"),
        (DECLARED, DECLARED + DECLARED.partition("\n")[2], "'production' is twice"),
        (DECLARED, "- a list", ":1: it is a mapping"),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in DECLARED
    (tmp_path / "workspaces.yml").write_text(DECLARED.replace(old, new, 1))
    with pytest.raises(InvalidWorkspaces, match=words):
        load_pipelines(tmp_path, records_container="landfall")

"""docs/deploy.md explains what a person can set."""

from __future__ import annotations

import re

from tests.unit.deployment.package import ROOT


def test_every_value_of_azd_s_environment_that_is_ours_is_explained() -> None:
    parameters = (ROOT / "infra" / "main.parameters.json").read_text("utf-8")
    ours = {each for each in re.findall(r"\$\{(\w+)", parameters) if not each.startswith("AZURE_")}
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert ours
    assert [each for each in sorted(ours) if f"`{each}`" not in page] == []

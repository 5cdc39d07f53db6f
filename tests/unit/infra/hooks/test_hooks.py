"""The decisions of the hooks; tests/end_to_end/test_stories.py runs one against the laptop."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.keyvault.secrets import SecretProperties

from infra.hooks import smoke_test, webhook_secrets

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Vault(dict[str, str]):
    set_secret = dict[str, str].__setitem__

    def list_properties_of_secrets(self) -> list[SecretProperties]:
        return [
            SecretProperties(vault_id=f"https://v.vault.azure.net/secrets/{name}") for name in self
        ]


def test_missing_secrets_are_made_and_others_are_left_alone() -> None:
    vault: Any = Vault({"of-another-app": "kept"})
    made = webhook_secrets.ensure_secrets(vault)
    assert made == ["inbound-webhook-secret", "model-watch-secret"]
    assert vault.pop("of-another-app") == "kept"
    keys = [base64.b64decode(vault[name].removeprefix("whsec_")) for name in made]
    assert [len(each) for each in keys] == [32, 32]
    assert keys[0] != keys[1]
    del vault["model-watch-secret"]
    assert webhook_secrets.ensure_secrets(vault) == ["model-watch-secret"]


def test_a_batch_is_new_content_with_its_marker_last() -> None:
    first, second = smoke_test.batch(NOW), smoke_test.batch(NOW.replace(minute=1))
    assert list(first)[-1] == "_SUCCESS"
    assert list(first) == list(second)
    assert all(first[path] != second[path] for path in first if path != "_SUCCESS")


@pytest.mark.parametrize(
    ("state", "ended"),
    [("running", False), ("succeeded", True), ("not_promoted", True), ("failed", True)],
)
def test_only_a_new_run_that_has_ended_counts(state: str, *, ended: bool) -> None:
    runs = [{"id": "old", "state": "succeeded"}, {"id": "new", "state": state}]
    found = smoke_test.ended_run(runs, {"old"})
    assert found == (runs[1] if ended else None)


def test_links_lead_to_the_run_and_to_the_studio() -> None:
    environment = {
        "LANDFALL_URL": "https://func-x.azurewebsites.net",
        "LANDFALL_SUBSCRIPTION_ID": "s",
        "LANDFALL_WORKSPACE_RESOURCE_GROUP": "g",
        "LANDFALL_WORKSPACE_NAME": "w",
    }
    api, studio = smoke_test.links({"id": "smoke-1-1"}, environment)
    assert api.startswith("https://func-x.azurewebsites.net/api/runs/smoke-1-1")
    assert studio == (
        "https://ml.azure.com/runs/smoke-1-1?wsid=/subscriptions/s/resourceGroups/g/workspaces/w"
    )

"""The decisions of the hooks; tests/end_to_end/test_stories.py runs one against the laptop."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from azure.core.exceptions import HttpResponseError
from azure.keyvault.secrets import SecretProperties

from infra.check.pipeline_values import values
from infra.hooks import durable_backend, network_change, smoke_test, webhook_secrets
from infra.hooks.webhook_secrets import WAITS_SECONDS, Unreachable, patiently
from tests.unit.deployment.package import ROOT

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


def refused(status: int, words: str) -> HttpResponseError:
    error = HttpResponseError(words)
    error.status_code = status
    return error


def test_what_a_new_role_refuses_is_tried_again_for_more_than_ten_minutes() -> None:
    answers: list[Any] = [refused(403, "AuthorizationPermissionMismatch"), refused(503, ""), "done"]
    waited: list[float] = []

    def attempt() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(attempt, "it", wait=waited.append) == "done"
    assert waited == list(WAITS_SECONDS[:2])
    assert sum(WAITS_SECONDS) > 600
    answers += [refused(403, "Forbidden")] * (1 + len(WAITS_SECONDS))
    with pytest.raises(HttpResponseError):
        patiently(attempt, "it", wait=waited.append)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (refused(403, "(Forbidden) ... Inner error: ForbiddenByConnection"), Unreachable),
        (refused(403, "ErrorCode:AuthorizationFailure"), Unreachable),
        (refused(400, "bad"), HttpResponseError),
        (KeyError("x"), KeyError),
    ],
)
def test_what_waiting_does_not_mend_is_raised_at_once(
    error: Exception, raised: type[Exception]
) -> None:
    def attempt() -> None:
        raise error

    def wait(_seconds: float) -> None:
        pytest.fail("it waits")

    with pytest.raises(raised):
        patiently(attempt, "it", wait=wait)


@pytest.mark.parametrize(
    ("before", "wanted", "agreed", "stops"),
    [
        (None, "private", "", False),
        ("private", "private", "", False),
        ("private", "public", "", True),
        ("public", "private", "", True),
        ("private", "public", "public-to-private", True),
        ("private", "public", "private-to-public", False),
    ],
)
def test_the_network_changes_only_when_a_person_says_so(
    before: str | None, wanted: str, agreed: str, *, stops: bool
) -> None:
    message = network_change.refusal(before, wanted, agreed)
    assert (message is not None) == stops
    if message is not None:
        assert network_change.COSTS[wanted] in message
        assert f"LANDFALL_NETWORK_CHANGE {before}-to-{wanted}" in message


def test_what_a_change_of_network_costs_is_what_the_page_says() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    (row,) = [each for each in page.splitlines() if each.startswith("| **together**")]
    public, private = re.findall(r"\*\*([\d.]+)\*\*", row)
    assert public in network_change.COSTS["public"]
    assert f"{private} a month instead of {public}" in network_change.COSTS["private"]


def test_the_package_names_the_durable_backend_and_nothing_else_changes() -> None:
    host = json.loads((ROOT / "host.json").read_text("utf-8"))
    managed = durable_backend.set_backend(host, "durableTaskScheduler")
    assert managed["extensions"]["durableTask"]["storageProvider"] == durable_backend.MANAGED
    assert durable_backend.set_backend(managed, "azureStorage") == host
    # What docs/deploy.md advises for a quiet hub stays.
    host["extensions"]["durableTask"]["storageProvider"] = {"maxQueuePollingInterval": "00:00:10"}
    assert durable_backend.set_backend(host, "azureStorage") == host
    with pytest.raises(ValueError, match="postgres"):
        durable_backend.set_backend(host, "postgres")


def test_a_pipeline_that_lacks_a_value_deploys_nothing() -> None:
    parameters = (
        "${AZURE_LOCATION} ${LANDFALL_NETWORK=public} ${LANDFALL_ALERT_EMAIL=} ${MODEL_WATCH_URL=}"
    )
    given = {"LANDFALL_NETWORK": "private", "LANDFALL_ALERT_EMAIL": "-"}
    undefined = {**given, "MODEL_WATCH_URL": "$(MODEL_WATCH_URL)"}
    for environment in (given, undefined):
        with pytest.raises(LookupError, match=r"no value for MODEL_WATCH_URL\."):
            values(parameters, environment)
    # Empty is no value where the default is one, nor for the month, which Azure keeps.
    for name in ("LANDFALL_NETWORK", "LANDFALL_BUDGET_START"):
        with pytest.raises(LookupError, match=rf"no value for {name}\."):
            values(f"${{{name}={'public' if 'NET' in name else ''}}}", {name: "-"})
    assert values(parameters, {**given, "MODEL_WATCH_URL": "https://x"}) == {
        "LANDFALL_NETWORK": "private",
        "LANDFALL_ALERT_EMAIL": "",
        "MODEL_WATCH_URL": "https://x",
    }


PINNED = re.compile(r"^[a-z0-9][\w.-]*==[^\s\\]+", re.MULTILINE)


def test_set_up_and_hooks_install_the_versions_that_the_tests_run_with_by_their_hashes() -> None:
    pinned = (ROOT / "constraints.txt").read_text("utf-8")
    for name in ("installation/locked.txt", "infra/hooks/requirements.txt"):
        text = (ROOT / name).read_text("utf-8")
        found = PINNED.findall(text)
        assert set(found) <= set(PINNED.findall(pinned)), name
        assert len(re.findall(r"==.+\\\n    --hash=sha256:[0-9a-f]{64}", text)) == len(found)
    locked = (ROOT / "installation" / "locked.txt").read_text("utf-8")
    assert PINNED.findall(locked) == PINNED.findall(pinned)


def test_the_first_provisioning_waits_for_roles_before_azd_makes_the_event_subscriptions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waited: list[float] = []
    for provisioned in ("later", "now"):
        environment = {"LANDFALL_PROVISIONED_DELIVERY": provisioned}
        webhook_secrets.wait_for_delivery(environment, wait=waited.append)
    assert waited == [webhook_secrets.DELIVERY_WAIT_SECONDS]
    assert "event subscriptions" in capsys.readouterr().out
    # `azd up` provisions twice: the output of the first changes the parameter of the second.
    azure_yaml = yaml.safe_load((ROOT / "azure.yaml").read_text("utf-8"))
    steps = [each["azd"] for each in azure_yaml["workflows"]["up"]["steps"]]
    assert steps == ["provision", "provision", "deploy --all"]


@pytest.mark.parametrize(
    ("error", "lands_again"),
    [
        ({"message": "PUT … is refused with 403 AuthorizationFailed: the app's identity"}, True),
        ({"message": "out of memory"}, False),
        (None, False),
    ],
)
def test_the_smoke_test_lands_again_where_a_run_was_refused_by_a_missing_role(
    error: Any, *, lands_again: bool
) -> None:
    assert smoke_test.lacks_a_role({"id": "a", "state": "failed", "error": error}) == lands_again

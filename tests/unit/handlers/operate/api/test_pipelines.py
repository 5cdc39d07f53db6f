from __future__ import annotations

import base64
from typing import Any

import pytest

from handlers.operate.api.pipelines import missing_settings
from handlers.platform.settings import Settings
from orchestrations.configuration.approve import Approval
from orchestrations.configuration.pipeline import Notifications, Webhook
from tests.unit.orchestrations.examples import PIPELINE

SECRET = "whsec_" + base64.b64encode(b"0" * 32).decode()
ALL = {
    "AZUREML_SUBSCRIPTION_ID": "s",
    "AZUREML_RESOURCE_GROUP": "g",
    "AZUREML_WORKSPACE_NAME": "w",
    "DataStorage__blobServiceUri": "https://data.example",
    "WorkspaceStorage": "a connection string",
    "ServiceBus": "another",
    "EventGridTopic__endpoint": "https://topic.example",
    "WATCH_URL": "https://watch.example",
    "WATCH_SECRET": SECRET,
}
WATCHED = PIPELINE.model_copy(
    update={
        "notify": Notifications(
            event_grid=True,
            webhooks=[Webhook(name="w", url_setting="WATCH_URL", secret_setting="WATCH_SECRET")],
        )
    }
)


def test_with_all_settings_none_is_missing() -> None:
    assert missing_settings(Settings(ALL), WATCHED) == []
    without_receiver = ALL | {"WATCH_URL": "", "WATCH_SECRET": ""}
    assert missing_settings(Settings(without_receiver), WATCHED) == [], "no receiver here"


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_missing_setting_is_named_and_how_to_set_it(name: str) -> None:
    left = {key: value for key, value in ALL.items() if key != name}
    (sentence,) = missing_settings(Settings(left), WATCHED)
    assert name.partition("__")[0] in sentence
    assert "set it" in sentence


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"WATCH_SECRET": "whsec_short"}, "WATCH_SECRET"),
        ({"WATCH_URL": "http://short.example"}, "WATCH_URL"),
        ({"KEEP_COPIES_DAYS": "3"}, "KEEP_COPIES_DAYS"),
    ],
)
def test_a_wrong_value_is_named_and_not_shown(changes: dict[str, Any], word: str) -> None:
    (sentence,) = missing_settings(Settings(ALL | changes), WATCHED)
    assert word in sentence
    assert "short" not in sentence


def test_a_question_to_a_role_needs_people_who_sign_in() -> None:
    asks = WATCHED.model_copy(
        update={"approve": [Approval(before="registration", by=["role:Approver"])]}
    )
    (sentence,) = missing_settings(Settings(ALL), asks)
    assert "API_SIGN_IN" in sentence
    assert missing_settings(Settings(ALL | {"API_SIGN_IN": "entra"}), asks) == []
    (sentence,) = missing_settings(Settings(ALL | {"APPROVAL_LINK_SECRET": "hunter2"}), asks)[:1]
    assert "APPROVAL_LINK_SECRET" in sentence
    assert "hunter2" not in sentence

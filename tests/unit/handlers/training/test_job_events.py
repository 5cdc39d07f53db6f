from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.platform.event_envelope import EventEnvelope
from handlers.platform.settings import Settings
from handlers.training.job_events import check_workspace, parse_job_event
from orchestrations.errors import InvalidEvent

RUN = "digits-0123456789abcdef-1"
WORKSPACE = (
    "/subscriptions/S1/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/Ws"
)


EVENT = EventEnvelope(
    id="e1",
    type="Microsoft.MachineLearningServices.RunStatusChanged",
    source=WORKSPACE,
    subject=f"experiments/0000-1111/runs/{RUN}",
    time=datetime(2026, 11, 23, tzinfo=UTC),
    data={"experimentName": "digits", "runId": RUN, "runStatus": "Running"},
)
SETTINGS = Settings(
    {
        "AZUREML_SUBSCRIPTION_ID": "s1",
        "AZUREML_RESOURCE_GROUP": "rg",
        "AZUREML_WORKSPACE_NAME": "ws",
    }
)


def parse(**changes: Any) -> str:
    return parse_job_event(replace(EVENT, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "Microsoft.MachineLearningServices.RunCompleted"},
        {"type": "microsoft.machinelearningservices.runcompleted"},
        {"data": {"runId": RUN, "runTags": None, "new": [1]}, "subject": ""},
        {"data": {"RUNID": RUN}, "subject": ""},
        {"data": {}, "subject": f"Experiments/x/Runs/{RUN}"},
    ],
)
def test_the_data_name_the_run_or_else_the_subject_in_any_case(changes: dict[str, Any]) -> None:
    assert parse(**changes) == RUN


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "Microsoft.MachineLearningServices.ModelRegistered"},
        {"type": "Microsoft.Storage.BlobCreated"},
        {"data": {}, "subject": ""},
        {"data": None, "subject": ""},
        {"data": [RUN], "subject": ""},
        {"data": {"runId": 7}},
        {"data": {"runId": ""}},
        {"data": {"runId": "../x"}},
        {"data": {"runId": "a" * 256}},
        {"data": {"runId": f"{RUN}\n"}},
    ],
)
def test_anything_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match="event e1"):
        parse(**changes)


@given(
    event_type=st.sampled_from(["Microsoft.MachineLearningServices.RunCompleted", "x"]),
    subject=st.text(),
    data=st.dictionaries(
        st.sampled_from(["runId", "RunID", "x"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    ),
)
def test_nothing_but_a_name_or_an_error_comes_out(
    event_type: str, subject: str, data: dict[str, Any]
) -> None:
    with contextlib.suppress(InvalidEvent):
        run = parse(type=event_type, subject=subject, data=data)
        assert run.isascii()
        assert run.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("topic", [WORKSPACE, WORKSPACE.lower(), "", "azure-ml"])
def test_the_workspaces_own_events_and_nameless_ones_pass(topic: str) -> None:
    check_workspace(replace(EVENT, source=topic), SETTINGS)


@pytest.mark.parametrize(
    "topic",
    [WORKSPACE + "2", WORKSPACE.replace("Rg", "other"), WORKSPACE.replace("S1", "S2")],
)
def test_another_workspaces_event_is_refused(topic: str) -> None:
    with pytest.raises(InvalidEvent, match="is not workspace 'ws'"):
        check_workspace(replace(EVENT, source=topic), SETTINGS)

"""A landing that always fails: seen in one round, told once, and shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import (
    AccountSasPermissions,
    BlobServiceClient,
    ResourceTypes,
    generate_account_sas,
)

from handlers.landing.blob_created import ensure_landing
from handlers.landing.freezing import freeze_manifest
from handlers.operate.api.pipelines import list_pipelines
from handlers.platform import record_store
from handlers.platform.activity_adapter import ActivityFault, as_function
from orchestrations.contracts.datasets import FreezeManifest
from orchestrations.platform.activities import parse_fault
from tests.local.handlers.operate.reconciliation.scene import NOW, Scene, scene
from tests.local.handlers.zone_on_storage import Zone

__all__ = ["scene"]
pytestmark = pytest.mark.usefixtures("quiet_queues")

HOUR = timedelta(hours=1)


def fail(scene: Scene, at: datetime, output: str = "403: a role is missing", **more: Any) -> None:
    """The zone's landing fails, as the durable extension shows it."""
    text = f"Orchestrator function 'landing' failed: {output}"
    status = more.pop("status", "Failed")
    scene.hub.add(scene.landing, "landing", status, output=text, created=at, **more)


def alerts(scene: Scene) -> list[dict[str, Any]]:
    scene.clients.background.wait_until_idle()
    kept = record_store.read_all(scene.clients.records, "outbox/ops-alerts/")
    return [each for each in kept if each["subject"] == "landing-failed"]


@pytest.fixture
def unsent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service Bus is out of reach, so that alerts stay in the outbox."""

    def refuse(*_: object) -> None:
        raise OSError("out of reach")

    monkeypatch.setattr(scene.clients.message_queues, "send", refuse)


async def state_of(scene: Scene) -> tuple[str, str]:
    hub: Any = scene.hub
    pipelines = {scene.pipeline.name: scene.pipeline}
    answer = await list_pipelines(scene.clients, pipelines, hub, now=NOW)
    return answer.pipelines[0].state, answer.pipelines[0].sentence


@pytest.mark.usefixtures("unsent")
async def test_a_new_cause_is_told_and_one_that_differs_in_its_ids_is_not_new(
    scene: Scene,
) -> None:
    scene.land("1.png")
    for number, text in enumerate(("403 RequestId:0a1b2c3d", "403 RequestId:9f8e7d6c", "gone")):
        fail(scene, NOW + number * HOUR, text)
        await scene.reconcile()
    assert [json.loads(each["body"])["data"]["message"] for each in alerts(scene)] == [
        "403 RequestId:0a1b2c3d",
        "gone",
    ]


@pytest.mark.usefixtures("unsent")
async def test_a_landing_that_an_event_opens_again_is_told_too(scene: Scene) -> None:
    fail(scene, NOW)
    hub: Any = scene.hub
    assert (await ensure_landing(scene.clients, hub, scene.pipeline, opened_by="event")).opened
    assert len(alerts(scene)) == 1


@pytest.mark.usefixtures("unsent")
@pytest.mark.parametrize("status", ["Failed", "Terminated"])
async def test_a_landing_that_broke_with_nothing_left_to_land_is_told_and_ends_well(
    scene: Scene, status: str
) -> None:
    scene.close_batch(NOW)
    fail(scene, NOW, status=status)
    assert (await scene.reconcile()).landings_started == []
    assert len(alerts(scene)) == 1
    assert (await state_of(scene))[0] == "needs-a-human"
    # The next round starts it again; it finds nothing, and ends.
    assert (await scene.reconcile()).landings_started == [scene.landing]
    scene.hub.add(scene.landing, "landing", "Completed")
    await scene.reconcile()
    assert (await state_of(scene))[0] == "idle"
    assert len(alerts(scene)) == 1


def test_a_freeze_that_lacks_a_role_says_which(zone: Zone) -> None:
    """Real storage refuses to list: the app has a signature that may only read."""
    zone.deploy()
    zone.land("1.png")
    sas = generate_account_sas(
        str(zone.clients.blobs.account_name),
        zone.clients.blobs.credential.account_key,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions(read=True),
        datetime.now(UTC) + HOUR,
    )
    records = zone.clients.records
    limited = BlobServiceClient(zone.clients.blobs.url, credential=sas)
    vars(zone.clients).update(blobs=limited, records=records)
    activity = as_function(FreezeManifest, freeze_manifest, zone.clients)
    request = FreezeManifest(
        pipeline=zone.pipeline.name, partition=None, freeze="f", frozen_at=datetime.now(UTC)
    )
    with limited, pytest.raises(ActivityFault) as raised:
        activity(request.to_dict())
    sentence = str(parse_fault(str(raised.value)))
    assert "403 AuthorizationPermissionMismatch" in sentence
    assert "/landing" in sentence
    assert "Storage Blob Data Reader" in sentence
    assert "sig=" not in sentence

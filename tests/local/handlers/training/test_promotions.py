"""Promotions between two workspaces of localazure: the orchestrator and its real activities."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from azure.ai.ml.entities import Model as AzureMLModel
from azure.storage.blob import BlobClient

from demo.console import run, run_by
from handlers.notify.approvals import read_question, record_answer
from handlers.platform.activity_adapter import functions
from handlers.platform.clients import Clients
from handlers.training import model_files, promotions
from handlers.training.promotions import (
    clients_of,
    find_destination,
    keep_cancellation,
    target_folder,
)
from harness.waiting import until
from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import Answer
from orchestrations.contracts.promotions import PromotionInput, PromotionStatus
from orchestrations.contracts.runs import CancelRequest
from orchestrations.names import approval_id
from orchestrations.training.promotion import promotion
from tests.local.handlers.cloud import PRODUCTION, Cloud
from tests.unit.orchestrations.driver import START, Driver

# Over 32 MiB, the size of the SDK's first request: such a file has several blocks.
LARGE = random.Random(1).randbytes(40 * 1024 * 1024)
FILES = {"model.json": b"{}", "weights/model.safetensors": LARGE}
RULE = Approval(before="promotion", hours=2)
NUMBERS = itertools.count(1)


@dataclass
class Trained:
    """A version in the first workspace."""

    cloud: Cloud
    name: str
    registered_at: datetime

    def status(self, attempt: int = 0) -> PromotionStatus:
        return PromotionStatus(
            pipeline=self.name,
            model=self.name,
            version="3",
            run=f"{self.name}-v1-1",
            to=PRODUCTION,
            attempt=attempt,
            by="ada",
            reason="a better one",
            asked_at=START,
            since=START,
        )

    def write(self, path: str, content: bytes) -> Any:
        blob = self.cloud.clients.blobs.get_blob_client("landing", f"promoted/{self.name}/{path}")
        blob.upload_blob(content, overwrite=True)
        return blob.get_blob_properties()

    def promote(
        self,
        attempt: int = 0,
        *,
        rule: Approval | None = None,
        verb: Literal["approve", "reject", "cancel"] = "approve",
    ) -> PromotionStatus:
        """Promote it, to its end; the person answers, or cancels it, after a minute."""
        status, clients = self.status(attempt), self.cloud.clients
        driver = Driver(
            activities={each.__name__: each for each in functions(clients)},
            orchestrators={promotion.__name__: promotion},
        )
        given = PromotionInput(status=status, rule=rule)
        name = approval_id(status.id, "promotion")
        if verb == "cancel":
            cancel = CancelRequest(by="bob", reason="another workspace")
            at = driver.now
            driver.at(60, lambda: keep_cancellation(clients, status, cancel, at=at))
        elif rule is not None:
            answer = Answer(verb=verb, by="bob", reason="its numbers", at=driver.now)
            driver.at(60, lambda: record_answer(clients, name, answer))
        instance = driver.start(promotion.__name__, status.id, given.to_dict())
        driver.run()
        assert instance.output is not None, instance
        return PromotionStatus.from_dict(driver.instances[status.id].output)

    @property
    def there(self) -> Clients:
        clients = self.cloud.clients
        return clients_of(clients, find_destination(clients, PRODUCTION))

    def copy_of(self, path: str) -> BlobClient:
        there = self.there
        container = there.default_datastore.container_name
        name = target_folder(self.status()) + path
        return there.workspace_blobs.get_blob_client(container, name)


@pytest.fixture
def trained(cloud: Cloud) -> Iterator[Trained]:
    declared = {
        "name": PRODUCTION,
        "subscription_id": cloud.environment.subscription_id,
        "resource_group": "production",
        "workspace": PRODUCTION,
        "storage": "ProductionStorage",
    }
    file = cloud.pipelines / "workspaces.yml"
    file.write_text(yaml.safe_dump({"workspaces": [declared]}))
    made = Trained(cloud, f"promoted{next(NUMBERS)}", START)
    for path, content in FILES.items():
        made.write(path, content)
    model = cloud.clients.ml.models.create_or_update(
        AzureMLModel(
            name=made.name,
            version="3",
            path=f"azureml://datastores/landing/paths/promoted/{made.name}/",
            tags={
                "landfall.run": f"{made.name}-v1-1",
                "landfall.dataset-version": "v1",
                "landfall.in-service": "true",
            },
            properties={"metrics.accuracy": "0.9"},
        )
    )
    assert model.creation_context is not None
    assert model.creation_context.created_at is not None
    yield replace(made, registered_at=model.creation_context.created_at)
    file.unlink()


def test_the_same_bits_are_registered_in_the_other_workspace_with_their_lineage(
    trained: Trained, tmp_path: Path
) -> None:
    ended = trained.promote(rule=RULE)
    assert (ended.state, ended.why) == ("promoted", None)
    assert (ended.copied, ended.approved) == (2, "approved by bob: its numbers")
    for path, content in FILES.items():
        assert trained.copy_of(path).download_blob().readall() == content
    model: Any = trained.there.ml.models.get(trained.name, "3")
    assert model.path.endswith(f"/paths/{target_folder(ended)}")
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    ((command,),) = (block.commands for block in run_by(__file__))
    printed = asyncio.run(run(command.text, {}, tmp_path)).output
    assert model.tags == {
        "landfall.run": f"{trained.name}-v1-1",
        "landfall.dataset-version": "v1",
        "landfall.promoted-by": "ada: a better one",
        "landfall.approval.promotion": "approved by bob: its numbers",
        "landfall.promoted-from": trained.cloud.clients.ml.models.get(trained.name, "3").id,
        "landfall.files-sha256": printed.split()[0],
    }
    assert model.properties["metrics.accuracy"] == "0.9"
    with pytest.raises(Exception, match="was not found"):
        trained.there.ml.models.get(trained.name, "4")
    again = trained.promote(1)
    assert (again.state, again.registered) == ("promoted", ended.registered)


def test_a_file_that_was_written_after_the_registration_is_refused_by_name(
    trained: Trained,
) -> None:
    # The service's times have whole seconds.
    until(
        lambda: trained.write("model.json", b"[]").last_modified > trained.registered_at,
        what="a later second",
    )
    ended = trained.promote()
    assert ended.state == "refused"
    assert f"file promoted/{trained.name}/model.json in container landing was written" in str(
        ended.why
    )


def test_what_a_person_rejects_goes_nowhere(trained: Trained) -> None:
    ended = trained.promote(rule=RULE, verb="reject")
    assert (ended.state, ended.why) == ("rejected", "rejected by bob: its numbers")
    assert not trained.copy_of("model.json").exists()


def test_what_a_person_cancels_goes_nowhere_and_its_question_is_void(trained: Trained) -> None:
    ended = trained.promote(rule=RULE, verb="cancel")
    assert (ended.state, ended.why) == ("refused", "cancelled by bob: another workspace")
    question = read_question(trained.cloud.clients, str(ended.approval))
    assert question is not None
    assert question.answer is not None
    assert question.answer.verb == "void"
    assert not trained.copy_of("model.json").exists()
    assert trained.promote(1).state == "promoted"


def test_a_copy_that_died_halfway_is_continued(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    staged: list[int] = []
    stage, commit = BlobClient.stage_block, BlobClient.commit_block_list

    def die(self: BlobClient, blocks: list[Any], **options: Any) -> Any:
        if len(blocks) > 1:
            raise Died
        return commit(self, blocks, **options)

    def spy(self: BlobClient, block: str, data: bytes, **options: Any) -> Any:
        staged.append(len(data))
        return stage(self, block, data, **options)

    monkeypatch.setattr(BlobClient, "stage_block", spy)
    monkeypatch.setattr(model_files, "PART_BYTES", 16 * 1024 * 1024)
    monkeypatch.setattr(promotions, "PIECE_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(BlobClient, "commit_block_list", die)
        with pytest.raises(Died):
            trained.promote()
    assert trained.copy_of("model.json").exists()
    assert not trained.copy_of("weights/model.safetensors").exists()
    assert trained.promote().state == "promoted"
    copy = trained.copy_of("weights/model.safetensors")
    assert copy.download_blob().readall() == LARGE
    assert sum(staged) == sum(map(len, FILES.values())), "no byte was sent twice"


def test_other_bits_in_its_place_are_refused_by_name(trained: Trained) -> None:
    trained.copy_of("model.json").upload_blob(b"[]")
    ended = trained.promote()
    assert ended.state == "refused"
    assert f"{target_folder(ended)}model.json is there already" in str(ended.why)

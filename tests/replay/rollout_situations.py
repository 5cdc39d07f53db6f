"""The situations of rollouts and promotions: models go into service, and people have their say."""

from __future__ import annotations

import json

from tests.replay.scene import Scene, ended_as, is_continued, is_in
from tests.replay.situation import Kept, rollout, run, situation


@situation(
    "rolled-out",
    {
        "deployed": run("succeeded"),
        "finished": rollout("finished"),
        "superseded-while-baking": rollout("superseded"),
        "rolled-back": rollout("rolled_back"),
        "restored": Kept(orchestrator="rollout", holds=ended_as("finished"), number=2),
    },
    deploy={
        "endpoint": "rolled-out",
        "instance_type": "Standard_DS3_v2",
        "smoke_request": "smoke.json",
        "windows": {"open": ["* * * * *"]},
        "steps": [{"traffic": 50, "bake_minutes": 60}, {"traffic": 100, "bake_minutes": 0}],
        "guards": {
            "minimum_requests": 0,
            "answers": [{"metric": "mean", "field": "x", "max": 1, "collection": "response"}],
        },
    },
)
async def rolled_out(scene: Scene) -> None:
    """A model goes live; a second one is superseded while it bakes; a third one is rolled back.

    Then a person promotes the second one, and rolls it back when it is live.
    """
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("2", accuracy=0.8)
    await scene.until("rollout", is_in("baking"))
    await scene.land("3", accuracy=0.9)
    await scene.until("rollout", ended_as("superseded"))
    baking = await scene.until("rollout", is_in("baking"))
    body = json.dumps({"by": "ada", "reason": "it answers in another language"})
    await scene.post(f"api/rollouts/{baking.instance}/rollback", body=body)
    await scene.until("rollout", ended_as("rolled_back"))
    models = "api/pipelines/rolled-out/models"
    await scene.post(f"{models}/2/promote", body=body)
    promoted = await scene.until("rollout", is_in("baking"))
    await scene.post(f"api/rollouts/{promoted.instance}/promote", body=body)
    await scene.until("rollout", is_in("live"))
    await scene.post(f"{models}/2/rollback", body=body)
    await scene.until("rollout", ended_as("finished"), number=2)


@situation(
    "approved",
    {
        "handed-over": Kept(orchestrator="retraining", holds=is_continued),
        "approved": run("succeeded"),
        "refused": run("not_promoted"),
        "approved-rollout": rollout("finished"),
    },
    approve=[{"before": "registration"}, {"before": "rollout", "by": ["ada"]}],
    deploy={"kind": "batch", "endpoint": "approved", "compute": "cpu"},
)
async def approved(scene: Scene) -> None:
    """People let a model be registered and rolled out, and keep a second one back."""
    await scene.land("1", accuracy=0.7)
    await scene.answer("approve")
    await scene.answer("approve")
    await scene.until("rollout", ended_as("finished"))
    await scene.land("2", accuracy=0.8)
    await scene.answer("reject")
    await scene.ended("not_promoted")


@situation(
    "promoted",
    {
        "promoted": Kept(orchestrator="promotion", holds=ended_as("promoted")),
        "rejected": Kept(orchestrator="promotion", holds=ended_as("rejected")),
    },
)
async def promoted(scene: Scene) -> None:
    """People let a version go into another workspace, and keep a second one back."""
    for version, verb in (("1", "approve"), ("2", "reject")):
        await scene.land(version, accuracy=0.7 + int(version) / 10)
        await scene.landed(int(version))
        body = json.dumps({"by": "eve", "reason": "it is better", "to": "production"})
        await scene.post(f"api/pipelines/promoted/models/{version}/promotions", body=body)
        await scene.answer(verb)
        await scene.until("promotion", lambda it: bool(it.ended_as), int(version))


@situation(
    "batch-rolled-out",
    {"batch-finished": rollout("finished"), "batch-rolled-back": rollout("rolled_back")},
    deploy={"kind": "batch", "endpoint": "batch-rolled-out", "compute": "cpu"},
)
async def rolled_out_for_batches(scene: Scene) -> None:
    """A model is the default of a batch endpoint; the smoke job of a second one fails."""
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("0-damaged", accuracy=0.8)
    await scene.until("rollout", ended_as("rolled_back"))

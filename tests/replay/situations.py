"""The situations that are recorded: what is brought about, and which generations are kept.

Each has a pipeline of its own, named after it, so that they can run side by side.
"""

from __future__ import annotations

import asyncio
import json

# It adds its own to SITUATIONS.
import tests.replay.rollout_situations  # noqa: F401 # pyright: ignore[reportUnusedImport]
from tests.replay.recording import Document
from tests.replay.scene import (
    Scene,
    has,
    is_continued,
    is_done,
    is_in,
    landed_as,
)
from tests.replay.situation import (
    BASE,
    SITUATIONS,
    Kept,
    landing,
    run,
    situation,
    upload,
    upload_until,
)

NO_QUOTA_SIZE = "Standard_NC6s_v3"
MARKER = "_SUCCESS"
MANIFEST = "manifest.jsonl"
RUNNING_LIMIT_SECONDS = 1
QUEUES: Document = {
    "flavors": [{"name": "queued", "cluster": "queued", "nodes": 4, "price_per_node_hour": 100}],
    "queues": [
        {"name": "open", "quotas": [{"flavor": "queued"}]},
        # A first run's expected cost exceeds the budget: it waits.
        {
            "name": "poor",
            "quotas": [{"flavor": "queued"}],
            "budget": {"amount": 1, "days": 7},
        },
    ],
}
"""The content of `queues.yml`."""
WORKSPACES: Document = {
    "workspaces": [
        {
            "name": "production",
            "subscription_id": "00000000-0000-0000-0000-00000000a2e5",
            "resource_group": "local",
            "workspace": "production",
            "storage": "ProductionStorage",
            "approve": {"by": ["ada"]},
        }
    ]
}
"""The content of `workspaces.yml`."""
QUEUED_COMPUTE = [{"cluster": "queued", "size": "Standard_D4s_v5", "nodes": 1}]
LONG_QUIET: Document = {"quiet_seconds": 100, "maximum_wait_seconds": 1000}


@situation(
    "batches",
    {
        "started": landing(1),
        "duplicate": landing(3),
        "succeeded": run("succeeded"),
        "beat-the-champion": run("succeeded", 2),
    },
)
async def three_batches(scene: Scene) -> None:
    """A first batch, a second one that beats the champion, and the second one once more."""
    await scene.land("1", "2", accuracy=0.7)
    await scene.landed()
    await scene.land("3", accuracy=0.9)
    await scene.landed(2)
    await scene.land("3")
    await scene.landed(3)


@situation("marked", {"marked": landing()}, settle=LONG_QUIET, source={"marker": MARKER})
async def marked(scene: Scene) -> None:
    """The marker blob says that the batch is whole; and again while the landing is closing."""
    await scene.land("1", accuracy=0.9)
    await scene.until("landing", is_in("settling"))
    await scene.land(MARKER)
    await scene.until("landing", is_in("closing"))
    await scene.land(MARKER)
    await scene.landed()


@situation("woken-twice", {"restarted": landing()}, settle=LONG_QUIET)
async def woken_twice(scene: Scene) -> None:
    """Two simultaneous events make a settling landing continue as new."""
    await scene.land("1", accuracy=0.9)
    await scene.restart(await scene.until("landing", is_in("settling")))
    await scene.until("landing", is_in("settling"))


@situation(
    "shrunk",
    {
        "only-deletions": landing(holds=landed_as("only-deletions")),
        "held": landing(holds=landed_as("held")),
        "released": landing(2, landed_as("started")),
    },
)
async def shrunk(scene: Scene) -> None:
    """Deletions alone start no run; with a new file, the batch is held, then released."""
    await scene.land("1", "2", "3", "4", accuracy=0.7)
    await scene.landed()
    await scene.delete("2", "3")
    await scene.land("1")
    await scene.until("landing", landed_as("only-deletions"))
    await scene.land("5")
    held = await scene.until("landing", landed_as("held"))
    version = held.answers[-1]["output"]["dataset_version"]
    body = json.dumps({"dataset_version": version})
    await scene.post(f"api/pipelines/{scene.pipeline}/release", body=body)
    await scene.until("landing", landed_as("started"), 2)


@situation("uploaded", {"invalid-manifest": landing()}, source={"manifest": MANIFEST})
async def invalid_manifest(scene: Scene) -> None:
    """The uploader's manifest breaks its rules."""
    await scene.land("1")
    await scene.land(MANIFEST)
    await scene.landed()


@situation("removed", {"not-deployed": landing()}, settle={"quiet_seconds": 5})
async def removed(scene: Scene) -> None:
    """The pipeline is removed while its landing settles."""
    await scene.land("1")
    await scene.until("landing", is_in("settling"))
    await scene.remove()
    await scene.landed()


@situation("followed-up", {"followed-up": landing()})
async def followed_up(scene: Scene) -> None:
    """More lands while the run is training."""
    await scene.land("1", seconds=3)
    await scene.running()
    await scene.land("2", seconds=0)
    await scene.landed(2)


@situation(
    "requested",
    {
        "requested": landing(1),
        "requested-duplicate": landing(2),
        "requested-again": landing(3),
    },
    settle=LONG_QUIET,
)
async def requested(scene: Scene) -> None:
    """Another system asks for a run, three times on the same data, at last for a reason."""
    await scene.land("1", accuracy=0.9)
    await scene.until("landing", is_in("settling"))
    await scene.request("first")
    await scene.landed()
    await scene.request("second")
    await scene.landed(2)
    await scene.request("third", reason="new labels are expected")
    await scene.landed(3)


@situation("late", {"activity-retried": landing()}, source={"container": "late"})
async def late_container(scene: Scene) -> None:
    """An activity fails until the container is there, which then is empty."""
    await scene.request("too-early")
    await scene.until("landing", has("Reason"))
    await scene.blobs.create_container("late")
    await scene.landed()


@situation("crashed", {"retrying": run("retrying"), "resumed": run("succeeded")})
async def crashed(scene: Scene) -> None:
    """A job fails without a word; the next attempt resumes."""
    await scene.land("1", crashes=1)
    await scene.ended("retrying")
    await scene.ended("succeeded")


@situation("superseded", {"superseded": run("superseded")}, retry={"delays_seconds": [20]})
async def superseded(scene: Scene) -> None:
    """Newer data is claimed before the next attempt begins."""
    await scene.land("1", crashes=1)
    await scene.ended("retrying")
    await scene.land("2", crashes=0)
    await scene.ended("superseded")


@situation("cancelled", {"cancelled": run("cancelled")})
async def cancelled(scene: Scene) -> None:
    """Cancel the run while its job is running."""
    await scene.land("1", seconds=100)
    run = await scene.running()
    await scene.post(f"api/runs/{run.instance}/cancel")
    await scene.ended("cancelled")


@situation(
    "over-budget", {"cancelled-in-queue": run("cancelled")}, compute=QUEUED_COMPUTE, queue="poor"
)
async def over_budget(scene: Scene) -> None:
    """Cancel a run that waits in its queue."""
    await scene.land("1")
    run = await scene.until("retraining", is_in("waiting_for_nodes"))
    await scene.post(f"api/runs/{run.instance}/cancel")
    await scene.ended("cancelled")


@situation(
    "too-slow",
    {"deadline-exceeded": run("failed")},
    retry={"attempts": 1},
    limits={"running_seconds": RUNNING_LIMIT_SECONDS},
)
async def too_slow(scene: Scene) -> None:
    """The job runs for longer than the pipeline's limits allow."""
    await scene.land("1", seconds=100)
    run = await scene.running()
    await asyncio.sleep(RUNNING_LIMIT_SECONDS + 0.5)
    await scene.wake_up(run)
    await scene.ended("failed")


@situation(
    "long-wait",
    {
        "restarted": Kept(orchestrator="retraining", holds=is_continued),
        "long-wait": run("succeeded"),
    },
)
async def long_wait(scene: Scene) -> None:
    """A run waits over the end of a generation, and over a timer's."""
    await scene.land("1", seconds=40)
    await scene.restart(await scene.running())
    await scene.ended("succeeded")


@situation("reproduced", {"reproduced": run("reproduced"), "not-reproduced": run("not_reproduced")})
async def reproduced(scene: Scene) -> None:
    """A model is trained again as it was, and once more when its data was overwritten."""
    again, body = "api/pipelines/reproduced/models/1/reproduce", json.dumps({"reason": "an audit"})
    await scene.land("1", accuracy=0.7)
    await scene.ended("succeeded")
    await scene.post(again, body=body)
    await scene.ended("reproduced")
    await scene.land(accuracy=0.8)
    await scene.post(again, body=body)
    await scene.ended("not_reproduced")


@situation("terminated", {"run-terminated": landing()})
async def terminated(scene: Scene) -> None:
    """An operator terminates the run under the landing."""
    await scene.land("1", seconds=3)
    run = await scene.running()
    await scene.post(
        f"runtime/webhooks/durabletask/instances/{run.instance}/terminate?reason=by+hand",
        key="system_key",
    )
    await scene.landed()


# Without its marker.
situation(
    "overdue",
    {"overdue": landing()},
    source={"marker": MARKER},
    settle={"quiet_seconds": 1, "maximum_wait_seconds": 3},
)(upload("1"))
# The job finds that its data was overwritten.
situation("overwritten", {"data-changed": landing()})(upload("1", changed=1))
# Listed in ranges of names: here its partitions (see `recorded_app`).
situation(
    "large",
    {"in-ranges": landing(), "ranges": Kept(orchestrator="freezing")},
    source={"partitions": "date=%Y-%m-%d"},
    dataset={"newest_partitions": 3},
)(upload("date=2026-11-20/1", "date=2026-11-21/2", "date=2026-11-22/3", accuracy=0.9))
situation(
    "copied",
    {"copied": landing(), "copies": Kept(orchestrator="freezing")},
    dataset={"freeze": "copy"},
)(upload("1", "2", accuracy=0.9))


@situation("forgotten", {"forgotten": Kept(orchestrator="forgetting")})
async def forgotten(scene: Scene) -> None:
    """Somebody asks to forget a file of a batch that was trained on."""
    await scene.land("1", accuracy=0.9)
    await scene.landed()
    body = {"reason": "a person asked", "blobs": ["landing/forgotten/1"]}
    await scene.post("api/forgotten", body=json.dumps(body))
    await scene.until("forgetting", is_done)


# The trainer refuses a file: it is left out, and the landing follows itself up.
situation("poisoned", {"quarantined": landing(), "data-rejected": run("rejected")})(
    upload("1", "2.bad", landed=2, accuracy=0.9)
)
situation("hopeless", {"out-of-attempts": run("failed")})(upload_until("failed", crashes=9))


@situation(
    "sliced",
    {"slice-fell": run("not_promoted"), "better": run("succeeded", 2)},
    gate={
        "significance": {"alpha": 0.05},
        "slices": [{"match": "label:*", "fall_at_most": 0.05, "samples_at_least": 50}],
    },
)
async def sliced(scene: Scene) -> None:
    """After a first model, one that breaks a slice, and one that does not."""
    await scene.land("1", accuracy=0.7)
    await scene.landed()
    await scene.land("2", accuracy=0.9, fell=60)
    await scene.landed(2)
    await scene.land("3", accuracy=0.9, fell=6)
    await scene.landed(3)


# With nodes of its queue.
situation(
    "admitted",
    {"admitted": run("succeeded")},
    compute=QUEUED_COMPUTE,
    queue="open",
)(upload_until("succeeded", accuracy=0.9))
situation("below-floor", {"not-promoted": run("not_promoted")})(
    upload_until("not_promoted", accuracy=0.4)
)


@situation(
    "checked",
    {
        "check-passed": Kept(orchestrator="retraining", holds=is_continued),
        "not-needed": run("not_needed"),
        "held": run("held"),
        "checked": landing(3),
    },
    checks={"job": "job.yml", "compute": BASE["compute"]},
    champion_check={"job": "job.yml", "compute": BASE["compute"], "margin": 0.1},
)
async def checked(scene: Scene) -> None:
    """A batch passes its data check and trains; a second one is not needed; a third one is held."""
    await scene.land("1", "2", accuracy=0.7)
    await scene.landed()
    await scene.land("3", accuracy=0.65)
    await scene.landed(2)
    await scene.land("4", wrong=1)
    await scene.landed(3)


situation(
    "no-quota",
    {"quota-exceeded": run("rejected")},
    compute=[{"cluster": "gpu", "size": NO_QUOTA_SIZE, "nodes": 1}],
)(upload_until("rejected", accuracy=0.4))


def pipeline_document(name: str) -> Document:
    """The content of a situation's `pipeline.yml`."""
    document = json.loads(json.dumps(BASE))
    document["source"]["prefix"] = f"{name}/"
    document["dataset"]["name"] = name
    document["model"] = {"name": name}
    for section, values in SITUATIONS[name].changes.items():
        given = document.get(section, {})
        document[section] = given | values if isinstance(values, dict) else values
    return document

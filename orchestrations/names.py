"""The names of effects, each derived from its subject.

After a crash between an effect and its checkpoint, the retry finds the effect and adopts it.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

VERSION_HEX_DIGITS = 16
REQUEST_PREFIX = "request-"


def landing_instance(pipeline: str, partition: str | None = None) -> str:
    """The one `landing` instance of a zone, or of a partition that is a batch of its own.

    A pipeline's name has no underscore, so that two names cannot collide.
    """
    return f"landing-{pipeline}" if partition is None else f"landing-{pipeline}_{partition}"


def pipeline_of_landing(landing: str) -> str:
    """The pipeline of a `landing` instance of a zone or partition."""
    return landing.removeprefix(landing_instance("")).partition("_")[0]


def partition_of_landing(pipeline: str, landing: str) -> str | None:
    """The partition of a `landing` instance; None for the whole zone, and for requests."""
    prefix = landing_instance(pipeline, "")
    return landing.removeprefix(prefix) if landing.startswith(prefix) else None


def request_instance(pipeline: str, idempotency_key: str) -> str:
    """The `landing` instance of one caller's request."""
    key = hashlib.sha256(idempotency_key.encode()).hexdigest()[:VERSION_HEX_DIGITS]
    return f"{REQUEST_PREFIX}{pipeline}-{key}"


def batch_id(landing: str, opened_at: datetime) -> str:
    """The id of one opening of a landing: an instance lands many batches, one after another."""
    return f"{landing}@{opened_at.astimezone(UTC).isoformat(timespec='milliseconds')}"


def freeze_id(landing: str, frozen_at: datetime) -> str:
    """The id of one freeze of a zone, from its landing and its time."""
    moment = frozen_at.astimezone(UTC).isoformat()
    return hashlib.sha256(f"{landing}@{moment}".encode()).hexdigest()[:VERSION_HEX_DIGITS]


def freezing_instance(pipeline: str, freeze: str) -> str:
    """The `freezing` instance of one freeze."""
    return f"freezing-{pipeline}-{freeze}"


def landing_of(batch: str) -> str:
    """The landing in a batch's id."""
    return batch.rpartition("@")[0]


def training_name(version: str, number: int) -> str:
    """A round of training on a dataset version; the first has the version's own name."""
    return version if number == 1 else f"{version}r{number}"


def version_of(training: str) -> str:
    """The dataset version in the name of a round, or of a reproduction of its model."""
    return re.sub(r"r\d+$", "", round_of(training))


def round_of(training: str) -> str:
    """The name of the round in the name of a reproduction; a round's is its own."""
    return re.sub(r"p\d+$", "", training)


def reproduction_name(training: str, number: int) -> str:
    """A reproduction of the model of a round of training: no round, so that it counts as none."""
    return f"{reproductions_of(training)}{number}"


def reproductions_of(training: str) -> str:
    """What the names of the reproductions of a round's model begin with."""
    return f"{training}p"


def run_id(pipeline: str, training: str, attempt: int) -> str:
    """The `retraining` instance and the Azure ML job of one attempt in a round of training."""
    return f"{pipeline}-{training}-{attempt}"


def training_of(run: str) -> str:
    """The name of the round of training in the id of a run."""
    return run.rsplit("-", 2)[1]


def stage_job(run: str, stage: str) -> str:
    """The Azure ML job of a stage of a run; a run's id has no underscore. Training has its name."""
    return run if stage == "training" else f"{run}_{stage}"


def run_of_job(job: str) -> str:
    """The run whose stage has a job; also of its place in a queue, which has the job's name."""
    return job.partition("_")[0]


def smoke_job(endpoint: str, deployment: str, attempt: int = 0) -> str:
    """The scoring job that tests a new deployment of a batch endpoint."""
    return f"smoke-{endpoint}-{deployment}{_numbered(attempt)}"


def rollout_id(endpoint: str, version: str, attempt: int = 0) -> str:
    """The `rollout` instance of one model version at one endpoint.

    Args:
        endpoint: its name; it has no underscore, so that two ids cannot collide.
        version: the model version.
        attempt: as in `RolloutRequest`.
    """
    return f"rollout-{endpoint}-{version}{_numbered(attempt)}"


def is_rollout_of(rollout: str, endpoint: str, version: str) -> bool:
    """Whether a rollout is one of this model version at this endpoint."""
    return rollout.partition("_")[0] == rollout_id(endpoint, version)


def promotion_id(pipeline: str, version: str, to: str, attempt: int = 0) -> str:
    """The `promotion` instance of a model version and a workspace; neither name has underscores."""
    return f"promotion-{pipeline}_{version}_{to}{_numbered(attempt)}"


def deployment_name(version: str) -> str:
    """The deployment of a model version; 3 to 32 characters, in lower case as in traffic maps."""
    return f"model-{version}"


def claim_record(pipeline: str, training: str) -> str:
    """The record of the claim of a round of training (`training_name`)."""
    return f"dataset-claims/{pipeline}/{training}.json"


def results_record(run: str, stage: str = "training") -> str:
    """The blob in the records container with the full metrics or error of a run's job."""
    return f"runs/{run}/{'results' if stage == 'training' else stage}.json"


def ended_by_check_record(pipeline: str, training: str) -> str:
    """The record that a check has ended a round of training (`training_name`)."""
    return f"ended-by-check/{pipeline}/{training}.json"


def new_files_folder(manifest_path: str, base: str) -> str:
    """The folder of the manifest of the files that a version has and an earlier one has not."""
    return f"{manifest_path}/new-since-{base}"


def results_folder(pipeline: str, run: str) -> str:
    """The folder of a run's results in the workspace's default datastore."""
    return f"landfall/{pipeline}/{run}/results/"


def trial_folder(trial: str) -> str:
    """The folder of a trial's results: Azure ML's default path of an output."""
    return f"azureml/{trial}/results/"


def judged_folder(pipeline: str, run: str, trial: str | None) -> str:
    """The folder of the results that represent a run: its own, or those of a sweep's trial."""
    return results_folder(pipeline, run) if trial is None else trial_folder(trial)


def approval_id(subject: str, before: str) -> str:
    """The question about a run, a rollout or a promotion before a step; no id of one has a dot."""
    return f"{subject}.{before}"


def notification_id(run: str, kind: str) -> str:
    """`MessageId`, CloudEvents `id` and `webhook-id` of a notification."""
    return f"{run}:{kind}"


def alert_id(kind: str, *about: str) -> str:
    """`MessageId` of an alert: alerts of one kind about one subject are the same alert."""
    return ":".join((kind, *about))


def _numbered(attempt: int) -> str:
    return f"_{attempt}" if attempt else ""

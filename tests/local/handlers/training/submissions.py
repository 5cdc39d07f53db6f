"""The steps of a run before its job's submission, and until the job has a given state."""

from __future__ import annotations

import time

from handlers.platform.azure_ml_jobs import diagnose_job
from handlers.training.assets import register_dataset
from handlers.training.compute_clusters import ensure_capacity
from handlers.training.jobs import get_job
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset, RegisterDataset
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import DiagnoseJob, EnsureCapacity, GetJob, Job, SubmitJob
from orchestrations.platform.waiting import ENDED
from tests.local.handlers.cloud import Cloud

SECONDS = 240


def submission(cloud: Cloud, pipeline: Pipeline, dataset: Dataset, attempt: int = 1) -> SubmitJob:
    clients = cloud.clients
    capacity = ensure_capacity(clients, EnsureCapacity(options=pipeline.compute))
    asset = register_dataset(clients, RegisterDataset(pipeline=pipeline, dataset=dataset))
    request = RunRequest(pipeline=pipeline, dataset=dataset, attempt=attempt)
    return SubmitJob(run=request.run, request=request, capacity=capacity, asset=asset)


def wait_until(cloud: Cloud, name: str, *states: str, poll_seconds: float = 0.1) -> Job:
    deadline = time.monotonic() + SECONDS
    while (job := get_job(cloud.clients, GetJob(job=name))).state not in states:
        assert job.state not in ENDED, diagnose_job(cloud.clients, DiagnoseJob(job=name))
        assert time.monotonic() < deadline, job
        time.sleep(poll_seconds)
    return job

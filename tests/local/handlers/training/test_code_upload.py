"""The upload of a job's code fails: the submission says so, and the next one uploads again."""

from __future__ import annotations

import uuid

import pytest

from handlers.platform.activity_adapter import ActivityFault, as_function
from handlers.platform.azure_ml_jobs import cancel_job
from handlers.training.jobs import submit_job
from localazure.faults.current_plan import remove_plan, set_plan
from localazure.faults.plan import Plan
from orchestrations.contracts.training import CancelJob, SubmitJob
from orchestrations.errors import TransientError
from orchestrations.platform.activities import parse_fault, parse_outcome
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.training.submissions import submission
from tests.unit.orchestrations.examples import DATASET, PIPELINE

# azure.ai.ml speaks to marshmallow 3 as marshmallow 4 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore::marshmallow.warnings.Marshmallow4Warning")

JOB_YML = """\
type: command
code: code
command: python train.py
environment:
  image: registry/image
"""
# Storage refuses at once with a status that its SDK does not try again.
REFUSED = {
    "part": "storage",
    "operation": "blob/containers/blobs/write",
    "fault": "error",
    "status": 403,
}


def test_a_failed_upload_ends_the_submission_and_the_next_one_uploads_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubmitJob, "LIMIT_SECONDS", 20.0)
    # The workspace is shared: the data assets of other tests have another name.
    own = PIPELINE.dataset.model_copy(update={"name": "uploads"})
    pipeline = PIPELINE.model_copy(update={"name": "uploads", "dataset": own})
    folder = cloud.pipelines / pipeline.name
    (folder / "code").mkdir(parents=True)
    (folder / "job.yml").write_text(JOB_YML)
    (folder / "code" / "train.py").write_text(f"print({uuid.uuid4().hex!r})")
    clients = cloud.clients
    clients.records.upload_blob(f"{DATASET.manifest_path}/MLTable", "", overwrite=True)
    request = submission(cloud, pipeline, DATASET)
    submit = as_function(SubmitJob, submit_job, clients)

    set_plan(cloud.environment.state, Plan.model_validate({"seed": 7, "rules": [REFUSED]}))
    try:
        with pytest.raises(ActivityFault) as raised:
            submit(request.to_dict())
    finally:
        remove_plan(cloud.environment.state)
    fault = parse_fault(str(raised.value))
    assert isinstance(fault, TransientError)
    assert "no result within" not in str(fault)

    job = parse_outcome(SubmitJob, submit(request.to_dict()))
    assert job.name == request.run
    cancel_job(clients, CancelJob(job=job.name))

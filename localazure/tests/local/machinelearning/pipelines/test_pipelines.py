from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.ai.ml import load_component
from azure.ai.ml.entities import CronTrigger, JobSchedule
from azure.ai.ml.exceptions import JobException
from azure.core.exceptions import HttpResponseError

from harness.local_workspace import ENVIRONMENT, Local
from harness.waiting import until

DATASTORE = "azureml://datastores/workspaceblobstore/paths"


@pytest.fixture(scope="module", autouse=True)
def cluster(local: Local) -> None:
    local.make_cluster("steps")


def step(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": text, "environment": ENVIRONMENT, **fields}


def submit(local: Local, name: str, jobs: dict[str, Any], **fields: Any) -> None:
    settings = {"default_compute": "azureml:serverless"}
    local.submit_document(
        {"type": "pipeline", "name": name, "settings": settings, "jobs": jobs, **fields}
    )


def pack_and_train(version: str, scale: int = 2) -> dict[str, Any]:
    """The fields of a pipeline: `pack` writes a literal to its output, which `train` reads."""
    return {
        "inputs": {"version": version, "scale": scale},
        "outputs": {
            "model": {"type": "custom_model", "name": f"packed-{version}", "version": str(scale)}
        },
        "jobs": {
            "pack": step(
                "echo ${{inputs.version}} > ${{outputs.shards}}/version",
                inputs={"version": "${{parent.inputs.version}}"},
                outputs={"shards": {"type": "uri_folder", "name": "packed-shards"}},
            ),
            "train": step(
                "echo $(cat ${{inputs.shards}}/version) times ${{inputs.scale}}"
                " > ${{outputs.model}}/model",
                compute="azureml:steps",
                inputs={
                    "shards": "${{parent.jobs.pack.outputs.shards}}",
                    "scale": "${{parent.inputs.scale}}",
                },
                outputs={"model": "${{parent.outputs.model}}"},
            ),
        },
    }


def test_a_step_reads_the_default_artifacts_of_another(local: Local) -> None:
    """The pipeline is azureml-examples' hello-pipeline-default-artifacts.yml."""
    jobs = {
        "write": step("echo hello > ./outputs/world", outputs={"artifacts": None}),
        "read": step(
            "grep hello ${{inputs.found}}/outputs/world",
            inputs={"found": "${{parent.jobs.write.outputs.artifacts}}"},
        ),
    }
    submit(local, "artifacts", jobs=jobs)
    local.wait_for("artifacts", "Completed")


def test_steps_pass_on_their_outputs_and_are_reused_where_their_inputs_did_not_change(
    local: Local, tmp_path: Path
) -> None:
    submit(local, "reuse-1", **pack_and_train("same"))
    local.wait_for("reuse-1", "Completed")
    completed = {"reuse-1_pack": "Completed", "reuse-1_train": "Completed"}
    assert local.children("reuse-1") == completed
    assert local.ml.jobs.get("reuse-1_train").compute == "steps"
    assert local.ml.jobs.get("reuse-1_pack").compute == "serverless"
    local.ml.jobs.download("reuse-1", download_path=tmp_path, output_name="model")
    assert (tmp_path / "named-outputs/model/model").read_text() == "same times 2\n"
    local.ml.jobs.stream("reuse-1")
    submit(local, "reuse-2", **pack_and_train("same", scale=3))
    local.wait_for("reuse-2", "Completed")
    reused = local.ml.jobs.get("reuse-2_pack").properties
    assert (reused["azureml.isreused"], reused["azureml.reusedrunid"]) == ("true", "reuse-1_pack")
    assert "azureml.isreused" not in local.ml.jobs.get("reuse-2_train").properties
    shards = list(local.ml.data.list(name="packed-shards"))
    assert [each.version for each in shards] == ["2", "1"]
    assert {each.path for each in shards} == {f"{DATASTORE}/azureml/reuse-1_pack/shards/"}
    models = {each.version: each.path for each in local.ml.models.list(name="packed-same")}
    assert models == {
        "2": f"{DATASTORE}/azureml/reuse-1_train/model/",
        "3": f"{DATASTORE}/azureml/reuse-2_train/model/",
    }
    model = "azureml://jobs/reuse-2/outputs/model/paths/model"
    submit(
        local,
        "reuse-3",
        {
            "read": step(
                "cat ${{inputs.model}} > ${{outputs.copy}}/copy",
                inputs={"model": {"type": "uri_file", "path": model}},
                outputs={"copy": {"type": "uri_folder"}},
            )
        },
    )
    local.wait_for("reuse-3", "Completed")
    copy = local.read_blob("azureml-blobstore", "azureml/reuse-3_read/copy/copy")
    assert copy == b"same times 3\n"


def test_registered_components_are_steps(local: Local, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "double.py").write_text("import sys; print(2 * float(sys.argv[1]))")
    (tmp_path / "double.yml").write_text(
        yaml.safe_dump(
            {
                "type": "command",
                "name": "double",
                "inputs": {
                    "number": {"type": "number", "default": 4},
                    "note": {"type": "string", "optional": True},
                },
                "outputs": {"result": {"type": "uri_folder"}},
                "code": "./code",
                "environment": ENVIRONMENT,
                "command": "python double.py ${{inputs.number}} > ${{outputs.result}}/number "
                "$[[&& echo ${{inputs.note}} > ${{outputs.result}}/note]]",
            }
        )
    )
    component = local.ml.components.create_or_update(load_component(str(tmp_path / "double.yml")))
    assert local.ml.components.get("double", "1").version == component.version == "1"
    assert "double" in [each.name for each in local.ml.components.list()]
    submit(
        local,
        "components",
        {
            "given": {"component": "azureml:double:1", "inputs": {"number": 5, "note": "n"}},
            "default": {"component": "azureml:double@latest"},
        },
    )
    local.wait_for("components", "Completed")
    folder = "azureml/components_{}/result/"
    given, default = folder.format("given"), folder.format("default")
    assert local.list_blobs("azureml-blobstore", given) == ["note", "number"]
    assert local.read_blob("azureml-blobstore", given + "number") == b"10.0\n"
    assert local.list_blobs("azureml-blobstore", default) == ["number"]
    assert local.read_blob("azureml-blobstore", default + "number") == b"8.0\n"


def test_cancelling_ends_the_whole_tree(local: Local, tmp_path: Path) -> None:
    inner = {"type": "pipeline", "jobs": {"deep": step("sleep 600")}}
    (tmp_path / "inner.yml").write_text(yaml.safe_dump(inner))
    submit(
        local,
        "tree",
        {"nested": {"type": "pipeline", "component": str(tmp_path / "inner.yml")}},
    )
    # The workspace creates the job of the nested step asynchronously.
    until(lambda: local.ask_arm("GET", "jobs/tree_nested_deep?api-version=2024-10-01").ok)
    local.wait_for("tree_nested_deep", "Running")
    local.cancel("tree")
    assert local.children("tree") == {"tree_nested": "Canceled"}
    assert local.children("tree_nested") == {"tree_nested_deep": "Canceled"}


def test_outputs_of_a_nested_pipeline_are_passed_on(local: Local, tmp_path: Path) -> None:
    inner = {
        "type": "pipeline",
        "inputs": {"number": {"type": "integer"}},
        "outputs": {"written": {"type": "uri_folder"}},
        "jobs": {
            "write": step(
                "echo ${{inputs.number}} > ${{outputs.o}}/n",
                inputs={"number": "${{parent.inputs.number}}"},
                outputs={"o": "${{parent.outputs.written}}"},
            )
        },
    }
    (tmp_path / "inner.yml").write_text(yaml.safe_dump(inner))
    submit(
        local,
        "outer",
        {
            "inner": {
                "type": "pipeline",
                "component": str(tmp_path / "inner.yml"),
                "inputs": {"number": 7},
            },
            "read": step(
                "cp ${{inputs.o}}/n ${{outputs.copy}}/",
                inputs={"o": "${{parent.jobs.inner.outputs.written}}"},
                outputs={"copy": "${{parent.outputs.copy}}"},
            ),
        },
        outputs={"copy": {"type": "uri_folder", "path": "azureml://datastores/landing/paths/o/"}},
    )
    local.wait_for("outer", "Completed")
    assert local.read_blob("landing", "o/n") == b"7\n"


def test_a_sweep_is_a_step(local: Local, tmp_path: Path) -> None:
    trial = {
        "type": "command",
        "inputs": {"lr": {"type": "number"}},
        "outputs": {"o": {"type": "uri_folder"}},
        "environment": ENVIRONMENT,
        "command": "echo '1 ${{inputs.lr}} 0' > "
        "$(ls -d ${MLFLOW_TRACKING_URI#file://}/*/$MLFLOW_RUN_ID)/metrics/accuracy",
    }
    (tmp_path / "trial.yml").write_text(yaml.safe_dump(trial))
    submit(
        local,
        "tuned",
        {
            "tune": {
                "type": "sweep",
                "trial": str(tmp_path / "trial.yml"),
                "search_space": {"lr": {"type": "choice", "values": [0.1, 0.4]}},
                "sampling_algorithm": "grid",
                "objective": {"goal": "maximize", "primary_metric": "accuracy"},
                "limits": {"max_total_trials": 2, "max_concurrent_trials": 2, "timeout": 600},
            }
        },
    )
    local.wait_for("tuned", "Completed")
    properties = local.ml.jobs.get("tuned_tune").properties
    assert properties["best_child_run_id"] == "tuned_tune_1"


def test_a_step_that_cannot_run_fails_the_pipeline_with_its_reason(local: Local) -> None:
    data = {"type": "uri_folder", "path": "azureml:no-such-data:1"}
    submit(local, "cannot-run", {"a": step("cat ${{inputs.x}}", inputs={"x": data})})
    local.wait_for("cannot-run", "Failed")
    with pytest.raises(JobException, match="no-such-data:1"):
        local.ml.jobs.stream("cannot-run")


def test_schedules_are_refused_with_what_to_use_instead(local: Local) -> None:
    submit(local, "unscheduled", {"only": step("true")})
    job: Any = local.ml.jobs.get("unscheduled")
    trigger = CronTrigger(expression="0 4 * * *")
    for request in (
        lambda: local.ml.schedules.begin_create_or_update(
            JobSchedule(name="nightly", trigger=trigger, create_job=job)
        ),
        lambda: list(local.ml.schedules.list()),
        lambda: list(local.ml.jobs.list(scheduled_job_name="nightly")),
    ):
        with pytest.raises(HttpResponseError, match=r"schedules are not covered.*timer trigger"):
            request()


def test_a_pipeline_continues_after_the_workspace_was_killed(local: Local, tmp_path: Path) -> None:
    fields = pack_and_train("killed")
    wait = f"echo x >> {tmp_path}/starts; until [ -e {tmp_path}/go ]; do sleep 0.05; done; "
    fields["jobs"]["pack"]["command"] = wait + fields["jobs"]["pack"]["command"]
    submit(local, "goes-on", **fields)
    until((tmp_path / "starts").exists)
    local.workspace.end(signal.SIGKILL)
    local.workspace.start()
    (tmp_path / "go").touch()
    local.wait_for("goes-on", "Completed")
    assert local.children("goes-on") == {"goes-on_pack": "Completed", "goes-on_train": "Completed"}
    model = local.ml.jobs.get("goes-on").outputs["model"].path
    blob = model.partition("/paths/")[2]
    assert local.read_blob("azureml-blobstore", f"{blob}model") == b"killed times 2\n"

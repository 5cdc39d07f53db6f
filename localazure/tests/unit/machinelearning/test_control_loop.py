"""Sweeps and pipelines in the tables, with a simulated clock."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.compute.clusters import COMPUTES
from localazure.machinelearning.control_loop import advance_parents
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.parents import PassResult
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.spark import as_command
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobRow,
    JobTransaction,
    get_job,
    list_children,
)
from localazure.machinelearning.pipelines.steps import COMPONENTS
from localazure.machinelearning.pipelines.submission import check_job
from localazure.machinelearning.store import get_resource, put_resource
from localazure.machinelearning.sweeps import sweep as sweeps
from localazure.machinelearning.sweeps.advance import TrialMetrics
from localazure.sqlite.query import querying

WORKSPACE = (
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
)


class Tables:
    """A workspace's tables, with jobs that end when the test ends them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.query = querying(connection)
        self.now = 1000.0

    @property
    def jobs(self) -> JobTransaction:
        return JobTransaction(self.connection, "/workspace", self.now)

    def submit(self, name: str, properties: dict[str, Any]) -> None:
        self.jobs.insert(check_job(self.query, name, properties), {"properties": properties})

    def advance(self, **values: tuple[float, ...]) -> PassResult:
        """Make one pass, with these metrics of trials; the metrics of ended trials are complete."""
        names = [row["name"] for row in self.connection.execute("SELECT name FROM job")]
        ended = frozenset(name for name in names if self.job(name).ended_at is not None)
        metrics = TrialMetrics(ended=ended, values=values)
        return advance_parents(self.jobs, dict.fromkeys(names, metrics))

    def settle(self, **values: tuple[float, ...]) -> None:
        while self.advance(**values).has_changed:
            pass

    def job(self, name: str) -> JobRow:
        job = get_job(self.query, name)
        assert job is not None, name
        return job

    def children(self, name: str) -> dict[str, JobStatus]:
        return {child.name: child.status for child in list_children(self.query, name)}

    def properties(self, name: str) -> dict[str, Any]:
        resource = get_resource(self.query, JOBS, name)
        assert resource is not None
        return resource.properties

    def enter(self, name: str, *statuses: JobStatus) -> None:
        for status in statuses:
            self.jobs.set_status(name, status)

    def start(self, name: str) -> None:
        self.enter(name, JobStatus.PREPARING, JobStatus.RUNNING)

    def complete(self, name: str) -> None:
        if self.job(name).status is JobStatus.QUEUED:
            self.start(name)
        self.enter(name, JobStatus.FINALIZING, JobStatus.COMPLETED)

    def register(self, name: str, **spec: Any) -> str:
        document = {"properties": {"componentSpec": {"type": "command", **spec}}}
        put_resource(self.connection, COMPONENTS, name, "1", document, now=self.now)
        return f"{WORKSPACE}/components/{name}/versions/1"


@pytest.fixture
def tables(connection: sqlite3.Connection) -> Tables:
    return Tables(connection)


def sweep(**changes: Any) -> dict[str, Any]:
    return {
        "jobType": "Sweep",
        "trial": {"command": "train ${{search_space.lr}}", "environmentId": "azureml:torch:1"},
        "searchSpace": {"lr": ["choice", [[0.1, 0.2, 0.3]]]},
        "samplingAlgorithm": {"samplingAlgorithmType": "Grid"},
        "objective": {"goal": "Maximize", "primaryMetric": "accuracy"},
        "limits": {"maxTotalTrials": 3, "maxConcurrentTrials": 2, "timeout": "PT60S"},
        **changes,
    }


def pipeline(tables: Tables, **settings: Any) -> dict[str, Any]:
    """A pipeline with the step `pack`, and the step `train` that reads its output."""
    run = {"command": "run", "environment": "azureml:torch:1"}
    output = {"o": {"type": "uri_folder"}}
    pack = tables.register("pack", **run, outputs=output)
    train = tables.register("train", **run, inputs={"i": {"type": "uri_folder"}}, outputs=output)
    return {
        "jobType": "Pipeline",
        "settings": settings,
        "outputs": {"model": {"jobOutputType": "uri_folder"}},
        "jobs": {
            "pack": {"type": "command", "componentId": pack},
            "train": {
                "type": "command",
                "componentId": train,
                "inputs": {"i": {"value": "${{parent.jobs.pack.outputs.o}}"}},
                "outputs": {"o": {"value": "${{parent.outputs.model}}"}},
            },
        },
    }


def test_a_step_of_spark_is_a_spark_job_without_the_default_compute(
    tables: Tables, pyspark: Path
) -> None:
    document = pipeline(tables, default_compute="azureml:no-cluster")
    del document["jobs"]["train"]
    spec = {"entry": {"file": "pack.py"}, "args": "--o ${{outputs.o}}", "py_files": ["rows.py"]}
    output = {"o": {"type": "uri_folder"}}
    spark = tables.register("spark", type="spark", **spec, outputs=output)
    conf = {"spark.driver.cores": 2}
    document["jobs"]["pack"] = {"type": "spark", "componentId": spark, "conf": conf}
    tables.submit("p", document)
    tables.settle()
    assert (tables.job("p_pack").cluster, tables.job("p_pack").node_count) == ("serverless", 1)
    step = tables.properties("p_pack")
    assert step["jobType"] == "Spark"
    assert step["entry"] == {"sparkJobEntryType": "SparkJobPythonEntry", "file": "pack.py"}
    assert (step["conf"], step["pyFiles"]) == ({"spark.driver.cores": "2"}, ["rows.py"])
    assert f"{pyspark}/bin/spark-submit" in as_command("p_pack", step)["command"]


@pytest.mark.usefixtures("pyspark")
def test_a_pipeline_with_a_step_that_spark_cannot_run_is_not_accepted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = pipeline(tables)
    spark = tables.register("spark", type="spark", entry={"class_name": "org.example.Pack"})
    document["jobs"]["pack"] = {"type": "spark", "componentId": spark}
    with pytest.raises(ArmError, match=r"'pack': entry.class_name is not covered"):
        tables.submit("p", document)
    file = tables.register("file", type="spark", entry={"file": "pack.py"}, outputs={"o": {}})
    document["jobs"]["pack"] = {"type": "spark", "componentId": file}
    tables.submit("p", document)
    monkeypatch.setenv("JAVA_HOME", "/removed")
    with pytest.raises(ArmError, match=r"'pack' needs .* no java in JAVA_HOME, '/removed'"):
        tables.submit("again", document)


def test_a_sweep_waits_for_the_last_metrics_of_its_trials(tables: Tables) -> None:
    tables.submit("s", sweep(limits={"maxTotalTrials": 1}))
    tables.settle()
    tables.complete("s_0")
    before = {"s": TrialMetrics(ended=frozenset(), values={"s_0": (0.1,)})}
    assert advance_parents(tables.jobs, before).has_changed
    assert tables.job("s").status is JobStatus.RUNNING
    tables.settle(s_0=(0.1, 0.9))
    assert tables.properties("s")["properties"] == {"best_child_run_id": "s_0", "score": "0.9"}


def test_a_parent_that_cannot_be_advanced_fails_alone(tables: Tables) -> None:
    tables.submit("bad", sweep())
    tables.submit("good", sweep())
    # Accepted by an earlier version, which did not look at all trials.
    overflowing = sweep(
        searchSpace={"lr": ["loguniform", [1e-5, 1000]]}, samplingAlgorithm={"seed": 1}
    )
    put_resource(tables.connection, JOBS, "bad", "", {"properties": overflowing}, now=tables.now)
    tables.settle()
    assert tables.job("bad").status is JobStatus.FAILED
    assert "no finite numbers" in str(tables.job("bad").error_message)
    assert tables.job("good").status is JobStatus.RUNNING
    assert list(tables.children("good")) == ["good_0", "good_1"]


def test_a_defect_fails_the_parent_that_meets_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of the sweep that have begun hear why they end."""
    tables.submit("bad", sweep(limits={"maxTotalTrials": 2, "maxConcurrentTrials": 1}))
    tables.submit("good", sweep())
    tables.settle()
    tables.start("bad_0")
    next_step = sweeps.next_step

    def fail_for_bad(spec: Any, status: JobStatus, trials: Any) -> Any:
        if any(trial.name.startswith("bad") for trial in trials):
            raise OverflowError("math range error")
        return next_step(spec, status, trials)

    monkeypatch.setattr(sweeps, "next_step", fail_for_bad)
    stopped = [name for _ in range(3) for name in tables.advance().stop]
    assert stopped == ["bad_0"]
    order = tables.job("bad_0").stop_order
    assert order is not None
    assert order.message == "the sweep of this trial failed"
    tables.enter("bad_0", JobStatus.CANCELED)
    tables.settle()
    assert tables.job("bad").status is JobStatus.FAILED
    assert tables.job("bad").error_message == "OverflowError: math range error"
    assert tables.job("good").status is JobStatus.RUNNING


def test_a_failure_of_the_database_is_no_failure_of_a_job(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.submit("s", sweep())

    def disk_is_full(*_: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sweeps, "next_step", disk_is_full)
    with pytest.raises(sqlite3.OperationalError):
        tables.advance()


NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FIELDS = [
    *("searchSpace", "samplingAlgorithm", "objective", "limits", "earlyTermination", "trial"),
    *("inputs", "outputs", "experimentName", "queueSettings", "compute", "properties"),
]


@given(
    changes=st.dictionaries(
        st.sampled_from(FIELDS),
        st.one_of(
            NONSENSE,
            st.dictionaries(
                st.sampled_from(
                    [
                        *("lr", "samplingAlgorithmType", "seed", "rule", "goal", "primaryMetric"),
                        *("maxTotalTrials", "maxConcurrentTrials", "timeout", "trialTimeout"),
                        *("policyType", "slackFactor", "evaluationInterval", "command"),
                        *("environmentId", "distribution", "resources"),
                    ]
                ),
                NONSENSE,
                max_size=4,
            ),
        ),
        max_size=3,
    )
)
def test_a_document_of_nonsense_is_refused_or_fails_alone(
    new_connection: Callable[[], AbstractContextManager[sqlite3.Connection]],
    changes: dict[str, Any],
) -> None:
    with new_connection() as connection:
        tables = Tables(connection)
        properties = {
            key: {**value, **changes[key]}
            if isinstance(value, dict) and isinstance(changes.get(key), dict)
            else changes.get(key, value)
            for key, value in sweep().items()
        }
        tables.submit("good", sweep())
        with contextlib.suppress(ArmError):
            tables.submit("bad", properties)
        tables.advance()
        tables.advance()
        assert list(tables.children("good")) == ["good_0", "good_1"]


def test_a_sweep_ends_at_its_timeout(tables: Tables) -> None:
    tables.submit("s", sweep())
    step = tables.advance()
    assert step.wake_at == tables.now + 60
    tables.start("s_0")
    tables.now += 60
    assert tables.advance().has_changed
    step = tables.advance()
    assert step.stop == ["s_0"]
    assert tables.children("s") == {"s_0": JobStatus.CANCEL_REQUESTED, "s_1": JobStatus.CANCELED}
    tables.enter("s_0", JobStatus.CANCELED)
    tables.settle()
    assert tables.job("s").status is JobStatus.CANCELED
    assert tables.job("s").error_code == "JobTimedOut"


def test_a_policy_is_applied_every_second_and_ends_a_trial_once(tables: Tables) -> None:
    policy = {"policyType": "Bandit", "slackAmount": 0.1}
    tables.submit("s", sweep(earlyTermination=policy))
    tables.settle()
    tables.start("s_0")
    tables.start("s_1")
    step = tables.advance(s_0=(0.1,), s_1=(0.9,))
    assert step.wake_at == tables.now + 1
    assert step.stop == ["s_0"]
    assert tables.advance(s_0=(0.1,), s_1=(0.9,)).stop == []


@pytest.mark.parametrize("value", ["steps", "azureml:steps"])
def test_an_input_of_a_pipeline_may_name_the_compute(tables: Tables, value: str) -> None:
    steps = {"properties": {"computeType": "AmlCompute"}}
    put_resource(tables.connection, COMPUTES, "steps", "", steps, now=0)
    text = {"jobInputType": "literal", "value": value}
    inner = pipeline(tables, default_compute="${{parent.inputs.where}}")
    tables.submit("p", {**inner, "inputs": {"where": text}})
    tables.settle()
    assert tables.job("p_pack").cluster == "steps"
    tables.submit("q", {**inner, "inputs": {}})
    tables.settle()
    assert tables.job("q").status is JobStatus.FAILED
    assert "${{parent.inputs.where}}' is not a text input" in tables.job("q").error_message


def test_a_step_is_reused_through_several_pipelines(tables: Tables) -> None:
    for name in ("a", "b", "c"):
        tables.submit(name, pipeline(tables))
        tables.settle()
        if name == "a":
            for step in ("a_pack", "a_train"):
                assert list(tables.children(name))[-1] == step
                tables.complete(step)
                tables.settle()
        assert tables.job(name).status is JobStatus.COMPLETED
    properties = tables.properties("c_train")
    assert properties["properties"]["azureml.reusedrunid"] == "a_train"
    assert properties["outputs"]["o"]["uri"].endswith("/paths/azureml/a_train/o/")
    assert tables.properties("c")["outputs"]["model"]["uri"].endswith("/a_train/o/")


@pytest.mark.parametrize("settings", [{"force_rerun": True}, {}])
def test_a_step_that_must_run_again_does(tables: Tables, settings: dict[str, Any]) -> None:
    tables.submit("a", pipeline(tables))
    tables.settle()
    tables.complete("a_pack")
    tables.settle()
    document = pipeline(tables, **settings)
    if not settings:
        spec = {"environment": "azureml:torch:1", "outputs": {"o": {"type": "uri_folder"}}}
        changed = tables.register("pack-2", command="run otherwise", **spec)
        document["jobs"]["pack"]["componentId"] = changed
    tables.submit("b", document)
    tables.settle()
    assert tables.job("b_pack").status is JobStatus.QUEUED


def test_a_failed_step_names_itself_in_the_pipeline(tables: Tables) -> None:
    tables.submit("p", pipeline(tables))
    tables.settle()
    tables.start("p_pack")
    tables.jobs.set_error("p_pack", "JobFailed", "rank 0 ended with code 3")
    tables.enter("p_pack", JobStatus.FAILED)
    tables.settle()
    job = tables.job("p")
    assert job.status is JobStatus.FAILED
    assert job.error_message == "step 'pack' (job p_pack) failed: rank 0 ended with code 3"


def test_a_name_that_is_taken_fails_the_pipeline(tables: Tables) -> None:
    command = {"jobType": "Command", "command": "true", "environmentId": "azureml:torch:1"}
    tables.submit("p_pack", command)
    tables.submit("p", pipeline(tables))
    tables.settle()
    assert tables.job("p").status is JobStatus.FAILED
    assert "'p_pack' is taken" in tables.job("p").error_message
    assert tables.job("p_pack").status is JobStatus.QUEUED


@pytest.mark.parametrize(
    ("is_cancelled", "end", "why"),
    [(False, JobStatus.FAILED, "type 'parallel' is not covered"), (True, JobStatus.CANCELED, "")],
)
def test_a_pipeline_of_an_earlier_version_ends_if_its_step_is_refused_today(
    tables: Tables, end: JobStatus, why: str, *, is_cancelled: bool
) -> None:
    tables.submit("p", pipeline(tables))
    tables.settle()
    tables.start("p_pack")
    old = tables.properties("p")
    old["jobs"]["train"]["type"] = "parallel"
    put_resource(tables.connection, JOBS, "p", "", {"properties": old}, now=tables.now)
    if is_cancelled:
        tables.jobs.request_cancel("p", StopOrder())
    tables.settle()
    tables.enter("p_pack", JobStatus.CANCELED)
    tables.settle()
    assert tables.job("p").status is end
    assert why in tables.job("p").error_message

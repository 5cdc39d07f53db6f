from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.spark import as_command

JOB: dict[str, Any] = {
    "jobType": "Spark",
    "codeId": "azureml:program:1",
    "entry": {"sparkJobEntryType": "SparkJobPythonEntry", "file": "clean rows.py"},
    "args": "--rows ${{inputs.rows}}\n--to ${{outputs.clean}}",
    "conf": {"spark.driver.cores": "2", "spark.app.name": "my rows"},
    "pyFiles": ["a.py", "b.zip"],
    "inputs": {
        "rows": {"jobInputType": "uri_folder", "uri": "azureml:rows:1", "mode": "Direct"},
        "least": {"jobInputType": "literal", "value": "2"},
    },
    "outputs": {"clean": {"jobOutputType": "uri_file", "mode": "Direct"}, "artifacts": None},
}


def test_spark_submit_gets_the_files_the_configuration_and_the_arguments(pyspark: Path) -> None:
    submit = as_command("s", JOB)["command"].strip().splitlines()[-1]
    assert submit.startswith(f"exec {pyspark}/bin/spark-submit '--master=local[2]' ")
    assert "'--conf=spark.app.name=my rows' --py-files=a.py,b.zip 'clean rows.py' --rows" in submit
    assert submit.endswith("--rows ${{inputs.rows}} --to ${{outputs.clean}}")


@pytest.mark.usefixtures("pyspark")
def test_the_program_reads_and_writes_folders() -> None:
    job = as_command("s", JOB)
    assert {each["mode"] for each in job["inputs"].values()} == {"ReadOnlyMount"}
    folder = {"mode": "ReadWriteMount", "jobOutputType": "uri_folder"}
    assert job["outputs"] == {"clean": folder, "artifacts": folder}
    assert as_command("s", {**JOB, "jobType": "Command"}) == {**JOB, "jobType": "Command"}


@pytest.mark.usefixtures("pyspark")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"entry": {"className": "org.example.Rows"}}, "'s': entry.class_name is not covered"),
        ({"computeId": "azureml:pool"}, "`compute`, an attached Spark pool, is not covered"),
        ({"inputs": {"rows": {"mode": "ReadOnlyMount"}}}, "'rows' has mode 'ReadOnlyMount'; use"),
        ({"outputs": {"clean": {"mode": "Upload"}}}, "'clean' has mode 'Upload'; use direct"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ArmError, match=why):
        as_command("s", {**JOB, **change})


def test_what_this_machine_lacks_is_named_with_its_remedy(
    pyspark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(pyspark.parents[1] / "java" / "bin"))
    assert as_command("s", JOB)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ArmError, match=r"lacks: Java 17 or later, as there is no java on PATH"):
        as_command("s", JOB)
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(
        ArmError, match=r"'s' needs .*: the package pyspark \(.*pip install pyspark`\)"
    ):
        as_command("s", JOB)

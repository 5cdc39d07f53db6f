"""Spark steps: refused by name without Java or pyspark, run by pyspark where both are."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from harness.local_workspace import ENVIRONMENT, Local, azure_ml_settings, local_workspace

HAS_SPARK = shutil.which("java") is not None and find_spec("pyspark") is not None

CLEAN = """
import sys
from pyspark.sql import SparkSession
from rows import COLUMN

spark = SparkSession.builder.getOrCreate()
source, target, least = sys.argv[1:]
rows = spark.read.option("header", "true").csv(source)
rows.where(rows[COLUMN] >= int(least)).coalesce(1).write.parquet(target)
print("cores", spark.sparkContext.master, spark.conf.get("spark.executor.instances"))
"""
READ = """
import sys, pathlib, pyarrow.parquet
folder = pathlib.Path(sys.argv[1])
print(sorted(each.name[:5] for each in folder.iterdir()))
print(pyarrow.parquet.read_table(folder).to_pydict())
"""


def pipeline(name: str, code: Path) -> dict[str, Any]:
    """A pipeline whose first step is Spark's."""
    code.mkdir()
    (code / "clean.py").write_text(CLEAN)
    (code / "rows.py").write_text("COLUMN = 'n'\n")
    (code / "read.py").write_text(READ)
    landed = {"type": "uri_folder", "path": "azureml://datastores/landing/paths/rows/"}
    clean = {
        "type": "spark",
        "code": str(code),
        "entry": {"file": "clean.py"},
        "py_files": ["rows.py"],
        "conf": {
            "spark.driver.cores": 2,
            "spark.driver.memory": "512m",
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.executor.instances": 2,
        },
        "inputs": {
            "rows": {"type": "uri_folder", "path": "${{parent.inputs.rows}}", "mode": "direct"},
            "least": 2,
        },
        "outputs": {"cleaned": {"type": "uri_folder", "mode": "direct"}},
        "args": "${{inputs.rows}} ${{outputs.cleaned}}\n${{inputs.least}}",
        "resources": {"instance_type": "standard_e4s_v3", "runtime_version": "3.4"},
    }
    read = {
        "type": "command",
        "code": str(code),
        "command": "python read.py ${{inputs.cleaned}}",
        "environment": ENVIRONMENT,
        "inputs": {"cleaned": "${{parent.jobs.clean.outputs.cleaned}}"},
    }
    return {
        "type": "pipeline",
        "name": name,
        "settings": {"default_compute": "azureml:spark"},
        "inputs": {"rows": landed},
        "jobs": {"clean": clean, "read": read},
    }


def test_a_spark_step_is_refused_by_name_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("JAVA_HOME", "/removed")
    with local_workspace(tmp_path / "state") as local, azure_ml_settings(local.environment):
        local.make_cluster("spark")
        with pytest.raises(HttpResponseError, match="no java in JAVA_HOME, '/removed'") as refused:
            local.submit_document(pipeline("lacking", tmp_path / "code"))
    assert refused.value.status_code == 400
    has_package = find_spec("pyspark") is not None
    assert ("-m pip install pyspark" in str(refused.value)) is not has_package


@pytest.mark.skipif(not HAS_SPARK, reason="no Java, or no pyspark (pip install pyspark, 460 MB)")
def test_a_spark_step_prepares_what_the_next_step_reads(local: Local, tmp_path: Path) -> None:
    local.make_cluster("spark")
    landing = local.blobs.get_container_client("landing")
    landing.upload_blob("rows/a.csv", b"n,name\n1,one\n2,two\n")
    landing.upload_blob("rows/b.csv", b"n,name\n3,three\n")
    document = pipeline("sparked", tmp_path / "code")
    local.submit_document(document)
    alone: dict[str, Any] = {**document["jobs"]["clean"], "name": "alone"}
    rows = {**document["inputs"]["rows"], "mode": "direct"}
    local.submit_document({**alone, "inputs": {**alone["inputs"], "rows": rows}})
    local.wait_for("sparked", "Completed")
    local.wait_for("alone", "Completed")
    assert "cores local[2] 2" in local.log("sparked_clean")
    assert local.ml.jobs.get("sparked_clean").entry.entry == "clean.py"
    assert local.ml.jobs.get("alone").type == "spark"
    printed = local.log("sparked_read")
    assert "['_SUCC', 'part-']" in printed
    assert "{'n': ['2', '3'], 'name': ['two', 'three']}" in printed

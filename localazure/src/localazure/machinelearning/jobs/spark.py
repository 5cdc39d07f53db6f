"""A Spark job as the command job that runs it here, by pyspark's `spark-submit`.

Its data is in local folders, where Azure gives the program URIs (mode `direct`). Its environment is
not built: pyspark is that of the interpreter that runs localazure.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-spark
https://spark.apache.org/docs/latest/submitting-applications.html
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE
from localazure.machinelearning.jobs.store import JobKind
from localazure.runtime.environment import LOOPBACK

SPARK = "Spark"
"""The `jobType` of a Spark job."""

_FILES = {"--py-files": "pyFiles", "--jars": "jars", "--files": "files", "--archives": "archives"}
_CONF = {
    "spark.driver.cores": "1",
    # Without it Spark writes `.crc` files beside its files, on a local disk only.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def as_command(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """The properties of a job, and of a Spark job those of the command job that runs it.

    Raises:
        ArmError: 400, the Spark job has a feature that is not covered, or this machine lacks
            Java or pyspark.
    """
    if properties.get("jobType") != SPARK:
        return properties
    if not (file := (properties.get("entry") or {}).get("file")):
        raise invalid(f"Spark job {name!r}: entry.class_name is not covered; use entry.file")
    if properties.get("computeId"):
        raise invalid(
            f"Spark job {name!r}: `compute`, an attached Spark pool, is not covered; use "
            "`resources` with instance_type and runtime_version"
        )
    data: dict[str, dict[str, Any]] = {
        kind: {key: entry or {} for key, entry in (properties.get(kind) or {}).items()}
        for kind in ("inputs", "outputs")
    }
    for key, entry in [*data["inputs"].items(), *data["outputs"].items()]:
        if (entry.get("mode") or "Direct") != "Direct":
            raise invalid(f"Spark job {name!r}: {key!r} has mode {entry['mode']!r}; use direct")
    conf = {**_CONF, **(properties.get("conf") or {})}
    options = [f"--master=local[{conf['spark.driver.cores']}]"]
    options += [f"--conf={key}={value}" for key, value in conf.items()]
    options += [
        f"{key}={','.join(properties[of])}" for key, of in _FILES.items() if properties.get(of)
    ]
    submit = shlex.join([str(_find_pyspark(name) / "bin" / "spark-submit"), *options, file])
    args = str(properties.get("args") or "").replace("\n", " ")
    command = f"""
        export SPARK_LOCAL_IP={LOOPBACK} SPARK_LOCAL_DIRS="${FOLDER_VARIABLE}/spark"
        # Spark creates the folders that it writes, and by default refuses one that exists.
        rmdir "${FOLDER_VARIABLE}"/outputs/* 2> /dev/null
        exec {submit} {args}
    """
    return {
        **properties,
        "jobType": JobKind.COMMAND.value,
        "command": textwrap.dedent(command),
        "environmentId": "the environment of a Spark job",
        "inputs": {
            key: {**entry, "mode": "ReadOnlyMount"} for key, entry in data["inputs"].items()
        },
        "outputs": {
            key: {**entry, "mode": "ReadWriteMount", "jobOutputType": "uri_folder"}
            for key, entry in data["outputs"].items()
        },
    }


def _find_pyspark(job: str) -> Path:
    """The folder of the package pyspark.

    Raises:
        ArmError: 400, it or Java is missing; the message says how to install what is.
    """
    missing: list[str] = []
    folders = (spec := find_spec("pyspark")) and spec.submodule_search_locations
    if not folders:
        missing.append(f"the package pyspark (`{sys.executable} -m pip install pyspark`)")
    java_home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{java_home}/bin" if java_home else None) is None:
        where = f"in JAVA_HOME, {java_home!r}" if java_home else "on PATH, and no JAVA_HOME"
        missing.append(
            f"Java 17 or later, as there is no java {where} (Debian: "
            "`apt install openjdk-17-jre-headless`, macOS: `brew install openjdk@17`, then set "
            "JAVA_HOME and start localazure again)"
        )
    if missing or not folders:
        raise invalid(f"Spark job {job!r} needs what this machine lacks: {'; '.join(missing)}")
    return Path(folders[0])

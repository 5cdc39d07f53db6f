"""Runs Azure's published azureml-examples, unmodified: `make examples SOURCES=…/azureml-examples`.

The workspace has the clusters of the examples' setup scripts, and the assets in files next to an
example (`assets`). Each job file of `cli/jobs` is submitted with the SDK, as `az ml job create`
does; each batch deployment is created and invoked (`batch_deployments`). `WRITE=1` writes the
results to localazure/docs/published-examples.md: it replaces the rows of the examples that ran and
keeps the others.

In localazure/tests: `python -m published_examples SOURCES [--only FOLDER] [--write]`.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from azure.storage.blob import BlobServiceClient

from harness.child_process import REPOSITORY
from harness.part_process import PartProcess
from localazure.machinelearning.client_settings import app_settings
from localazure.machinelearning.jobs.folder import ENVIRONMENT_LOG
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment
from published_examples import assets, batch_deployments

PAGE: Final = REPOSITORY / "localazure" / "docs" / "published-examples.md"
BATCH: Final = "batch"
FOLDERS: Final = (
    "basics",
    "single-step",
    "pipelines",
    "pipelines-with-components",
    "parallel",
    BATCH,
)
# The clusters that the examples' infra/bootstrapping creates.
CLUSTERS: Final = ("cpu-cluster", "cpu-cluster-lg", "gpu-cluster", *batch_deployments.CLUSTERS)
JOB_SCHEMA: Final = re.compile(
    r"^\$schema:.*/(command|sweep|pipeline|parallel|spark|autoML)Job", re.MULTILINE
)
ENDED: Final = ("Completed", "Failed", "Canceled")
AT_ONCE: Final = 3
LIMIT_SECONDS: Final = 300.0
REASON_LIMIT_CHARACTERS: Final = 160


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row of the table."""

    path: str
    state: str
    reason: str = ""


def job_files(sources: Path, folders: Sequence[str]) -> list[Path]:
    """Every file under `cli/jobs` with the schema of a job."""
    root = sources / "cli" / "jobs"
    found = (path for folder in folders for path in sorted((root / folder).rglob("*.y*ml")))
    return [path for path in found if JOB_SCHEMA.search(path.read_text(errors="replace"))]


@contextmanager
def workspace() -> Generator[tuple[Any, BlobServiceClient]]:
    """Create a workspace; yield an MLClient for it, and its storage."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        (state / "azure-ml.json").write_text(json.dumps({"provisioningSeconds": 0.2}))
        environment = Environment.draw(state, app=state, config=state)
        environment.save()
        ensure_certificates(environment)
        os.environ.update(app_settings(environment), AZUREML_RUN_POLLING_INTERVAL_MIN="1")
        blobs = BlobServiceClient.from_connection_string(environment.storage_connection_string())
        with PartProcess("storage", state), PartProcess("machinelearning", state), blobs:
            # The import requests the cloud's metadata.
            from azure.ai.ml import MLClient  # noqa: PLC0415
            from azure.ai.ml.entities import AmlCompute  # noqa: PLC0415
            from azure.identity import DefaultAzureCredential  # noqa: PLC0415

            ml: Any = MLClient(
                DefaultAzureCredential(),
                environment.subscription_id,
                environment.resource_group,
                environment.workspace,
            )
            for name in CLUSTERS:
                cluster = AmlCompute(name=name, size="Standard_DS3_v2", max_instances=4)
                ml.compute.begin_create_or_update(cluster).result()
            yield ml, blobs


def run_all(
    ml: Any, blobs: BlobServiceClient, sources: Path, files: Sequence[Path]
) -> Iterator[Result]:
    """Submit the files, a few at a time, and wait until each job ends."""
    waiting: dict[str, tuple[Path, float]] = {}
    left = [*files]
    while left or waiting:
        while left and len(waiting) < AT_ONCE:
            path = left.pop(0)
            try:
                waiting[submit(ml, sources, path)] = (path, time.monotonic() + LIMIT_SECONDS)
            except Exception as error:  # noqa: BLE001 - the SDK raises many kinds; each is a result
                reason = _short(str(error).replace(f"{sources}/", ""))
                yield Result(path=_name(sources, path), state="refused", reason=reason)
        for job, (path, deadline) in [*waiting.items()]:
            status: str = ml.jobs.get(job).status
            if status in ENDED:
                reason = "" if status == "Completed" else _short(last_line(ml, blobs, job))
                yield Result(path=_name(sources, path), state=status.lower(), reason=reason)
                del waiting[job]
            elif time.monotonic() > deadline:
                ml.jobs.begin_cancel(job).result()
                reason = f"still {status!s} after {LIMIT_SECONDS:.0f} s"
                yield Result(path=_name(sources, path), state="unfinished", reason=reason)
                del waiting[job]
        time.sleep(0.5)


def submit(ml: Any, sources: Path, path: Path) -> str:
    """Submit a file, after creating missing assets; return the name of the job."""
    created: set[str | None] = {None}
    while True:
        try:
            return _submit(ml, path)
        except Exception as error:
            name = assets.create_missing(ml, error, path, sources)
            if name in created:
                raise
            created.add(name)


def _submit(ml: Any, path: Path) -> str:
    from azure.ai.ml import load_job  # noqa: PLC0415 - see `workspace`

    with chdir(path.parent):
        if path.name.startswith("deployment"):
            return batch_deployments.invoke(ml, path)
        job: Any = load_job(path)
        return str(ml.jobs.create_or_update(job).name)


def last_line(ml: Any, blobs: BlobServiceClient, job: str) -> str:
    """The last line of a failed job's or step's log; without a log, the reason for the failure."""
    names = [job, *(str(child.name) for child in ml.jobs.list(parent_job_name=job))]
    container = blobs.get_container_client("azureml")
    for name in names:
        for blob in container.list_blob_names(
            name_starts_with=f"ExperimentRun/dcid.{name}/user_logs/"
        ):
            if blob.endswith(ENVIRONMENT_LOG):
                continue
            lines = container.download_blob(blob).readall().decode(errors="replace").split("\n")
            written = [line for line in lines if line.strip()]
            if written:
                return written[-1]
    with redirect_stdout(io.StringIO()):
        try:
            ml.jobs.stream(job)
        except Exception as error:  # noqa: BLE001 - a JobException, or another of the SDK's
            return re.sub(r'.*"message": ', "", str(error), flags=re.DOTALL)
    return "no reason"


def to_page(results: Sequence[Result], commit: str) -> str:
    """The documentation page with the results."""
    batch = [each for each in results if each.path.startswith(f"{BATCH}/")]
    jobs = [each for each in results if each not in batch]
    return f"""# Azure's published examples

[azureml-examples](https://github.com/Azure/azureml-examples) at {commit}: job files below
`cli/jobs`, submitted unmodified to a workspace with the clusters of the examples' set-up,
and the data and components that lie as files beside an example, by `make examples`.
{_completed(jobs)} complete within {LIMIT_SECONDS:.0f} s.

Environments are not built, as is the default: a job runs on localazure's interpreter, so that a
package that is not installed there, and not by the job, is missing. Public data is downloaded from
the internet, which the machine of this table does not reach.

{_table(jobs)}

## Batch endpoints

Deployments of models below `cli/endpoints`, made and invoked as their `deploy-and-run.sh` does,
with the same limits. {_completed(batch)} complete. Deployments of pipeline components,
five files below `deploy-pipelines`, are not covered: they are answered with 501.

{_table(batch)}
"""


def from_page(page: str) -> list[Result]:
    """The results in the rows of a page."""
    rows = re.findall(r"^\| (\S+\.ya?ml) \| (\w+) \| (.*?) *\|$", page, re.MULTILINE)
    return [Result(path=path, state=state, reason=reason) for path, state, reason in rows]


def _completed(results: Sequence[Result]) -> str:
    return f"{sum(each.state == 'completed' for each in results)} of {len(results)}"


def _table(results: Sequence[Result]) -> str:
    rows = [
        f"| {each.path} | {each.state} | {f'{each.reason} ' * bool(each.reason)}|"
        for each in results
    ]
    head = ["| file | ends | last line of its log, or the refusal |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _name(sources: Path, path: Path) -> str:
    return str(Path(*path.relative_to(sources / "cli").parts[1:]))


def _short(text: str) -> str:
    text = re.sub(r"\x1b\[\d*m", "", text)  # the SDK colors some errors
    text = re.sub(r"[^\s`]+/bin/python[\w.]*", "python", text)  # the path differs between machines
    text = text.rstrip(" }\n")  # the end of the surrounding JSON
    return " ".join(text.replace("|", "/").split())[:REASON_LIMIT_CHARACTERS].rstrip()


def main() -> int:
    """Run the examples."""
    parser = argparse.ArgumentParser(prog="published_examples", description=__doc__)
    parser.add_argument("sources", type=Path, help="a clone of Azure/azureml-examples")
    parser.add_argument("--only", action="append", help=f"some of {FOLDERS}")
    parser.add_argument("--commit", default="an unknown commit", help="of the clone")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    sources: Path = given.sources.resolve()
    warnings.simplefilter("ignore")  # the SDK's: experimental classes, marshmallow
    logging.disable(logging.WARNING)
    folders: Sequence[str] = given.only or FOLDERS
    files = job_files(sources, folders)
    if BATCH in folders:
        files += batch_deployments.deployment_files(sources)
    results: list[Result] = []
    with workspace() as (ml, blobs):
        for result in run_all(ml, blobs, sources, files):
            results.append(result)
            print(
                f"{len(results)}/{len(files)}  {result.state:10} {result.path}  {result.reason}",
                flush=True,
            )
    if given.write:
        rows = {each.path: each for each in [*from_page(PAGE.read_text()), *results]}
        PAGE.write_text(to_page([rows[path] for path in sorted(rows)], given.commit))
    return 0


if __name__ == "__main__":
    sys.exit(main())

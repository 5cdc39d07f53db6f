"""What localazure can build of an environment: the Python and the pip packages of its conda file.

A conda package is not replaced by a package of PyPI with the same name: they can differ.

https://learn.microsoft.com/azure/machine-learning/how-to-manage-environments-v2
"""

from __future__ import annotations

import re
from typing import Any

from localazure.machinelearning.addresses import parse_asset
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.spec import PipEnvironment
from localazure.machinelearning.store import get_resource
from localazure.sqlite.query import Query

# https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html
_CONDA_PACKAGE = re.compile(r"^\s*(?:[^\s:]+::)?(?P<name>[\w.-]+)\s*(?P<version>\S.*)?$")


def find_environment(query: Query, identifier: str) -> PipEnvironment | None:
    """The packages of a job's environment; None if it declares none: an image only, or unknown.

    Raises:
        ArmError: localazure cannot build it; the message names what prevents it.
    """
    try:
        asset = parse_asset(identifier, kind="environments")
    except ArmError:
        return None  # of a registry, or without a version
    resource = get_resource(query, "environments", asset.name, asset.version)
    properties: dict[str, Any] = {} if resource is None else resource.properties
    label = f"{asset.name}:{asset.version}"
    if properties.get("build"):
        raise _not_buildable(label, "it is a Dockerfile")
    conda_file = properties.get("condaFile")
    return parse_conda_file(label, conda_file) if conda_file else None


def parse_conda_file(label: str, text: str) -> PipEnvironment:
    """Read the YAML of a conda file.

    Raises:
        ArmError: it has other conda packages than python and pip, or is malformed.
    """
    # Imported here: only workspaces that build environments need it.
    import yaml  # noqa: PLC0415

    try:
        document = yaml.safe_load(text)
        entries: list[Any] = document["dependencies"]
        conda = [_CONDA_PACKAGE.match(each) for each in entries if isinstance(each, str)]
        lists = [each["pip"] for each in entries if not isinstance(each, str)]
        requirements = tuple(str(line) for lines in lists for line in lines)
        packages = {match["name"].lower(): match["version"] or "" for match in conda if match}
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        text = f"its conda file has no list of dependencies ({type(error).__name__}: {error})"
        raise _not_buildable(label, text) from error
    python = packages.pop("python", "")
    packages.pop("pip", None)
    if packages:
        names = ", ".join(sorted(packages))
        raise _not_buildable(label, f"these are conda packages: {names}")
    return PipEnvironment(python=re.sub(r"^={1,2}\s*|\.\*$", "", python), requirements=requirements)


def _not_buildable(label: str, reason: str) -> ArmError:
    text = (
        f"environment {label} cannot be built here, as {reason}. localazure builds conda files of "
        "python and pip: move what PyPI has below `pip:`, or remove `environments` from "
        "azure-ml.json, and the job runs in localazure's interpreter"
    )
    return ArmError(400, "EnvironmentNotBuildable", text)

"""GET /api/pipelines/{name}/data/{version}: a dataset version compared with an earlier one."""

from __future__ import annotations

import re
from typing import Annotated

from azure.core.exceptions import ResourceNotFoundError
from pydantic import StringConstraints

from handlers.landing.differences import compare_versions, first_difference
from handlers.operate.api.requests import Parameters, Problem
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.manifest import VERSION_HEX_DIGITS

_VERSION = rf"^[0-9a-f]{{{VERSION_HEX_DIGITS}}}$"


class Comparison(Parameters):
    """Parameters of GET /api/pipelines/{name}/data/{version}."""

    base: Annotated[str, StringConstraints(pattern=_VERSION)] | None = None
    """The earlier version. By default the one that the batch was compared with when it landed."""


def get_difference(
    clients: Clients, pipeline: Pipeline, version: str, parameters: Comparison
) -> Difference:
    """Return the difference between a dataset version and an earlier one.

    Large manifests take longer than a caller waits (503): the difference is kept as soon as it is
    known, so ask again.
    """
    difference = None
    if re.match(_VERSION, version):
        try:
            if parameters.base is None:
                difference = first_difference(clients, pipeline.name, version)
            else:
                difference = compare_versions(
                    clients, pipeline.name, pipeline.source, parameters.base, version
                )
        except ResourceNotFoundError:
            difference = None
    if difference is None:
        against = "" if parameters.base is None else f", or none of {parameters.base}"
        unknown = "; of one that an earlier release froze, name the base" if not against else ""
        raise Problem(
            404,
            "not-found",
            f"there is no manifest of dataset version {version} of {pipeline.name}{against}: it is "
            f"no version of this pipeline, or its retention has ended{unknown}",
        )
    return difference

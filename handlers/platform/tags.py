"""Tags by which Landfall recognises its own Azure ML resources, and the versions of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from handlers.platform.azure_ml import if_found
from handlers.platform.clients import Clients
from orchestrations.contracts.runs import Model

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel

RUN = "landfall.run"
PIPELINE = "landfall.pipeline"
DATASET_VERSION = "landfall.dataset-version"
ROUND = "landfall.round"
"""The round of training on the dataset version; the first has no tag."""
ATTEMPT = "landfall.attempt"
CHAMPION = "landfall.champion"
CHAMPION_LEAD = "landfall.champion-lead"
CHAMPION_SCORE = "landfall.champion-score"
"""On the job of a champion check: the metric that the champion was registered with."""
GAIN = "landfall.gain"
ROLE = "landfall.role"
CHALLENGER = "challenger"
IN_SERVICE = "landfall.in-service"
IN_SERVICE_SINCE = "landfall.in-service-since"
REPLACED = "landfall.replaced"
ROLLED_BACK_AT = "landfall.rolled-back-at"
CONFIGURATION = "landfall.configuration"
REDRIVEN_FROM = "landfall.redriven-from"
REPRODUCES = "landfall.reproduces"
ROLLOUT = "landfall.rollout"
ROLLOUT_OUTCOME = "landfall.rollout-outcome"
MODEL = "landfall.model"
SCORING_CODE = "landfall.scoring-code"
"""On a deployment: a hash of its scoring code, environment and nodes."""
APPROVAL = "landfall.approval."
"""With a step behind it: who approved or rejected the model before the step, and why."""
PROMOTED_FROM = "landfall.promoted-from"
"""The ARM id of the version in the workspace where it was trained."""
PROMOTED_BY = "landfall.promoted-by"
FILES_SHA256 = "landfall.files-sha256"
"""Of the lines that sha256sum prints for the files, sorted by path."""
TRACEPARENT = "landfall.traceparent"
RESULTS_CONTAINER = "landfall.results-container"


def tags_of(resource: Any) -> dict[str, str]:
    """The tags of an Azure ML entity; the SDK has None for no tags."""
    return resource.tags or {}


def all_versions(clients: Clients, name: str) -> Sequence[AzureMLModel]:
    """Every version of a model, including archived ones."""
    from azure.ai.ml.constants import ListViewType  # noqa: PLC0415 - see handlers.platform.clients

    found = if_found(lambda: list(clients.ml.models.list(name, list_view_type=ListViewType.ALL)))
    return found or []


def find_version(clients: Clients, name: str, version: str) -> AzureMLModel | None:
    """One version of a model; None if it does not exist."""
    return if_found(clients.ml.models.get, name, version)


def reference_of(model: AzureMLModel) -> Model:
    """A registered version, as contracts name it."""
    return Model(name=str(model.name), version=str(model.version), path=str(model.path))


def is_counted(model: AzureMLModel) -> bool:
    """Whether a version's name has Landfall's form: 1, 2, 3."""
    return str(model.version).isdecimal()


def dataset_of_model(clients: Clients, name: str, version: str) -> str | None:
    """The dataset version that a model version was trained on; None if it is unknown."""
    model = find_version(clients, name, version)
    return None if model is None else tags_of(model).get(DATASET_VERSION)

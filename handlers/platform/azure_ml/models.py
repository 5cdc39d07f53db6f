"""The versions of a registered model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from handlers.platform.azure_ml import tags
from handlers.platform.azure_ml.errors import if_found
from handlers.platform.azure_ml.tags import tags_of
from handlers.platform.clients import Clients

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel


def all_versions(clients: Clients, name: str) -> Sequence[AzureMLModel]:
    """Every version of a model, including archived ones."""
    from azure.ai.ml.constants import ListViewType  # noqa: PLC0415 - see handlers.platform.clients

    found = if_found(lambda: list(clients.ml.models.list(name, list_view_type=ListViewType.ALL)))
    return found or []


def find_version(clients: Clients, name: str, version: str) -> AzureMLModel | None:
    """One version of a model; None if it does not exist."""
    return if_found(clients.ml.models.get, name, version)


def is_counted(model: AzureMLModel) -> bool:
    """Whether a version's name has Landfall's form: 1, 2, 3."""
    return str(model.version).isdecimal()


def dataset_of_model(clients: Clients, name: str, version: str) -> str | None:
    """The dataset version that a model version was trained on; None if it is unknown."""
    model = find_version(clients, name, version)
    return None if model is None else tags_of(model).get(tags.DATASET_VERSION)

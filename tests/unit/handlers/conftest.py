"""azure.ai.ml is loaded once, up here: its own schemas warn of the next marshmallow."""

from __future__ import annotations

import warnings

import pytest

from tests.unit.handlers.azure_ml_fake import World, make_world

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import azure.ai.ml.entities  # noqa: F401 # pyright: ignore[reportUnusedImport] - see above


@pytest.fixture
def world() -> World:
    """An empty workspace, and clients of it without settings."""
    return make_world()

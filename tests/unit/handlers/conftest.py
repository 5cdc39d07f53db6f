"""Imports azure.ai.ml once, without the deprecation warnings of its marshmallow schemas."""

from __future__ import annotations

import warnings

import pytest

from tests.fakes.azure_ml import World, make_world

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import azure.ai.ml.entities  # noqa: F401 # pyright: ignore[reportUnusedImport] - see above


@pytest.fixture
def world() -> World:
    """An empty workspace and its clients, without settings."""
    return make_world()

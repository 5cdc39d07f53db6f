from __future__ import annotations

from pathlib import Path

import pytest

from harness.small_app import make_app


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return make_app(tmp_path / "app")

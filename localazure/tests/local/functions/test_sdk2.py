"""An app that speaks to its host as azure-functions-durable 2 does; see `make test-sdk2`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.sdk2 import Story, copy_app


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_the_story_of_an_app(tmp_path: Path, hosts: str) -> None:
    app = copy_app(tmp_path / "app", with_sdk=False)
    Story(Path(sys.executable), app, "--hosts", hosts).run()

"""An app that speaks to its host as azure-functions-durable 2 does; see `make test-sdk2`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.sdk2 import Story, copy_app


def test_the_story_of_an_app(tmp_path: Path) -> None:
    Story(Path(sys.executable), copy_app(tmp_path / "app", with_sdk=False)).run()

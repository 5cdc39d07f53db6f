"""`localazure scheduler` without its extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localazure.__main__ import main


def test_the_extra_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "localazure.scheduler.server", None)
    with pytest.raises(SystemExit, match=r"pip install 'localazure\[scheduler\]'"):
        main(["scheduler", "--state", str(tmp_path)])

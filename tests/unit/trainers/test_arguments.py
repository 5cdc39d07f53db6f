from __future__ import annotations

import pytest

from trainers import pack


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-bad-fraction", "nan"],
        ["--max-bad-fraction", "1.1"],
        ["--shard-images", "0"],
        ["--format", "zip"],
        ["--shard-mib", "x"],
    ],
)
def test_the_packer_names_a_wrong_value(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        pack.main(["source", "target", "--manifest", "m", *arguments])
    error = capsys.readouterr().err
    assert arguments[0] in error
    assert arguments[1] in error

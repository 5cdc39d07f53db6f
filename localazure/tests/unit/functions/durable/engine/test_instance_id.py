"""The instance ids that Azure accepts."""

from __future__ import annotations

import pytest

from localazure.functions.durable.engine.instance_id import InvalidInstanceId, check_instance_id


@pytest.mark.parametrize(
    "bad", ["", "x" * 101, "😀" * 51, "@a", "a/b", "a\\b", "a#b", "a?b", "a\nb", "a\x7fb", "a\x85b"]
)
def test_ids_that_azure_refuses(bad: str) -> None:
    with pytest.raises(InvalidInstanceId, match="nstance IDs must"):
        check_instance_id(bad)


@pytest.mark.parametrize("good", ["a", "x" * 100, "😀" * 50, "a@b", "a b:c|d%e", "Überlauf"])
def test_ids_that_azure_takes(good: str) -> None:
    check_instance_id(good)

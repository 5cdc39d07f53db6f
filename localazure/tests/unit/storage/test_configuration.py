from __future__ import annotations

from pathlib import Path

import pytest

from localazure.errors import ConfigurationError
from localazure.storage.configuration import load_containers

ROOT = Path(__file__).parents[4]


def test_file_of_this_repository() -> None:
    names = load_containers(ROOT / "infra" / "local" / "storage.json")
    assert names == ("landing", "landfall", "dead-letter-events")


def test_no_file_means_no_containers(tmp_path: Path) -> None:
    assert load_containers(tmp_path / "storage.json") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "top level: .*dictionary"),
        ('{"container": []}', "container: unknown key"),
        ('{"containers": "landing"}', 'tuple, found "landing"'),
        ('{"containers": ["ok-1", "Upper"]}', r"containers\[1\].*Upper"),
        ('{"containers": ["a--b"]}', "a--b"),
        ('{"containers": ["ab"]}', 'at least 3 characters, found "ab"'),
        ('{\n"containers": [1]}', r":2: containers\[0\]: .*valid string, found 1"),
    ],
)
def test_an_error_names_file_key_and_value(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "storage.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        load_containers(path)
    assert str(path) in str(caught.value)

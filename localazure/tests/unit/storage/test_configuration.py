from __future__ import annotations

from pathlib import Path

import pytest

from localazure.errors import ConfigurationError
from localazure.storage.configuration import StorageConfiguration


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
        ('{"accounts": [{"name": "Upper"}]}', r"accounts\[0\].name.*Upper"),
        ('{"accounts": [{"name": "aaa", "kind": "Cool"}]}', r"accounts\[0\].kind.*Cool"),
        ('{"accounts": [{"name": "aaa"}, {"name": "aaa"}]}', "this name is taken"),
        ('{\n"containers": [1]}', r":2: containers\[0\]: .*valid string, found 1"),
    ],
)
def test_an_error_names_file_key_and_value(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "storage.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        StorageConfiguration.read(path)
    assert str(path) in str(caught.value)

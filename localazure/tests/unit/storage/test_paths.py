from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.paths import split_path


@given(
    container=st.from_regex(r"[a-z0-9]{3,10}", fullmatch=True),
    blob=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    safe=st.sampled_from(["", "/", "/~'()"]),
)
def test_names_come_back_from_any_encoding(container: str, blob: str, safe: str) -> None:
    path = f"/devstoreaccount1/{container}/{quote(blob, safe=safe)}"
    assert split_path(path) == (container, blob)


def test_a_single_name_is_a_blob_of_the_root_container() -> None:
    assert split_path("/devstoreaccount1/a%20b") == ("$root", "a b")

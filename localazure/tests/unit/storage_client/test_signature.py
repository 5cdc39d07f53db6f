"""The Blob SDK signs as the Queue service asks for, too: it is the oracle."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

from azure.core.rest import HttpRequest
from azure.storage.blob._shared.authentication import (
    SharedKeyCredentialPolicy,
)
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from localazure.storage_client.signature import sign_queue_request, sign_table_request

KEY = base64.b64encode(b"k" * 32).decode()
NAMES = st.sampled_from(["numofmessages", "visibilitytimeout", "popreceipt", "comp"])


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    path=st.text(st.characters(codec="utf-8", exclude_characters="/?#\\."), min_size=1),
    query=st.dictionaries(NAMES, st.text("aZ9+/= &ü", min_size=1)),
    size=st.integers(0, 70000),
)
def test_as_the_sdk_signs(method: str, path: str, query: dict[str, str], size: int) -> None:
    tail = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    url = URL(f"http://127.0.0.1:10001/acc/{quote(path, safe='')}?{tail}", encoded=True)
    headers = {"x-ms-date": "Sat, 21 Nov 2026 04:00:00 GMT", "x-ms-version": "2021-12-02"}
    if size:
        headers["content-length"] = str(size)
    request = HttpRequest(method, str(url), headers=headers)
    policy = SharedKeyCredentialPolicy("acc", KEY)
    context = SimpleNamespace(transport=None)
    policy.on_request(cast("Any", SimpleNamespace(http_request=request, context=context)))
    ours = sign_queue_request(method, url, headers, account="acc", key=KEY)
    assert ours == request.headers["Authorization"]


def test_a_table_request_signs_its_content_type_and_date() -> None:
    url = URL("http://127.0.0.1:10002/acc/Orders()?$filter=x", encoded=True)
    headers = {"x-ms-date": "Sat, 21 Nov 2026 04:00:00 GMT", "content-type": "application/json"}

    def sign(changed: dict[str, str], to: URL = url) -> str:
        return sign_table_request("GET", to, {**headers, **changed}, account="acc", key=KEY)

    assert sign({}) == sign({}, url.with_query(None))  # the filter is not signed
    assert len({sign({}), sign({"content-type": "x"}), sign({"x-ms-date": "y"})}) == 3

"""SharedKey signatures."""

from __future__ import annotations

import base64

from yarl import URL

from localazure.storage_client.service import Service
from localazure.storage_client.signature import sign_request

KEY = base64.b64encode(b"k" * 32).decode()


def test_a_table_request_signs_its_content_type_and_date() -> None:
    url = URL("http://127.0.0.1:10002/acc/Orders()?$filter=x", encoded=True)
    headers = {"x-ms-date": "Sat, 21 Nov 2026 04:00:00 GMT", "content-type": "application/json"}

    def sign(changed: dict[str, str], to: URL = url) -> str:
        return sign_request(
            Service.TABLE, "GET", to, {**headers, **changed}, account="acc", key=KEY
        )

    assert sign({}) == sign({}, url.with_query(None))  # the filter is not signed
    assert len({sign({}), sign({"content-type": "x"}), sign({"x-ms-date": "y"})}) == 3

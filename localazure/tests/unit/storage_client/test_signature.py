"""SharedKey signatures."""

from __future__ import annotations

import base64

from localazure.storage_client.signature import sign_request

KEY = base64.b64encode(b"k" * 32).decode()


def test_a_table_request_signs_its_content_type_and_date() -> None:
    url = "http://127.0.0.1:10002/acc/Orders()"
    headers = {"x-ms-date": "Sat, 21 Nov 2026 04:00:00 GMT", "content-type": "application/json"}

    def sign(changed: dict[str, str], to: str = url) -> str:
        return sign_request(
            "GET", to, {**headers, **changed}, account="acc", key=KEY, is_table=True
        )

    assert sign({}) == sign({}, f"{url}?$filter=x")  # the filter is not signed
    assert len({sign({}), sign({"content-type": "x"}), sign({"x-ms-date": "y"})}) == 3

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from handlers.operate.alarms.credentials import expiry_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "BlobEndpoint=https://a;SharedAccessSignature=sv=1&se=2026-12-01T00%3A00%3A00Z&sig=abc",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
        (
            "https://hook.example/landfall?sp=r&se=2026-12-01&sig=abc",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
        (
            "SharedAccessSignature sr=sb%3a%2f%2fns&sig=abc&se=1796083200&skn=policy",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_shared_access_signature_says_when_it_expires(value: str, expected: datetime) -> None:
    assert expiry_of(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=se=;EndpointSuffix=core.net",
        "https://hook.example/?se=2026-12-01",
        "https://hook.example/?se=soon&sig=abc",
        "https://hook.example/?se=99999999999999999999&sig=abc",
        "a phrase&else=2026-12-01&sig=abc",
    ],
)
def test_other_settings_have_no_expiry(value: str) -> None:
    assert expiry_of(value) is None

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone

import pytest
from azure.eventgrid import generate_sas
from multidict import CIMultiDict

from localazure.eventgrid.authorization import Unauthorized, authorize

KEY = base64.b64encode(b"k" * 32).decode()
OTHER = base64.b64encode(b"o" * 32).decode()
PATH = "/topics/landfall/api/events"
ENDPOINT = f"http://127.0.0.1:7100{PATH}"
NOW = datetime(2026, 8, 8, tzinfo=UTC)


def check(**headers: str) -> None:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    authorize(CIMultiDict(renamed), PATH, [base64.b64encode(b"1" * 32).decode(), KEY], NOW)


def token(key: str = KEY, endpoint: str = ENDPOINT, hours: int = 1) -> str:
    return generate_sas(endpoint, key, NOW + timedelta(hours=hours))


def test_key_and_token_are_accepted() -> None:
    check(aeg_sas_key=KEY)
    check(Aeg_Sas_Token=token())
    late = datetime(2026, 8, 8, 1, tzinfo=timezone(timedelta(hours=-2)))
    check(aeg_sas_token=generate_sas(ENDPOINT, KEY, late))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "aeg-sas-key"),
        ({"aeg_sas_key": OTHER}, "not the key"),
        ({"aeg_sas_key": "ключ"}, "not the key"),
        ({"aeg_sas_key": "\udcff"}, "not the key"),  # a byte that is no UTF-8
        ({"aeg_sas_token": "nonsense"}, "form"),
        ({"aeg_sas_token": token(key=OTHER)}, "signature"),
        ({"aeg_sas_token": token(hours=-1)}, "expired"),
        ({"aeg_sas_token": token(endpoint="http://h/topics/other/api/events")}, "other"),
        ({"aeg_sas_token": token() + "!"}, "base64|wrong"),
        ({"aeg_sas_token": token() + "ä"}, "base64"),
        ({"aeg_sas_token": "\udcff" + token()}, "form"),
        ({"aeg_sas_token": token().replace("&s=", "\udcff&s=")}, "wrong"),
    ],
)
def test_everything_else_is_refused_without_showing_the_key(
    headers: dict[str, str], words: str
) -> None:
    with pytest.raises(Unauthorized, match=words) as caught:
        check(**headers)
    assert KEY not in str(caught.value)
    assert OTHER not in str(caught.value)

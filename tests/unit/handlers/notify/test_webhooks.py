from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from handlers.notify.webhooks import (
    Answer,
    BadSignature,
    BodyTooLarge,
    parse_receiver,
    parse_retry_after,
    parse_secrets,
    post,
    sign,
    verify,
)
from orchestrations.errors import InvalidSetting

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 64).decode()
BODY = b'{"a": "\xc3\xbc"}'


def secrets(value: str) -> list[Webhook]:
    return list(parse_secrets(value, setting="S"))


def signed(value: str, at: datetime | None = None) -> dict[str, str]:
    at = at or datetime.now(UTC)
    return sign(secrets(value), message_id="m-1", at=at, body=BODY)


@pytest.mark.parametrize(
    ("signing", "verifying"), [(OLD, OLD), (f"{NEW} {OLD}", OLD), (NEW, f"{OLD} {NEW}")]
)
def test_secrets_can_be_rotated_on_either_side(signing: str, verifying: str) -> None:
    assert verify(secrets(verifying), signed(signing), BODY) == "m-1"


def test_it_is_the_standard_signature() -> None:
    # The example of the specification's own libraries.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = sign(
        secrets(secret),
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, UTC),
        body=b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_any_timezone_signs_the_same_moment() -> None:
    now = datetime.now(UTC)
    assert signed(OLD, now) == signed(OLD, now.astimezone(timezone(timedelta(hours=9))))


@pytest.mark.parametrize("minutes", [-6, 6])
def test_old_and_future_messages_are_refused(minutes: int) -> None:
    headers = signed(OLD, datetime.now(UTC) + timedelta(minutes=minutes))
    with pytest.raises(BadSignature, match="too"):
        verify(secrets(OLD), headers, BODY)


def test_another_secret_body_or_id_is_refused() -> None:
    headers = signed(OLD)
    for value, given_headers, body in (
        (NEW, headers, BODY),
        (OLD, headers, BODY + b" "),
        (OLD, headers | {"webhook-id": "m-2"}, BODY),
        (OLD, headers | {"webhook-signature": headers["webhook-signature"][3:]}, BODY),
    ):
        with pytest.raises(BadSignature):
            verify(secrets(value), given_headers, body)


def test_header_names_have_no_case() -> None:
    headers = {name.title(): value for name, value in signed(OLD).items()}
    assert verify(secrets(OLD), headers, BODY) == "m-1"


@given(
    st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()
    ),
    st.binary(),
)
def test_noise_is_a_bad_signature_and_nothing_else(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadSignature):
        verify(secrets(OLD), headers, body)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "hunter2",
        "whsec_aHVudGVyMg==",
        OLD.removeprefix("whsec_"),
        f"{OLD} whsec_%%%",
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_weak_or_broken_secret_is_refused_without_being_quoted(value: str) -> None:
    with pytest.raises(InvalidSetting, match="app setting S") as refused:
        secrets(value)
    for word in value.split():
        assert word not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("0", 0.0),
        ("-5", None),
        ("soon", None),
        ("1 Jan 99999999999 00:00:00 GMT", None),
        ("Sat, 21 Nov 2026 12:02:00 GMT", 120.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 12:02:00 -0000", 120.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert parse_retry_after(value, now=now) == seconds


@given(st.text())
def test_any_retry_after_is_understood_or_left_alone(value: str) -> None:
    seconds = parse_retry_after(value, now=datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert seconds is None or seconds >= 0


def test_a_body_beyond_the_limit_is_not_sent() -> None:
    receiver = parse_receiver("https://a.example/", setting="URL")
    with pytest.raises(BodyTooLarge):
        post(receiver, headers={}, body=b"x" * 20_001, now=datetime.now(UTC))


@pytest.mark.parametrize(
    "url",
    ["https://a.example", "https://10.0.0.4:8443/a?b=c", "http://127.0.0.1:7/", "http://localhost"],
)
def test_a_receiver_has_https_or_is_this_machine(url: str) -> None:
    assert parse_receiver(url, setting="URL").geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/secret",
        "http://10.0.0.4/secret",
        "ftp://a.example/secret",
        "a.example/secret",
        "https:///secret",
        "https://user:secret@a.example/",
        "https://a.example:secret/",
        "https://[::1/secret",
        "https://a.example/secret-ü",
        "https://a.example/secret\n",
    ],
)
def test_another_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidSetting, match="app setting URL: set it to https") as refused:
        parse_receiver(url, setting="URL")
    assert "secret" not in str(refused.value)


def test_only_success_is_accepted() -> None:
    statuses = [199, 200, 204, 299, 300, 302, 410, 500]
    assert [status for status in statuses if Answer(status).accepted] == [200, 204, 299]

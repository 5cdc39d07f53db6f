from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.notify.page_links import (
    approval_link,
    link_secrets,
    linked_approval,
    linked_picture,
    notification_links,
)
from handlers.platform.settings import Settings
from orchestrations.contracts.approvals import Agreed
from orchestrations.contracts.notifications import Notification, NotificationKind
from orchestrations.errors import InvalidSetting
from tests.unit.orchestrations.examples import run_status

HOST = {"WEBSITE_HOSTNAME": "landfall.example.net"}
PAGE = "https://landfall.example.net/api/ui"
SECRET = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
AGREED = Agreed(before="registration", pipeline="digits", model="digits", run="digits-1-1")
APPROVAL = "digits-1-1.registration"


def with_secrets(*secrets: str, **more: str) -> Settings:
    return Settings({**HOST, "APPROVAL_LINK_SECRET": " ".join(secrets), **more})


def link(settings: Settings) -> str:
    return str(approval_link(settings, AGREED))


def token(settings: Settings) -> str:
    return link(settings).removeprefix(f"{PAGE}#/answer/")


def test_a_signed_link_opens_its_question_and_no_other() -> None:
    settings = with_secrets(SECRET)
    assert linked_approval(settings, token(settings)) == APPROVAL
    signature, _, _ = token(settings).partition(".")
    assert linked_approval(settings, f"{signature}.digits-1-2.registration") is None
    assert linked_approval(settings, f"{signature}.") is None


@given(st.text())
def test_what_the_app_has_not_signed_opens_nothing(text: str) -> None:
    assert linked_approval(with_secrets(SECRET), text) is None
    assert linked_approval(with_secrets(), text) is None


def test_a_link_is_good_until_its_secret_is_gone() -> None:
    before, during, after = with_secrets(SECRET), with_secrets(OTHER, SECRET), with_secrets(OTHER)
    assert linked_approval(during, token(before)) == APPROVAL
    assert linked_approval(after, token(during)) == APPROVAL
    assert linked_approval(after, token(before)) is None


@pytest.mark.parametrize(
    "settings",
    [with_secrets(), with_secrets("short"), with_secrets(SECRET, API_SIGN_IN="entra")],
    ids=["no secret", "a short secret", "people sign in"],
)
def test_a_link_that_is_not_signed_leads_to_the_run(settings: Settings) -> None:
    assert link(settings) == f"{PAGE}#/runs/digits-1-1"


def test_a_short_secret_is_told_by_its_name_alone() -> None:
    with pytest.raises(InvalidSetting, match="APPROVAL_LINK_SECRET") as refused:
        link_secrets(with_secrets("hunter2"))
    assert "hunter2" not in str(refused.value)


def test_without_an_address_there_is_no_link() -> None:
    assert approval_link(Settings({}), AGREED) is None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1:7071", "http://127.0.0.1:7071"),
        ("localhost.example", "https://localhost.example"),
    ],
)
def test_only_a_laptop_is_without_tls(host: str, address: str) -> None:
    assert Settings({"WEBSITE_HOSTNAME": host}).page_url == f"{address}/api/ui"


def told(kind: NotificationKind) -> Notification:
    status = run_status("digits-1-1", "judging").model_copy(update={"approval": APPROVAL})
    return Notification(
        id="n", kind=kind, at=datetime(2026, 11, 29, 23, 30, tzinfo=UTC), status=status
    )


@pytest.mark.parametrize(
    ("kind", "screen"), [("succeeded", "runs/digits-1-1"), ("awaiting_approval", "answer/")]
)
def test_a_notification_leads_to_its_run_or_its_question(
    kind: NotificationKind, screen: str
) -> None:
    links = notification_links(with_secrets(SECRET), told(kind))
    assert links["url"].startswith(f"{PAGE}#/{screen}")
    assert ("picture_url" in links) == (kind == "succeeded")
    assert notification_links(Settings({}), told(kind)) == {}


def test_a_signed_link_shows_the_picture_of_its_pipeline_for_thirty_days() -> None:
    settings = with_secrets(SECRET)
    address = notification_links(settings, told("succeeded"))["picture_url"]
    token = address.removeprefix("https://landfall.example.net/api/picture-links/")
    assert linked_picture(settings, token, date(2026, 12, 29)) == "digits"
    assert linked_picture(settings, token, date(2026, 12, 30)) is None
    later = token.replace("2026-12-29", "2027-12-29")
    assert linked_picture(settings, later, date(2026, 12, 29)) is None
    assert linked_picture(settings, token + "2", date(2026, 12, 29)) is None
    assert linked_approval(settings, token) is None
    assert linked_picture(with_secrets(OTHER), token, date(2026, 12, 29)) is None


@given(st.text())
def test_a_picture_is_shown_by_no_other_link(text: str) -> None:
    assert linked_picture(with_secrets(SECRET), text, date(2026, 12, 29)) is None
    approval = token(with_secrets(SECRET))
    assert linked_picture(with_secrets(SECRET), approval, date(2026, 12, 29)) is None


def test_without_a_secret_the_picture_is_on_the_page() -> None:
    links = notification_links(with_secrets(), told("succeeded"))
    assert links["picture_url"] == f"{PAGE}#/pipelines/digits"

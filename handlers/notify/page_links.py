"""Links to the operators' page, also for people who are told of something.

What a link names is in the fragment of its address, which is not sent to a server: a mail scanner
that opens it does nothing. If `APPROVAL_LINK_SECRET` is set, two links are signed, and open what
they name without a function key, and nothing else: the link to a question (opening it answers
nothing, and a question is answered once), and the link to the picture of a pipeline, for some days.
With `API_SIGN_IN=entra` people sign in, and no link is signed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections.abc import Mapping
from datetime import date, timedelta
from urllib.parse import quote, urlencode

from handlers.platform.settings import Settings
from orchestrations.contracts.approvals import Agreed
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.runs import RunStatus
from orchestrations.errors import InvalidSetting

SECRET_SETTING = "APPROVAL_LINK_SECRET"  # noqa: S105 - the name of the setting
FEWEST_CHARACTERS = 32
PICTURE_LINK_DAYS = 30


def fragment(screen: str, name: str = "", query: Mapping[str, str] | None = None) -> str:
    """A screen of the page, as the fragment of its address; page/app.js names the screens."""
    one = f"/{quote(name, safe='', errors='replace')}" if name else ""
    asked = f"?{urlencode(query, errors='replace')}" if query else ""
    return f"#/{screen}{one}{asked}"


def rollout_fragment(rollout: str) -> str:
    """The screen of one rollout."""
    return fragment("models", query={"rollout": rollout})


def notification_links(settings: Settings, notification: Notification) -> dict[str, str]:
    """The links that a notification has; none if the page has no address.

    `url` leads to the run or the rollout, or to its question. If a model was promoted,
    `picture_url` answers the SVG picture of its pipeline over time; where no link is signed, it
    leads to the pipeline on the page.
    """
    status = notification.status
    approval = status.approval if notification.kind == "awaiting_approval" else None
    is_run = isinstance(status, RunStatus)
    place = fragment("runs", status.id) if is_run else rollout_fragment(status.id)
    url = _link(settings, place, approval)
    if url is None:
        return {}
    if notification.kind not in ("succeeded", "deployed"):
        return {"url": url}
    day = notification.at.date() + timedelta(PICTURE_LINK_DAYS)
    token = _token(settings, "picture", f"{day}.{status.pipeline}")
    page = str(settings.page_url)
    if token is None:
        return {"url": url, "picture_url": page + fragment("pipelines", status.pipeline)}
    return {"url": url, "picture_url": f"{page.removesuffix('/ui')}/picture-links/{token}"}


def approval_link(settings: Settings, agreed: Agreed) -> str | None:
    """The link to a question; None if the page has no address."""
    return _link(settings, question_fragment(agreed), agreed.id)


def question_fragment(agreed: Agreed) -> str:
    """The screen of what a question is about."""
    if agreed.promotion is not None:
        return fragment("models", f"{agreed.pipeline}:{agreed.model.rpartition(':')[2]}")
    return fragment("runs", agreed.run) if agreed.is_of_run else rollout_fragment(agreed.subject)


def linked_approval(settings: Settings, token: str) -> str | None:
    """The question that a signed link opens; None if the app has not signed the token.

    Raises:
        InvalidSetting: see `link_secrets`.
    """
    return _opened(settings, "approval", token)


def linked_picture(settings: Settings, token: str, today: date) -> str | None:
    """The pipeline whose picture a signed link shows; None if it is over, or not of this app.

    Raises:
        InvalidSetting: see `link_secrets`.
    """
    day, _, pipeline = (_opened(settings, "picture", token) or "").partition(".")
    return pipeline if day >= today.isoformat() else None


def _link(settings: Settings, place: str, approval: str | None) -> str | None:
    page = settings.page_url
    if page is None:
        return None
    token = None if approval is None else _token(settings, "approval", approval)
    return page + (place if token is None else fragment("answer", token))


def link_secrets(settings: Settings) -> list[str]:
    """The secrets, separated by spaces while one is rotated; the first one signs.

    Raises:
        InvalidSetting: one is too short.
    """
    secrets = settings.values.get(SECRET_SETTING, "").split()
    if settings.sign_in == "entra":
        return []
    if any(len(each) < FEWEST_CHARACTERS for each in secrets):
        raise InvalidSetting(
            f"app setting {SECRET_SETTING}: set it to {FEWEST_CHARACTERS} or more random characters"
        )
    return secrets


def _token(settings: Settings, purpose: str, name: str) -> str | None:
    """A signed name; None if no secret signs it."""
    with contextlib.suppress(InvalidSetting):  # the list of pipelines and `landfall doctor` tell it
        for secret in link_secrets(settings):
            return f"{_signature(secret, purpose, name)}.{name}"
    return None


def _opened(settings: Settings, purpose: str, token: str) -> str | None:
    """The name in a token; None if no secret has signed it for this purpose."""
    signature, _, name = token.partition(".")
    signed = (_signature(secret, purpose, name) for secret in link_secrets(settings))
    is_ours = any(hmac.compare_digest(each.encode(), signature.encode()) for each in signed)
    return name if is_ours else None


def _signature(secret: str, purpose: str, name: str) -> str:
    mac = hmac.digest(secret.encode(), f"{purpose} {name}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")

"""Links to the operators' page, also for people who are told of something.

What a link names is in the fragment of its address, which is not sent to a server: a mail scanner
that opens it does nothing. The link to a question is signed if `APPROVAL_LINK_SECRET` is set: it
opens this question without a function key, and no other. Opening it answers nothing, and a question
is answered once. With `API_SIGN_IN=entra` people sign in, and no link is signed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from handlers.platform.settings import Settings
from orchestrations.contracts.approvals import Agreed
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.runs import RunStatus
from orchestrations.errors import InvalidSetting

SECRET_SETTING = "APPROVAL_LINK_SECRET"  # noqa: S105 - the name of the setting
FEWEST_CHARACTERS = 32


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

    `url` leads to the run or the rollout, or to its question. `picture_url` leads to the pipeline
    over time, if a model was promoted.
    """
    status = notification.status
    approval = status.approval if notification.kind == "awaiting_approval" else None
    is_run = isinstance(status, RunStatus)
    place = fragment("runs", status.id) if is_run else rollout_fragment(status.id)
    url = _link(settings, place, approval)
    if url is None:
        return {}
    picture = f"{settings.page_url}{fragment('pipelines', status.pipeline)}"
    is_promoted = notification.kind in ("succeeded", "deployed")
    return {"url": url, **({"picture_url": picture} if is_promoted else {})}


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
    signature, _, approval = token.partition(".")
    return next(
        (
            approval
            for secret in link_secrets(settings)
            if hmac.compare_digest(_signature(secret, approval).encode(), signature.encode())
        ),
        None,
    )


def _link(settings: Settings, place: str, approval: str | None) -> str | None:
    page, secrets = settings.page_url, list[str]()
    if page is None:
        return None
    with contextlib.suppress(InvalidSetting):  # the list of pipelines and `landfall doctor` tell it
        secrets = link_secrets(settings)
    if approval is None or not secrets:
        return page + place
    return page + fragment("answer", f"{_signature(secrets[0], approval)}.{approval}")


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


def _signature(secret: str, approval: str) -> str:
    mac = hmac.digest(secret.encode(), f"approval {approval}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")

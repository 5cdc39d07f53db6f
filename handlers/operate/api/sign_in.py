"""Check callers of the API that App Service authentication has signed in with Microsoft Entra.

The platform validates the token or the browser's cookie, sets the headers below, and removes those
that a caller sends. It also sets `WEBSITE_AUTH_ENABLED`. Without it, callers could forge the
headers, so every request is refused.
https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities
"""

from __future__ import annotations

from collections.abc import Mapping

from handlers.operate.api.problem_details import Answer, Problem
from handlers.platform.settings import Settings

PROVIDER_HEADER = "x-ms-client-principal-idp"
ID_HEADER = "x-ms-client-principal-id"
ENTRA = "aad"


def check_sign_in(settings: Settings, method: str, headers: Mapping[str, str]) -> Answer | None:
    """The answer to a caller that is refused: 401, 403 or 503; None if the request is allowed.

    With function keys, the host has checked the key. 503: App Service authentication is off.
    403: a page of another site sends an action with its visitor's cookie (CSRF).
    """
    if settings.sign_in == "key":
        return None
    fields = {name.lower(): value for name, value in headers.items()}
    if settings.values.get("WEBSITE_AUTH_ENABLED", "").lower() != "true":
        refusal = Problem(
            503,
            "not-configured",
            "app setting API_SIGN_IN is entra, and App Service authentication is off: turn it on, "
            "or remove the setting, so that function keys open the API",
        )
    elif fields.get(PROVIDER_HEADER) != ENTRA or not fields.get(ID_HEADER):
        refusal = Problem(401, "not-signed-in", "sign in with Microsoft Entra: a token is needed")
    elif method != "GET" and fields.get("sec-fetch-site") in ("cross-site", "same-site"):
        refusal = Problem(403, "other-site", "an action is taken from this app's own page")
    else:
        return None
    return refusal.to_answer()

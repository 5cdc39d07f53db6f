"""Checks callers of the API where App Service authentication signs them in with Microsoft Entra.

The platform validates the token, or the cookie of a browser, and sets the headers below; what a
caller sends under these names it removes. It also sets `WEBSITE_AUTH_ENABLED`. Where that is
missing, anybody could send the headers, so nobody is let in.
https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities
"""

from __future__ import annotations

from collections.abc import Mapping

from handlers.configuration.settings import Settings
from handlers.triggers.problem_details import Answer, Problem

PROVIDER_HEADER = "x-ms-client-principal-idp"
ID_HEADER = "x-ms-client-principal-id"
ENTRA = "aad"


def check_sign_in(settings: Settings, method: str, headers: Mapping[str, str]) -> Answer | None:
    """The answer to who may not call: 401, 403 or 503; None to the others.

    The host has checked the key where keys open the API. 503: App Service authentication is off.
    403: a page of another site sends the request with the cookie of its visitor.
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

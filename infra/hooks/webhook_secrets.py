"""After provisioning: make missing webhook secrets, and wait before there are event subscriptions.

azd runs this with its environment. A secret that is there is never replaced: docs/deploy.md says
how to rotate one. The role that allows it is new, and Azure needs minutes to know it, as it does
for the identities that deliver events: Event Grid refuses a subscription until then.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from azure.keyvault.secrets import SecretClient

T = TypeVar("T")
WAITS_SECONDS = (15.0, 30.0, 60.0, 120.0, 180.0, 300.0)
"""Between attempts: role assignments take up to 10 minutes.
https://learn.microsoft.com/azure/role-based-access-control/troubleshooting"""
PASSING = frozenset({403, 404, 502, 503, 504})
"""Answers while a role does not count yet, or an app that was just deployed starts."""
FORBIDDEN = 403
CLOSED = ("ForbiddenByConnection", "AuthorizationFailure", "PublicAccessNotPermitted")
"""Codes of a firewall: those of a missing role are others, and pass."""
DELIVERY_WAIT_SECONDS = 300.0
"""Before the provisioning that makes event subscriptions, at its end."""
NAMES = ("inbound-webhook-secret", "model-watch-secret")


class Unreachable(Exception):
    """The service does not let this machine in: private networks are closed."""


def patiently(
    attempt: Callable[[], T], what: str, *, wait: Callable[[float], None] = time.sleep
) -> T:
    """Repeat what is refused until the role counts.

    Raises:
        Unreachable: the network is closed to this machine.
        Exception: any other error, and the last refusal.
    """
    for seconds in (*WAITS_SECONDS, None):
        try:
            return attempt()
        except Exception as error:
            status = getattr(error, "status_code", None) or getattr(error, "code", None)
            if status == FORBIDDEN and any(each in str(error) for each in CLOSED):
                raise Unreachable(str(error)) from error
            if status not in PASSING or seconds is None:
                raise
            print(f"{what}: {status}, roles take minutes; again in {seconds:.0f} s", flush=True)  # noqa: T201
            wait(seconds)
    raise AssertionError("the last attempt returns or raises")


def ensure_secrets(vault: SecretClient) -> list[str]:
    """Make what is missing, 24 to 64 random bytes each (Standard Webhooks); what was made."""
    existing = {each.name for each in vault.list_properties_of_secrets()}
    made = [name for name in NAMES if name not in existing]
    for name in made:
        vault.set_secret(name, f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")
    return made


def wait_for_delivery(
    environment: Mapping[str, str], *, wait: Callable[[float], None] = time.sleep
) -> None:
    """Where this provisioning made no event subscriptions, wait until the next one may."""
    if environment["LANDFALL_PROVISIONED_DELIVERY"] == "later":
        print(  # noqa: T201
            f"event subscriptions: azd provision makes them when it runs again, as azd up lets it; "
            f"their roles take minutes, waiting {DELIVERY_WAIT_SECONDS:.0f} s",
            flush=True,
        )
        wait(DELIVERY_WAIT_SECONDS)


def main() -> int:
    """Look into the vault of the azd environment and make what is missing."""
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - azd installs it for the hook
    from azure.keyvault.secrets import SecretClient  # noqa: PLC0415 - the same

    wait_for_delivery(os.environ)
    vault = SecretClient(os.environ["LANDFALL_VAULT_URL"], DefaultAzureCredential())
    try:
        made = patiently(lambda: ensure_secrets(vault), "webhook secrets")
    except Unreachable:
        print(  # noqa: T201
            "webhook secrets: not made, the vault is closed to this machine. All else goes on; "
            "run infra/hooks/webhook_secrets.py in the network, then az functionapp restart"
        )
        return 0
    print("webhook secrets:", f"made {', '.join(made)}" if made else "all are there")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())

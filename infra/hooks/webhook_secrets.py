"""After provisioning: make each webhook secret that the vault does not have yet.

azd runs this with its environment. A secret that is there is never replaced: docs/deploy.md says
how to rotate one.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.keyvault.secrets import SecretClient

NAMES = ("inbound-webhook-secret", "model-watch-secret")


def ensure_secrets(vault: SecretClient) -> list[str]:
    """Make what is missing, 24 to 64 random bytes each (Standard Webhooks); what was made."""
    existing = {each.name for each in vault.list_properties_of_secrets()}
    made = [name for name in NAMES if name not in existing]
    for name in made:
        vault.set_secret(name, f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")
    return made


def main() -> int:
    """Look into the vault of the azd environment and make what is missing."""
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - azd installs it for the hook
    from azure.keyvault.secrets import SecretClient  # noqa: PLC0415 - the same

    vault = SecretClient(os.environ["LANDFALL_VAULT_URL"], DefaultAzureCredential())
    made = ensure_secrets(vault)
    print("webhook secrets:", f"made {', '.join(made)}" if made else "all are there")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())

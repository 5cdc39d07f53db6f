"""Access keys, and the requests that each key authorizes.

Source: https://learn.microsoft.com/azure/azure-functions/function-keys-how-to
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from localazure.processes.atomic_file import write_atomically
from localazure.runtime.identity import is_one_of

ANONYMOUS: Final = "anonymous"
FUNCTION: Final = "function"
ADMIN: Final = "admin"
LEVELS: Final = frozenset({ANONYMOUS, FUNCTION, ADMIN})

HEADER: Final = "x-functions-key"
QUERY_PARAMETER: Final = "code"


@dataclass(frozen=True, repr=False)
class KeyRing:
    """The keys of one host."""

    master: str
    """The key that authorizes every request."""
    host: str
    """The key that authorizes requests to every function of level `function`."""
    system: str
    """The key that authorizes requests to the webhooks of extensions."""

    def function_key(self, name: str) -> str:
        """The key of one function. It is derived from the host key, so it need not be stored."""
        digest = hmac.digest(self.host.encode(), name.lower().encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def opens_function(self, key: str | None, name: str, level: str) -> bool:
        """Whether a key authorizes a request to an HTTP function of this level."""
        if level == ANONYMOUS:
            return True
        if level == ADMIN:
            return self.opens_admin(key)
        return self._is_one_of(key, self.function_key(name), self.host, self.master)

    def opens_webhook(self, key: str | None) -> bool:
        """Whether a key authorizes a request to the webhook of an extension."""
        return self._is_one_of(key, self.system, self.master)

    def opens_admin(self, key: str | None) -> bool:
        """Whether a key authorizes a request to /admin."""
        return self._is_one_of(key, self.master)

    @classmethod
    def kept_in(cls, state: Path) -> Self:
        """The keys in `<state>/keys.json`; generate them if the file is missing."""
        path = state / "keys.json"
        if not path.exists():
            drawn = {name: secrets.token_urlsafe(32) for name in ("master", "host", "system")}
            write_atomically(path, json.dumps(drawn))
        return cls(**json.loads(path.read_text()))

    def _is_one_of(self, key: str | None, *candidates: str) -> bool:
        return is_one_of(key or "", candidates)


class OpenDoor(KeyRing):
    """Accepts every request, as `func start` does without --enable-auth; for loopback only."""

    def _is_one_of(self, key: str | None, *candidates: str) -> bool:  # noqa: ARG002 - accepts any key
        return True

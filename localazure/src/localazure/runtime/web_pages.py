"""Which requests of a browser an HTTP server of this machine accepts. Pure: no I/O.

A server on loopback without a key is open to any web page that the user visits: a page can send
simple requests to every address (Origin and `Sec-Fetch-Site` say so), and with a name of its own
that suddenly resolves to 127.0.0.1 (DNS rebinding) it can read the answers (`Host` says so). SDKs
and command lines send neither `Origin` nor `Sec-Fetch-Site`, and a name of this machine.

Sources: https://fetch.spec.whatwg.org/#origin-header, https://www.w3.org/TR/fetch-metadata/,
https://www.rfc-editor.org/rfc/rfc6761#section-6.3 (`localhost` and all names below it)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

ANY_ORIGIN: Final = "*"

# Nobody can register names below these: clients in a container, and those that name an account.
_OWN_NAMES: Final = (".localhost", ".docker.internal", ".core.windows.net")
_FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class WebPages:
    """The web pages from elsewhere that may call a server."""

    origins: frozenset[str] = frozenset()
    """Their origins; `*` allows all. The server may also have the host of one as its name."""
    has_own_cors: bool = False
    """Whether the server itself refuses pages, by rules that this module does not know."""
    remedy: str = ""
    """How the user allows a page."""

    def refusal_of(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused, or None.

        Args:
            method: in upper case.
            headers: a mapping with case-insensitive keys.
        """
        if ANY_ORIGIN in self.origins:
            return None
        host = headers.get("Host", "").lower()
        if host and not _is_own_name(host) and host not in {_host(one) for one in self.origins}:
            or_else = f", or {self.remedy}" if self.remedy else ""
            return f"Host {host!r} is no name of this machine: use localhost{or_else}"
        if self.has_own_cors:
            return None
        origin = headers.get("Origin")
        is_foreign = headers.get("Sec-Fetch-Site", "") in _FOREIGN_SITES
        # An image or a script has no Origin; its page is in Referer, which a page cannot forge.
        page = origin or (_origin(headers.get("Referer", "")) if is_foreign else "")
        if page in self.origins or (origin is not None and _host(origin) == host):
            return None
        is_link = (
            method in _READS
            and headers.get("Sec-Fetch-Mode") == "navigate"
            and headers.get("Sec-Fetch-Dest") == "document"
        )
        if origin is None and (is_link or not is_foreign):
            return None
        whose = "another site" if origin is None else repr(origin)
        remedy = self.remedy or "no web page may call this service"
        return f"a web page of {whose} sent this request: {remedy}"


NONE: Final = WebPages()


def _is_own_name(host: str) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        return (
            name == "localhost"
            or name.endswith(_OWN_NAMES)
            or ipaddress.ip_address(name).is_loopback
        )
    except ValueError:  # no address
        return False


def _host(origin: str) -> str:
    return origin.partition("://")[2].lower()


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"

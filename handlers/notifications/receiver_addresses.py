"""Addresses to which webhooks may be sent: prevents server-side request forgery. Pure except DNS.

A caller's URL must not make Landfall connect to its own network, to the metadata service that
issues its identity's tokens, or to anything else that trusts its network location.
https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from handlers.configuration.settings import Network
from orchestrations.errors import PermanentError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]

URL_LIMIT_CHARACTERS = 2_048
DEFAULT_PORTS = {"https": 443, "http": 80}

# Refused even if the settings allow them. 168.63.129.16 is public, but on Azure the platform:
# https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
NEVER = frozenset(
    {
        ipaddress.ip_address("169.254.169.254"),
        ipaddress.ip_address("168.63.129.16"),
    }
)
# An IPv4 address in the last 32 bits: RFC 6052, and RFC 4291's IPv4-compatible and
# IPv4-translated (RFC 2765) forms. The address inside decides.
_WRAPPINGS = tuple(
    ipaddress.IPv6Network(block) for block in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")
)
# Not on the public internet, whatever this Python's `ipaddress` returns. In the order of
# https://www.iana.org/assignments/iana-ipv6-special-registry: local-use NAT64 (RFC 8215),
# documentation (RFC 9637), SRv6 SIDs (RFC 9602); and site-local (RFC 3879).
_SPECIAL = tuple(
    ipaddress.IPv6Network(block)
    for block in ("64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10")
)

_VISIBLE_ASCII = re.compile(r"[!-~]+")


class ReceiverRefused(PermanentError):
    """The receiver is not allowed; the message has the host, not the whole URL."""


@dataclass(frozen=True)
class Receiver:
    """A parsed URL of a webhook."""

    scheme: str
    host: str
    """A host name, or an address without brackets."""
    port: int
    target: str
    """Path and query, as in the request line."""

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_receiver(url: str) -> Receiver:
    """Parse a URL.

    Raises:
        ReceiverRefused: it is not an absolute http(s) URL of visible ASCII, or holds credentials.
    """
    if len(url) > URL_LIMIT_CHARACTERS or _VISIBLE_ASCII.fullmatch(url) is None:
        raise ReceiverRefused(
            "a receiver's URL must be visible ASCII (punycode, %-escapes) of at most "
            f"{URL_LIMIT_CHARACTERS} characters"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Without the error's text: it quotes the text in place of the port, possibly a password.
        raise ReceiverRefused(
            "a receiver's URL is malformed: https://<host>[:<port>]/<path> is asked for"
        ) from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ReceiverRefused("a receiver's URL must be absolute and begin with https://")
    if parts.username is not None or parts.password is not None:
        raise ReceiverRefused(f"host {parts.hostname}: a receiver's URL must hold no credentials")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Receiver(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], target)


def resolve(host: str, port: int) -> Sequence[str]:
    """Every IPv4 and IPv6 address of a host, in the order of preference.

    Raises:
        OSError: the name is unknown, or the resolver does not answer.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_addresses(
    receiver: Receiver, addresses: Sequence[str], networks: Sequence[Network]
) -> Sequence[str]:
    """Return the receiver's addresses if a webhook may be sent to all of them.

    `networks` are allowed in addition to the public internet, also without TLS.

    Raises:
        ReceiverRefused: an address is neither public nor in `networks`, or the URL is not https.
    """
    for text in addresses:
        address = _parse_address(text)
        allowed = any(address in network for network in networks if _same_kind(address, network))
        if address in NEVER or not (allowed or is_public(address)):
            raise ReceiverRefused(
                f"host {receiver.host} resolves to {text}, which is not a public address; "
                "WEBHOOK_ALLOWED_NETWORKS can allow the network"
            )
        if receiver.scheme != "https" and not allowed:
            raise ReceiverRefused(f"host {receiver.host}: webhooks are sent by https only")
    return addresses


def check_literal(receiver: Receiver, networks: Sequence[Network]) -> None:
    """Refuse a URL whose host is an address outside `networks` instead of a name.

    Receivers on the public internet have names, and certificates for them.

    Raises:
        ReceiverRefused: the host is an address outside `networks`.
    """
    try:
        address = _parse_address(receiver.host)
    except ValueError:
        return
    if address in NEVER or not any(
        address in network for network in networks if _same_kind(address, network)
    ):
        raise ReceiverRefused(
            f"host {receiver.host}: a receiver has a name; WEBHOOK_ALLOWED_NETWORKS can allow "
            "addresses of a network"
        )


def is_public(address: Address) -> bool:
    """Whether the address is on the public internet."""
    special = any(address in block for block in _SPECIAL if block.version == address.version)
    return address.is_global and not address.is_multicast and not special


def _parse_address(text: str) -> Address:
    """An address, or the IPv4 address that an IPv6 address embeds."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    # First: from Python 3.13 on, a mapped address behaves like the embedded one.
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return address
    if any(address in block for block in _WRAPPINGS):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.sixtofour or address


def _same_kind(address: Address, network: Network) -> bool:
    return address.version == network.version

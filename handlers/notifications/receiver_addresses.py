"""Where a webhook may be sent to: the guard against server-side request forgery. Pure but for DNS.

A URL from a stranger must not make Landfall speak to its own network, to the metadata service that
hands out its identity, or to anything else that trusts it for where it stands.
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

# Whatever the settings say. 168.63.129.16 is a public address, but on Azure it is the platform:
# https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
NEVER = frozenset(
    {
        ipaddress.ip_address("169.254.169.254"),
        ipaddress.ip_address("168.63.129.16"),
    }
)
# RFC 6052: an IPv4 address in the last 32 bits.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_VISIBLE_ASCII = re.compile(r"[!-~]+")


class ReceiverRefused(PermanentError):
    """A webhook must not be sent there; the message names the host, not the whole URL."""


@dataclass(frozen=True)
class Receiver:
    """A webhook's URL, taken apart."""

    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    target: str
    """Path and query, as the request line has them."""

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_receiver(url: str) -> Receiver:
    """Take a URL apart.

    Raises:
        ReceiverRefused: it is no absolute http(s) URL of visible ASCII, or holds credentials.
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
        # Without the error's text: it quotes what stands where the port should, be it a password.
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
    """Every address of a host, IPv4 and IPv6, in the order in which they should be tried.

    Raises:
        OSError: the name is unknown, or the resolver does not answer.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_addresses(
    receiver: Receiver, addresses: Sequence[str], networks: Sequence[Network]
) -> Sequence[str]:
    """Return the addresses when a webhook may be sent to every one of them.

    Args:
        receiver: whose addresses.
        addresses: from `resolve`.
        networks: what is allowed beside the public internet, and there without TLS too.

    Raises:
        ReceiverRefused: one of them is neither public nor in `networks`, or the URL is not https.
    """
    for text in addresses:
        address = _parse_address(text)
        allowed = any(address in network for network in networks if _same_kind(address, network))
        if address in NEVER or not (allowed or is_public(address)):
            raise ReceiverRefused(
                f"host {receiver.host} resolves to {text}, which is no public address; "
                "WEBHOOK_ALLOWED_NETWORKS can allow the network"
            )
        if receiver.scheme != "https" and not allowed:
            raise ReceiverRefused(f"host {receiver.host}: webhooks are sent by https only")
    return addresses


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could speak to it as well."""
    return address.is_global and not address.is_multicast


def _parse_address(text: str) -> Address:
    """An address; where an IPv6 address is but a wrapping of an IPv4 one, the latter."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or address


def _same_kind(address: Address, network: Network) -> bool:
    return address.version == network.version

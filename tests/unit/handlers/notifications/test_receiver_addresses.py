from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.notifications.receiver_addresses import (
    ReceiverRefused,
    check_addresses,
    check_literal,
    is_public,
    parse_receiver,
)

PUBLIC = "93.184.215.14"
EVERYTHING = [ipaddress.ip_network(block) for block in ("0.0.0.0/0", "::/0")]


def check(url: str, *addresses: str, networks: tuple[str, ...] = ()) -> None:
    allowed = tuple(map(ipaddress.ip_network, networks))
    assert check_addresses(parse_receiver(url), addresses, allowed) == addresses


@pytest.mark.parametrize(
    ("url", "authority", "port", "target"),
    [
        ("https://a.example", "a.example", 443, "/"),
        ("https://a.example/x?y=z#part", "a.example", 443, "/x?y=z"),
        ("https://A.example:8443/", "a.example:8443", 8443, "/"),
        ("http://[2001:db8::1]:80/x", "[2001:db8::1]", 80, "/x"),
    ],
)
def test_a_url_is_taken_apart(url: str, authority: str, port: int, target: str) -> None:
    receiver = parse_receiver(url)
    assert (receiver.authority, receiver.port, receiver.target) == (authority, port, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example/x",
        "//a.example/x",
        "ftp://a.example/",
        "https:///x",
        "https://a.example:99999/",
        "https://[::1/",
        "https://user:secret@a.example/",
        "https://user:secret/",
        "https://a.example/a b",
        "https://a.example/\r\nHost: b",
        "https://ä.example/",
        "https://a.example/" + "x" * 2048,
    ],
)
def test_what_is_no_plain_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ReceiverRefused) as refused:
        parse_receiver(url)
    assert "secret" not in str(refused.value)


def test_public_addresses_take_https_only() -> None:
    check("https://a.example/", PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    with pytest.raises(ReceiverRefused, match="https only"):
        check("http://a.example/", PUBLIC)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "0.0.0.0",  # noqa: S104 - what a stranger may try
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",  # NAT64 of 169.254.169.254
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "::ffff:0:127.0.0.1",  # IPv4-translated
        "::127.0.0.1",  # IPv4-compatible
        "::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",  # local-use NAT64
        "fec0::1",  # site-local
        "5f00::1",  # SRv6
        "3fff::1",  # documentation
    ],
)
def test_no_other_address_is_spoken_to(address: str) -> None:
    with pytest.raises(ReceiverRefused, match=r"a\.example"):
        check("https://a.example/", address)
    with pytest.raises(ReceiverRefused):
        check("https://a.example/", PUBLIC, address)  # also refused together with a public address


def test_an_allowed_network_takes_http_too() -> None:
    check("http://a.example/", "127.0.0.1", "::ffff:127.0.0.9", networks=("127.0.0.0/8",))
    with pytest.raises(ReceiverRefused):
        check("http://a.example/", "127.0.0.1", PUBLIC, networks=("127.0.0.0/8",))
    with pytest.raises(ReceiverRefused):
        check("http://a.example/", "::1", networks=("127.0.0.0/8",))


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "168.63.129.16"])
def test_the_platform_is_never_spoken_to_whatever_is_allowed(address: str) -> None:
    with pytest.raises(ReceiverRefused):
        check("https://a.example/", address, networks=("0.0.0.0/0", "::/0"))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ReceiverRefused):
        check_literal(parse_receiver(f"https://{host}/"), EVERYTHING)


PRIVATE = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16")]


@given(
    st.sampled_from(PRIVATE),
    st.integers(min_value=0, max_value=2**24 - 1),
    st.sampled_from(["", "::ffff:", "64:ff9b::", "::ffff:0:", "::"]),
)
def test_nothing_in_a_private_network_is_public(
    network: ipaddress.IPv4Network, offset: int, wrapping: str
) -> None:
    address = network[offset % network.num_addresses]
    assert not is_public(address)
    with pytest.raises(ReceiverRefused):
        check("https://a.example/", f"{wrapping}{address}")


@pytest.mark.parametrize(
    "url", ["https://8.8.8.8/", "https://[2606:4700::1111]/x", "http://10.0.0.1/", "https://[::1]/"]
)
def test_a_host_that_is_an_address_is_refused_unless_its_network_is_allowed(url: str) -> None:
    receiver = parse_receiver(url)
    with pytest.raises(ReceiverRefused, match="a receiver has a name"):
        check_literal(receiver, ())
    check_literal(receiver, EVERYTHING)
    check_literal(parse_receiver("https://a.example/"), ())

"""Tokens of a connection: their rights and their expiry."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any
from urllib.parse import quote, quote_plus

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.servicebus.addresses import Address, SubQueueKind, parse
from localazure.servicebus.authorization import Authorization, Right, SharedKey, TokenError

KEY = SharedKey("Root", "c2VjcmV0+/=")
NOW_SECONDS = 1000.0


def sas(resource: str, expiry: Any = 2000, name: str = KEY.name, value: str = KEY.value) -> str:
    encoded = quote_plus(resource)
    digest = hmac.new(value.encode(), f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest))
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}&skn={name}"


def token_of(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "k" * 32)


def test_a_signature_authorizes_its_resource_until_it_expires() -> None:
    authorization = Authorization([KEY])
    authorization.put_token("sb://host/Topic/Subscriptions/a", sas("sb://host/topic"), NOW_SECONDS)
    assert authorization.allows("topic/subscriptions/a", NOW_SECONDS)
    assert authorization.allows("topic/subscriptions/a/$deadletterqueue", 1999)
    assert not authorization.allows("topic/subscriptions/a", 2000)
    assert not authorization.allows("topic/subscriptions/ab", NOW_SECONDS)
    assert not authorization.allows("topic", NOW_SECONDS)


@pytest.mark.parametrize(
    ("audience", "scope"),
    [("sb://host/queue/$management",) * 2, ("sb://host:1/queue", "sb://host:1/")],
)
def test_a_signature_for_the_management_node_or_the_namespace(audience: str, scope: str) -> None:
    authorization = Authorization([KEY])
    authorization.put_token(audience, sas(scope), NOW_SECONDS)
    assert authorization.allows("queue", NOW_SECONDS)
    assert not authorization.allows("queue2", NOW_SECONDS)


def test_a_rule_authorizes_its_claims_only() -> None:
    rule = SharedKey("send-only", "b3RoZXI=", frozenset({Right.SEND}))
    by_token, by_plain = Authorization([KEY, rule]), Authorization([KEY, rule])
    signature = sas("sb://host/queue", name=rule.name, value=rule.value)
    by_token.put_token("sb://host/queue", signature, NOW_SECONDS)
    assert by_plain.authenticate("PLAIN", f"\0{rule.name}\0{rule.value}".encode())
    for authorization in (by_token, by_plain):
        assert authorization.has_token("queue", NOW_SECONDS)
        assert authorization.allows("queue", NOW_SECONDS, [Right.SEND])
        assert authorization.allows("queue", NOW_SECONDS)  # a management link needs one of both
        assert not authorization.allows("queue", NOW_SECONDS, [Right.RECEIVE])
    with pytest.raises(TokenError, match="not one of this namespace's keys"):
        by_token.put_token("sb://host/queue", sas("sb://host/queue", name=rule.name), NOW_SECONDS)


def test_the_rule_of_a_queue_authorizes_nothing_else() -> None:
    rule = SharedKey(KEY.name, "b3RoZXI=", frozenset({Right.SEND}), "queue")
    by_token, by_plain = Authorization([KEY, rule]), Authorization([KEY, rule])
    queue, other = "sb://host/queue", "sb://host/queue2"
    by_token.put_token(queue, sas(queue, value=rule.value), NOW_SECONDS)
    assert by_plain.authenticate("PLAIN", f"\0{rule.name}\0{rule.value}".encode())
    for authorization in (by_token, by_plain):
        assert authorization.allows("queue", NOW_SECONDS, [Right.SEND])
        assert not authorization.allows("queue", NOW_SECONDS, [Right.RECEIVE])
        assert not authorization.has_token("queue2", NOW_SECONDS)
    for resource in (other, "sb://host/"):
        with pytest.raises(TokenError, match="the key is that of 'queue', not of"):
            by_token.put_token(other, sas(resource, value=rule.value), NOW_SECONDS)
    by_token.put_token(other, sas(other), NOW_SECONDS)  # the namespace's, of the same name
    assert by_token.allows("queue2", NOW_SECONDS, [Right.RECEIVE])


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (sas("sb://host/other"), "not for 'queue'"),
        (sas("sb://host/queue", 999), "expired"),
        (sas("sb://host/queue", "soon"), "not a number"),
        (sas("sb://host/queue", value="wrong"), "not one of this namespace's keys"),
        (sas("sb://host/queue", name="Other"), "not one of this namespace's keys"),
        (sas("sb://host/queue").replace("se=2000", "se=3000"), "not one of this namespace's keys"),
        ("SharedAccessSignature sr=x&se=1", "lacks sig, skn"),
        ("opaque", "neither"),
        (token_of({"exp": 999}), "expired"),
        (token_of({}), "with an expiry"),
        (token_of({"exp": "soon"}), "with an expiry"),
        ("a.!.c", "with an expiry"),
    ],
)
def test_invalid_tokens_have_a_reason_that_does_not_quote_them(token: str, reason: str) -> None:
    authorization = Authorization([KEY])
    with pytest.raises(TokenError, match=reason) as caught:
        authorization.put_token("sb://host/queue", token, NOW_SECONDS)
    assert token not in str(caught.value)
    assert KEY.value not in str(caught.value)
    assert not authorization.allows("queue", NOW_SECONDS)


@pytest.mark.parametrize(
    ("response", "is_authenticated"),
    [
        (f"\0{KEY.name}\0{KEY.value}".encode(), True),
        (f"someone\0{KEY.name}\0{KEY.value}".encode(), True),
        (f"\0{KEY.name}\0wrong".encode(), False),
        (f"\0Other\0{KEY.value}".encode(), False),
        (b"", False),
        (b"\xff\0\xff\0\xff", False),
    ],
)
def test_sasl_plain_with_the_key_authorizes_everything(
    response: bytes,
    is_authenticated: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    authorization = Authorization([KEY])
    assert authorization.authenticate("PLAIN", response) == is_authenticated
    assert authorization.allows("anything", NOW_SECONDS) == is_authenticated


def test_other_mechanisms_require_tokens() -> None:
    authorization = Authorization([KEY])
    assert authorization.authenticate("ANONYMOUS", b"")
    assert not authorization.allows("queue", NOW_SECONDS)


@given(st.text())
def test_arbitrary_tokens_raise_the_typed_error(token: str) -> None:
    for given_token in (token, f"SharedAccessSignature {token}", f"a.{token}.c"):
        with pytest.raises(TokenError):
            Authorization([KEY]).put_token("queue", given_token, NOW_SECONDS)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Queue", Address("queue")),
        ("amqps://host:5671/queue", Address("queue")),
        ("sb://host/a%20b/", Address("a b")),
        ("topic/Subscriptions/Sub", Address("topic/subscriptions/sub")),
        ("queue/$DeadLetterQueue", Address("queue", SubQueueKind.DEAD_LETTER)),
        (
            "queue/$Transfer/$DeadLetterQueue",
            Address("queue", SubQueueKind.TRANSFER_DEAD_LETTER),
        ),
        ("queue/$management", Address("queue", is_management=True)),
        (
            "amqps://h/t/Subscriptions/s/$DeadLetterQueue/$management",
            Address("t/subscriptions/s", SubQueueKind.DEAD_LETTER, is_management=True),
        ),
        ("$cbs", Address("$cbs")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse(text) == address

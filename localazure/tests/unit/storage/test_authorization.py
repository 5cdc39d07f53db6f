"""The gate: its admissions, and its signatures for an identity."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from localazure.runtime.environment import STORAGE_KEY
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.storage.authorization import Gate
from localazure.storage.configuration import Account, StorageConfiguration
from localazure.storage.refusal import NOT_AUTHENTIC, Refusal
from localazure.storage_client.endpoint import Service

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ISSUER = TokenIssuer("secret", frozenset({STORAGE_AUDIENCE}))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate without a table of roles, so that an identity may do everything."""
    return Gate(
        StorageConfiguration().accounts,
        lambda _account: STORAGE_KEY,
        ISSUER,
        RoleAssignments(tmp_path / "roles.json", tmp_path / "scopes.json"),
        lambda: NOW,
    )


def bearer() -> CIMultiDict[str]:
    token, _ = ISSUER.issue(STORAGE_AUDIENCE, now=NOW.timestamp() - 1)
    return CIMultiDict({"Authorization": f"Bearer {token}", "x-ms-version": "2021-12-02"})


def test_a_request_by_identity_is_signed_with_the_key(gate: Gate) -> None:
    target = "/devstoreaccount1/c/b"
    admitted = gate.admit(Service.BLOB, "GET", target, bearer(), is_secure=True)
    assert not isinstance(admitted, Refusal)
    assert admitted["Authorization"].startswith("SharedKey devstoreaccount1:")
    assert admitted["x-ms-date"] == "Sun, 22 Nov 2026 00:00:00 GMT"


BATCH = "/devstoreaccount1/c?restype=container&comp=batch"


def test_a_batch_has_a_longest_size(gate: Gate) -> None:
    sent = CIMultiDict({"Authorization": "SharedKey a:b", "Content-Length": str(4 * 1024 * 1024)})
    assert gate.admit(Service.BLOB, "POST", BATCH, sent, is_secure=False) is sent
    sent["Content-Length"] = str(4 * 1024 * 1024 + 1)
    refused = gate.admit(Service.BLOB, "POST", BATCH, sent, is_secure=False)
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code) == (413, "RequestBodyTooLarge")


def test_a_batch_by_identity_is_not_covered(gate: Gate) -> None:
    refused = gate.admit(Service.BLOB, "POST", BATCH, bearer(), is_secure=True)
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code) == (501, "NotImplemented")


def test_a_signature_that_is_no_utf_8_is_wrong(tmp_path: Path) -> None:
    lake = Account(name="lake", is_hns_enabled=True)
    assignments = RoleAssignments(tmp_path / "roles.json", tmp_path / "scopes.json")
    gate = Gate({"lake": lake}, lambda _account: STORAGE_KEY, ISSUER, assignments)
    sent = CIMultiDict({"Authorization": "SharedKey lake:\udcff", "x-ms-date": "now"})
    refused = gate.refusal_of_path_request("PATCH", "/lake/c/f", CIMultiDictProxy(sent))
    assert refused is NOT_AUTHENTIC
    assert gate.to_path_style("GET", "/c/b", sent) is NOT_AUTHENTIC

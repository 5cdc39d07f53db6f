from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.batch import deletions, is_batch, statuses

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


def multipart(boundary: str, parts: list[str]) -> bytes:
    body = "".join(
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n{part}\r\n"
        for number, part in enumerate(parts)
    )
    return f"{body}--{boundary}--\r\n".encode()


@given(
    boundary=st.from_regex(r"[A-Za-z0-9'()+_,./:=?-]{1,40}", fullmatch=True),
    quoted=st.booleans(),
    blobs=st.lists(names, max_size=8),
)
def test_deletes_come_back(boundary: str, *, quoted: bool, blobs: list[str]) -> None:
    parts = [
        f"DELETE /devstoreaccount1/c/{quote(blob)}? HTTP/1.1\r\n"
        f"x-ms-client-request-id: {number}\r\nContent-Length: 0\r\n\r\n"
        for number, blob in enumerate(blobs)
    ]
    shown = f'"{boundary}"' if quoted else boundary
    found = deletions(f"multipart/mixed; boundary={shown}", multipart(boundary, parts))
    assert [operation.blob for operation in found.values()] == blobs
    assert [operation.client_request_id for operation in found.values()] == list(found)


def test_other_requests_of_a_batch_raise_no_event() -> None:
    tier = "PUT /devstoreaccount1/c/b?comp=tier HTTP/1.1\r\nx-ms-access-tier: Cool\r\n\r\n"
    assert deletions("multipart/mixed; boundary=x", multipart("x", [tier])) == {}


def test_statuses_as_azurite_writes_them() -> None:
    body = (
        "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
        "HTTP/1.1 202 Accepted\r\nServer: Azurite\r\n\r\n\r\n"
        "--b\r\nContent-Type: application/http\r\nContent-ID: 1\r\n\r\n"
        "HTTP/1.1 404 The specified blob does not exist.\r\n\r\n<Error/>\r\n\r\n--b--"
    )
    assert statuses("multipart/mixed; boundary=b", body.encode()) == {"0": 202, "1": 404}


@given(st.text(), st.binary())
def test_any_body_is_read(content_type: str, body: bytes) -> None:
    deletions(content_type, body)
    statuses(content_type, body)


def test_which_requests_are_batches() -> None:
    assert is_batch("POST", "/devstoreaccount1?comp=batch")
    assert is_batch("POST", "/devstoreaccount1/c?restype=container&comp=batch")
    assert not is_batch("POST", "/devstoreaccount1/c?comp=query")
    assert not is_batch("PUT", "/devstoreaccount1?comp=batch")

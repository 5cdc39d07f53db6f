"""Names of blobs that a listing in XML cannot hold."""

from __future__ import annotations

from urllib.parse import quote
from xml.parsers import expat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.blob_names import refusal_of
from localazure.storage_client.endpoint import Service

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def is_refused(name: str, *, method: str = "PUT", service: Service = Service.BLOB) -> bool:
    return refusal_of(service, method, f"/account/container/{quote(name)}?comp=x") is not None


@given(names | st.text("a\x00\x01\t\n\x1f\x7f\ufffd\ufffe\uffff%01", min_size=1))
def test_a_name_is_refused_if_xml_cannot_hold_it(name: str) -> None:
    text = name.replace("&", "").replace("<", "").replace("]]>", "")
    try:
        expat.ParserCreate().Parse(f"<a>{text}</a>".encode(), True)  # noqa: FBT003 - by position
        fits = True
    except expat.ExpatError:
        fits = False
    # Expat takes U+FFFF, other parsers do not.
    assert is_refused(name) == (not fits or "\ufffe" in name or "\uffff" in name)


@pytest.mark.parametrize(
    ("method", "service"), [("GET", Service.BLOB), ("DELETE", Service.BLOB), ("PUT", Service.TABLE)]
)
def test_only_blobs_that_are_written_are_refused(method: str, service: Service) -> None:
    assert is_refused("\x01")
    assert not is_refused("\x01", method=method, service=service)

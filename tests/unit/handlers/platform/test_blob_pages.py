from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

import nanoarrow as na
import pytest
from azure.storage.blob import BlobProperties
from azure.storage.blob._list_blobs_helper import _parse_arrow_response  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType] - the SDK's own reader is the oracle
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow.ipc import StreamWriter

from handlers.platform.blob_pages import ARROW_STREAM, parse_arrow, parse_page, parse_xml
from orchestrations.errors import TransientError

WHEN = "Sat, 21 Nov 2026 11:22:33 GMT"
# The characters of XML 1.0; the service encodes names with other characters.
XML_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
# Users choose these names, which may equal those of parsed elements.
METADATA_NAMES = st.sampled_from(
    ["Name", "Etag", "Blob", "Metadata", "hdi_isfolder", "ResourceType", "a"]
)


@st.composite
def blobs(draw: st.DrawFn) -> ET.Element:
    blob = ET.Element("Blob")
    if draw(st.booleans()):
        ET.SubElement(blob, "Name").text = draw(XML_TEXT)
    else:
        ET.SubElement(blob, "Name", Encoded="true").text = quote(draw(ANY_TEXT))
    if draw(st.booleans()):
        ET.SubElement(blob, "Snapshot").text = draw(XML_TEXT)
    properties = ET.SubElement(blob, "Properties")
    ET.SubElement(properties, "Last-Modified").text = WHEN
    ET.SubElement(properties, "Etag").text = draw(st.sampled_from(["0x8D1", '"0x8D2"']))
    ET.SubElement(properties, "Content-Length").text = str(draw(st.integers(0, 2**45)))
    digest = draw(st.none() | st.just(b"") | st.binary(min_size=16, max_size=16))
    if digest is not None:
        ET.SubElement(properties, "Content-MD5").text = base64.b64encode(digest).decode()
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["file", "directory"]))
        ET.SubElement(properties, "ResourceType").text = kind
    if draw(st.booleans()):
        metadata = ET.SubElement(blob, "Metadata")
        for name in draw(st.lists(METADATA_NAMES, unique=True)):
            ET.SubElement(metadata, name).text = draw(st.sampled_from(["true", "false", "x", ""]))
    if draw(st.booleans()):
        ET.SubElement(blob, "OrMetadata")
    return blob


def page_of(blobs: Sequence[ET.Element], marker: str | None) -> bytes:
    root = ET.Element("EnumerationResults", ServiceEndpoint="https://a.blob.core.windows.net/")
    ET.SubElement(root, "Prefix").text = "train/"
    ET.SubElement(root, "Blobs").extend(blobs)
    ET.SubElement(root, "NextMarker").text = marker
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def expected(blob: ET.Element) -> dict[str, Any]:
    name = blob.find("Name")
    assert name is not None
    text = name.text or ""
    digest = base64.b64decode(blob.findtext("Properties/Content-MD5") or "")
    return {
        "name": unquote(text) if name.get("Encoded") == "true" else text,
        "size": int(blob.findtext("Properties/Content-Length") or 0),
        "etag": (blob.findtext("Properties/Etag") or "").strip('"'),
        "md5": digest.hex() or None,
        "last_modified": datetime(2026, 11, 21, 11, 22, 33, tzinfo=UTC),
        "is_directory": blob.findtext("Metadata/hdi_isfolder") == "true"
        or blob.findtext("Properties/ResourceType") == "directory",
    }


@given(st.lists(blobs(), max_size=5), st.none() | XML_TEXT, st.integers(1, 400))
def test_reads_every_page_as_a_tree_of_elements_shows_it(
    listed: list[ET.Element], marker: str | None, chunk_bytes: int
) -> None:
    # Encoded as the service does, so that XML normalises the line ends.
    content = page_of(listed, marker)
    tree = ET.fromstring(content)  # noqa: S314 - our own page
    begins = range(0, len(content), chunk_bytes)
    page = parse_xml(content[begin : begin + chunk_bytes] for begin in begins)
    assert [blob._asdict() for blob in page.blobs] == [
        expected(blob) for blob in tree.iterfind("Blobs/Blob")
    ]
    assert page.next_marker == (tree.findtext("NextMarker") or None)
    assert page.is_hierarchical == any(
        blob.find("Properties/ResourceType") is not None for blob in listed
    )


def test_a_page_up_to_a_delimiter_has_prefixes() -> None:
    content = (
        b"<EnumerationResults><Blobs><BlobPrefix><Name>a&amp;b/</Name></BlobPrefix>"
        b"<BlobPrefix><Name Encoded='true'>%01/</Name></BlobPrefix></Blobs><NextMarker/>"
        b"</EnumerationResults>"
    )
    page = parse_xml([content])
    assert (page.prefixes, page.blobs, page.next_marker) == (["a&b/", "\x01/"], [], None)


@given(st.lists(blobs(), min_size=1, max_size=3), st.data())
def test_a_page_that_was_cut_off_is_refused(listed: list[ET.Element], data: st.DataObject) -> None:
    content = page_of(listed, "next")
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(TransientError, match="malformed"):
        parse_page([content[:cut]], "application/xml")


def test_a_page_that_lacks_an_element_is_refused() -> None:
    with pytest.raises(TransientError, match="Etag"):
        parse_page(
            [
                (
                    b"<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Content-Length>1"
                    b"</Content-Length></Properties></Blob></Blobs></EnumerationResults>"
                )
            ],
            "application/xml",
        )


def arrow_page(rows: Sequence[tuple[str, int, str, str | None, int, str | None]]) -> bytes:
    columns = {
        "Name": na.string(),
        "Content-Length": na.int64(),
        "Etag": na.string(),
        "Content-MD5": na.string(),
        "Last-Modified": na.timestamp("s", "UTC"),
        "ResourceType": na.string(),
    }
    schema = na.Schema(na.Type.STRUCT, fields=columns, metadata={"NextMarker": "more"})
    children = [
        na.c_array([row[index] for row in rows], kind)
        for index, kind in enumerate(columns.values())
    ]
    batch = na.c_array_from_buffers(schema, len(rows), [None], children=children)
    out = io.BytesIO()
    with StreamWriter.from_writable(out) as writer:
        writer.write_array(batch)
    return out.getvalue()


@given(
    st.lists(
        st.tuples(
            ANY_TEXT,
            st.integers(0, 2**45),
            st.just("0x8D1"),
            st.none()
            | st.binary(min_size=16, max_size=16).map(lambda b: base64.b64encode(b).decode()),
            st.integers(0, 2**31),
            st.none(),
        ),
        max_size=5,
    )
)
def test_reads_an_arrow_stream_as_the_sdk_does(rows: list[Any]) -> None:
    content = arrow_page(rows)
    marker, sdk_blobs = _parse_arrow_response(content, "landing")
    page = parse_page([content], ARROW_STREAM)
    assert page.next_marker == marker
    assert [blob[:5] for blob in page.blobs] == [
        (
            blob.name,
            blob.size,
            blob.etag,
            bytes(blob.content_settings.content_md5).hex()
            if blob.content_settings.content_md5
            else None,
            blob.last_modified,
        )
        for blob in sdk_blobs
        if isinstance(blob, BlobProperties)
    ]


def test_an_arrow_stream_has_prefixes_and_directories() -> None:
    page = parse_arrow(
        arrow_page(
            [
                ("a/", 0, "", None, 0, "blobprefix"),
                ("b", 0, "0x1", None, 0, "directory"),
                ("c", 1, "0x2", None, 0, "file"),
            ]
        )
    )
    assert page.prefixes == ["a/"]
    assert [(blob.name, blob.is_directory) for blob in page.blobs] == [("b", True), ("c", False)]
    assert page.is_hierarchical

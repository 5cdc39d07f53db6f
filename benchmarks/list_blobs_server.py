"""An HTTP server for List Blobs over generated names; the blobs do not exist.

Names are computed on request, so that a zone of ten million blobs takes neither disk nor
memory. A page is XML and has 5,000 blobs. Served are the parameters prefix, marker, startFrom,
maxresults and delimiter; everything else of the service is missing, and every container has the
same blobs.

Source: https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

PAGE_BLOBS = 5000
CLASSES = 1000
_LAST = "\U0010ffff"
_BLOB = (
    "<Blob><Name>%s</Name><Properties><Creation-Time>Sat, 21 Nov 2026 11:22:33 GMT</Creation-Time>"
    "<Last-Modified>Sat, 21 Nov 2026 11:22:33 GMT</Last-Modified><Etag>0x8DE28F2%08X</Etag>"
    "<Content-Length>%d</Content-Length><Content-Type>image/jpeg</Content-Type><Content-Encoding />"
    "<Content-Language /><Content-CRC64 /><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5>"
    "<Cache-Control /><Content-Disposition /><BlobType>BlockBlob</BlobType>"
    "<AccessTier>Premium</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>"
    "<ServerEncrypted>true</ServerEncrypted></Properties><Metadata /><OrMetadata /></Blob>"
)


def image_names(blobs: int) -> Callable[[int], str]:
    """`train/n00000042/n00000042_00001234.JPEG`: ImageNet's names, of 1,000 classes, in order."""
    each = max(1, -(-blobs // CLASSES))

    def name(number: int) -> str:
        kind, of_kind = divmod(number, each)
        return f"train/n{kind:08}/n{kind:08}_{of_kind:08}.JPEG"

    return name


@dataclass(frozen=True)
class ListedZone:
    """The blobs of the server: their number, their names in order, and the size of a page."""

    blobs: int
    name: Callable[[int], str]
    """Returns the name of the blob with a number, from 0."""
    page_blobs: int = PAGE_BLOBS
    knows_start_from: bool = True
    """Whether startFrom has an effect; Azurite ignores it."""

    def answer(self, asked: Mapping[str, str]) -> str:
        """The body of the answer to one request's parameters."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        page_blobs = min(self.page_blobs, int(asked.get("maxresults", PAGE_BLOBS)))
        start = asked.get("startFrom", "") if self.knows_start_from else ""
        end = self._first_from(prefix + _LAST) if prefix else self.blobs
        index = max(self._first_from(max(prefix, start)), int(asked.get("marker", "0")))
        entries: list[str] = []
        while index < end and len(entries) < page_blobs:
            name = self.name(index)
            if delimiter and delimiter in name.removeprefix(prefix):
                common = prefix + name.removeprefix(prefix).partition(delimiter)[0] + delimiter
                entries.append(f"<BlobPrefix><Name>{escape(common)}</Name></BlobPrefix>")
                index = self._first_from(common + _LAST)
            else:
                entries.append(_BLOB % (escape(name), index, index % 100_000))
                index += 1
        marker = f"<NextMarker>{index}</NextMarker>" if index < end else "<NextMarker />"
        return (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="" '
            f'ContainerName=""><Prefix>{escape(prefix)}</Prefix>'
            f"<MaxResults>{page_blobs}</MaxResults><Blobs>{''.join(entries)}</Blobs>"
            f"{marker}</EnumerationResults>"
        )

    def _first_from(self, name: str) -> int:
        """Return the number of the first blob whose name is not less than `name`."""
        return bisect_left(range(self.blobs), name, key=self.name)


class ListBlobsServer(ThreadingHTTPServer):
    """Serves one zone under the account `/local` on a port of the system's choice."""

    daemon_threads = True

    def __init__(self, zone: ListedZone) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.zone = zone

    @cached_property
    def url(self) -> str:
        """The account's URL."""
        return f"http://127.0.0.1:{self.server_port}/local"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet

    def do_GET(self) -> None:
        """Answer one request."""
        assert isinstance(self.server, ListBlobsServer)
        asked = dict(parse_qsl(urlsplit(self.path).query))
        body = self.server.zone.answer(asked).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextlib.contextmanager
def serving(blobs: int) -> Generator[str]:
    """A server of so many images in a process of its own; gives the account's URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(blobs)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    asked_blobs = int(sys.argv[1])
    server = ListBlobsServer(ListedZone(asked_blobs, image_names(asked_blobs)))
    sys.stdout.write(json.dumps(server.url) + "\n")
    sys.stdout.flush()
    server.serve_forever()

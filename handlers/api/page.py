"""GET /api/ui/…: the operators' page and its files, as they lie in `page/`.

The page is static and holds no data. Its content security policy lets it load and call nothing but
its own origin, and run no script that stands in a document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from azure.functions import HttpResponse

from handlers.configuration.settings import APP_FOLDER

FOLDER = APP_FOLDER / "page"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def serve(name: str, if_none_match: str | None) -> HttpResponse:
    """A file of the page; the page itself where no name is given."""
    file = _files().get(name.strip("/") or INDEX)
    if file is None:
        return HttpResponse("there is no such file", status_code=404)
    headers = HEADERS | {"ETag": file.etag}
    if if_none_match == file.etag:
        return HttpResponse(status_code=304, headers=headers)
    return HttpResponse(file.content, headers=headers, mimetype=file.media_type)


@cache
def _files() -> dict[str, _File]:
    """Every file by its path in the folder; what has another ending is not served."""
    found: dict[str, _File] = {}
    for path in sorted(FOLDER.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is None or not path.is_file():
            continue
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[path.relative_to(FOLDER).as_posix()] = _File(content, media_type, etag)
    return found

"""GET /api/ui/…: the operators' page and the other static files of the folder `page/`.

The page contains no data. Its content security policy allows only requests to its own origin, and
no inline scripts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from azure.functions import HttpResponse

from handlers.platform.settings import APP_FOLDER

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
    """Return a file of the page, by default its HTML document."""
    file = _files().get(name.strip("/") or INDEX)
    if file is None:
        return HttpResponse("there is no such file", status_code=404)
    headers = HEADERS | {"ETag": file.etag}
    if if_none_match == file.etag:
        return HttpResponse(status_code=304, headers=headers)
    return HttpResponse(file.content, headers=headers, mimetype=file.media_type)


@cache
def _files() -> dict[str, _File]:
    """Relative path → file, for all files with a suffix in `MEDIA_TYPES`; others are not served."""
    files: dict[str, _File] = {}
    for path in sorted(FOLDER.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is None or not path.is_file():
            continue
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        files[path.relative_to(FOLDER).as_posix()] = _File(content, media_type, etag)
    return files

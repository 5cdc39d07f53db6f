"""The operators' page as the app serves it, with the API's documents that a test gives."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from handlers.operate.api import page


@dataclass
class PageServer:
    """Answers `documents`; while it `hangs`, the API answers nothing."""

    url: str
    documents: dict[str, BaseModel] = field(default_factory=dict[str, BaseModel])
    """Path → document; other paths are not known."""
    problems: dict[str, tuple[int, dict[str, Any]]] = field(
        default_factory=dict[str, tuple[int, dict[str, Any]]]
    )
    """Path → status and problem document."""
    answers: threading.Event = field(default_factory=threading.Event)

    def hang(self) -> None:
        self.answers.clear()

    def go_on(self) -> None:
        self.answers.set()


@contextmanager
def page_server() -> Generator[PageServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.startswith("/api/ui"):
                file = page.serve(path.removeprefix("/api/ui"), None)
                self._answer(file.status_code, file.mimetype, file.get_body(), dict(file.headers))
                return
            server.answers.wait(30)
            if path in server.problems:
                status, problem = server.problems[path]
                self._answer(status, "application/problem+json", json.dumps(problem).encode())
            elif path in server.documents:
                text = server.documents[path].model_dump_json().encode()
                etag = f'"{hashlib.sha256(text).hexdigest()}"'
                is_known = self.headers["If-None-Match"] == etag
                status, body = (304, b"") if is_known else (200, text)
                self._answer(status, "application/json", body, {"ETag": etag})
            else:
                detail = {"detail": f"there is nothing at {path}"}
                self._answer(404, "application/problem+json", json.dumps(detail).encode())

        def _answer(
            self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            fields = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
            for name, value in fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = PageServer(f"http://127.0.0.1:{http.server_port}")
        server.go_on()
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.go_on()
            http.shutdown()
            thread.join()

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from handlers.azure_ml.job_failures import LOG_LIMIT_LINES, diagnose_job
from orchestrations.contracts.jobs import DiagnoseJob
from tests.unit.handlers.azure_ml_fake import a_job, make_world

RUN = "digits-0123456789abcdef-1"


class _Log(BaseHTTPRequestHandler):
    text = b"".join(b"line %d\n" % number for number in range(10_000))

    def do_HEAD(self) -> None:
        self.send_response(200)
        self._blob_headers(len(self.text))

    def do_GET(self) -> None:
        first, last = self.headers["x-ms-range"].removeprefix("bytes=").split("-")
        part = self.text[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header(
            "Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(self.text)}"
        )
        self._blob_headers(len(part))
        self.wfile.write(part)

    def _blob_headers(self, length: int) -> None:
        self.send_header("Content-Length", str(length))
        self.send_header("x-ms-blob-type", "BlockBlob")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 09:30:00 GMT")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def log_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Log) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/container/user_logs/std_log.txt?sig=secret"
        server.shutdown()


def test_the_end_of_the_log_is_read_over_its_url(log_url: str) -> None:
    world = make_world()
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Failed")
    world.workspace.jobs.log_files = {"user_logs/std_log.txt": log_url}
    world.workspace.jobs.run_error = None
    diagnosis = diagnose_job(world.clients, DiagnoseJob(job=RUN))
    assert diagnosis.log == tuple(f"line {n}" for n in range(10_000 - LOG_LIMIT_LINES, 10_000))

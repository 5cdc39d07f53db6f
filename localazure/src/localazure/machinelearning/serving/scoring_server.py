"""Serves a scoring script over HTTP: the process of one instance of a deployment.

The command line, the routes and the script's contract are those of `azureml-inference-server-http`:
`init()` once, then `run(data)` with the body of each request as text; the response is its result as
JSON. The port opens after `init()` has returned. The server uses only the standard library, so
that a script can import only its own modules and those of the interpreter.

https://learn.microsoft.com/azure/machine-learning/how-to-inference-server-http
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Run = Callable[[str], Any]


def main() -> None:
    """Load the script, call `init()`, and serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entry_script", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    run = load(arguments.entry_script)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), handler(run))
    print(f"serving {arguments.entry_script.name}", flush=True)  # noqa: T201 - the deployment's log
    server.serve_forever()


def load(script: Path) -> Run:
    """Import a scoring script and call its `init()`.

    Raises:
        Exception: any exception of the script; AttributeError if it has no `init` or `run`.
    """
    sys.path.insert(0, str(script.parent))
    spec = importlib.util.spec_from_file_location("entry_module", script)
    assert spec is not None
    assert spec.loader is not None, f"{script} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.init()
    return module.run


class _OneClient(BaseHTTPRequestHandler):
    """Refuses all clients but localazure, which is no web page and names no other host."""

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        host = (self.headers.get("Host") or "").partition(":")[0]
        if host != "127.0.0.1" or "Origin" in self.headers or "Sec-Fetch-Site" in self.headers:
            self.send_error(HTTPStatus.FORBIDDEN, "no web page may call this")
            return False
        return True


def handler(run: Run) -> type[BaseHTTPRequestHandler]:
    """Create the request handler class for a script."""

    class Handler(_OneClient):
        protocol_version = "HTTP/1.1"
        # Headers and body are two writes: with Nagle's algorithm, the second could wait 40 ms.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/":
                self._answer(HTTPStatus.OK, b"Healthy", "text/plain")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"Not Found", "text/plain")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.partition("?")[0] != "/score":
                self._answer(HTTPStatus.NOT_FOUND, b"Not Found", "text/plain")
                return
            try:
                answer = json.dumps(run(body.decode())).encode()
            except Exception as error:  # noqa: BLE001 - the script's: logged, and answered
                traceback.print_exc()
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode(), "text/plain")
            else:
                self._answer(HTTPStatus.OK, answer, "application/json")

        def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            if self.path != "/":  # do not log health probes
                super().log_message(format, *args)

    return Handler


if __name__ == "__main__":
    main()

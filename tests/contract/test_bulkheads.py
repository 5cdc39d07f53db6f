"""Services are asked in the threads of their bulkheads, and not in those of the event loop."""

from __future__ import annotations

import re

import handlers
from handlers.operate.api.routes import ROUTES
from handlers.platform import bulkheads
from handlers.platform.bulkheads import Bulkhead
from handlers.platform.settings import APP_FOLDER

# https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook-trigger#limits
HOST_LIMIT_SECONDS = 230.0


def test_no_handler_uses_the_default_threads() -> None:
    (folder,) = handlers.__path__
    calls = re.compile(r"\b(to_thread|run_in_executor)\(")
    found = [
        str(file.relative_to(APP_FOLDER))
        for file in sorted((APP_FOLDER / folder).rglob("*.py"))
        if calls.search(file.read_text("utf-8"))
    ]
    assert found == []


def test_every_route_answers_before_the_host_gives_up() -> None:
    known = [each for each in vars(bulkheads).values() if isinstance(each, Bulkhead)]
    for route in ROUTES:
        assert route.service in known
        assert route.service.limit_seconds < HOST_LIMIT_SECONDS

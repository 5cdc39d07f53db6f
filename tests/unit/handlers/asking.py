"""Call the functions behind routes in the way of function_app."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from handlers.operate.api.endpoint import Request, answer
from handlers.operate.api.requests import PROBLEM_TYPE, Answer
from handlers.platform.bulkheads import STORAGE, Bulkhead
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline


async def ask(
    function: Callable[..., Any],
    clients: Clients,
    starter: Any = None,
    *pipelines: Pipeline,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    now: datetime | None = None,
    service: Bulkhead = STORAGE,
    **path: str,
) -> Answer:
    """Call a route's function and return its answer; `path` has the variables of the path."""
    request = Request(
        clients=clients,
        pipelines={each.name: each for each in pipelines},
        starter=starter,
        now=now or datetime.now(UTC),
        path=path,
        query=query or {},
        headers=headers or {},
        body=body,
    )
    return await answer(function, request, service=service)


def check_problem(answer: Answer, status: int, kind: str, *words: str) -> None:
    assert answer.media_type == PROBLEM_TYPE
    assert answer.status == answer.document["status"] == status
    assert answer.document["type"] == f"/problems/{kind}"
    assert answer.document["title"]
    for word in words:
        assert word in answer.document["detail"]
    response = answer.to_response()
    assert response.status_code == status
    assert json.loads(response.get_body()) == answer.document

from __future__ import annotations

import json

import pytest

from handlers.operate.api.actions import Asked
from handlers.operate.api.endpoint import interface
from handlers.operate.api.requests import LIMIT_BYTES, Answer, Problem, parse_body
from handlers.operate.api.routes import ROUTES

BODIES = {
    route.name: body for route in ROUTES if (body := interface(route.load()).body) is not None
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("bracket", [b"[", b'{"by":', b'{"by":[', b'{"changes":'])
def test_deeply_nested_json_is_the_callers_fault(name: str, bracket: bytes) -> None:
    body = BODIES[name]
    limit = body.LIMIT_BYTES if issubclass(body, Asked) else LIMIT_BYTES
    with pytest.raises(Problem) as caught:
        parse_body(body, bracket * (limit // len(bracket)), limit_bytes=limit)
    assert caught.value.status == 400
    with pytest.raises(Problem) as caught:
        parse_body(body, bracket * limit, limit_bytes=limit - 1)
    assert caught.value.status == 413


def test_an_answer_that_the_caller_has_is_304_without_a_body() -> None:
    answer = Answer(200, {"runs": []})
    first = answer.to_conditional_response(None)
    etag = first.headers["ETag"]
    assert json.loads(first.get_body()) == {"runs": []}
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        again = answer.to_conditional_response(known)
        assert (again.status_code, again.get_body(), again.headers["ETag"]) == (304, b"", etag)
    assert answer.to_conditional_response('"other"').status_code == 200
    assert Answer(200, {"runs": [1]}).to_conditional_response(etag).status_code == 200


def test_a_problem_has_no_etag() -> None:
    response = Problem(404, "unknown-run", "none").to_answer().to_conditional_response(None)
    assert (response.status_code, response.headers.get("ETag")) == (404, None)

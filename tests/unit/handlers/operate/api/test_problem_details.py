from __future__ import annotations

import json

from handlers.operate.api.problem_details import Answer, Problem


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

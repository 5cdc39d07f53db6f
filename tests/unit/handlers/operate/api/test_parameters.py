from __future__ import annotations

import pytest

from handlers.operate.api.actions import Asked
from handlers.operate.api.endpoint import interface
from handlers.operate.api.parameters import LIMIT_BYTES, parse_body
from handlers.operate.api.problem_details import Problem
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

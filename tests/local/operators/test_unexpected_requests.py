"""Requests generated from the OpenAPI document: every answer conforms to it, and none is a 5xx."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from handlers.operate.api.openapi import describe_api
from tests.local.operators.conftest import FUZZED, Laptop

if TYPE_CHECKING:
    from schemathesis import Case

# Few, because each answer takes tens of milliseconds.
EXAMPLES = 6
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Known:
    """Objects that exist when the first request is generated."""

    schema: Any
    """The OpenAPI document, parsed by schemathesis."""
    checks: Any
    """The checks that schemathesis makes on each answer."""
    run: str
    letter: dict[str, Any]
    """A dead letter that generated requests may redrive or discard."""
    letters: frozenset[int]
    """The ids of all dead letters."""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def known(laptop: Laptop) -> Known:
    # Not imported at the top: every worker collects this file, and the import takes a second.
    schemathesis: Any = pytest.importorskip(
        "schemathesis", reason="schemathesis is not installed: pip install schemathesis"
    )
    (letter, *_) = await laptop.dead_letters(1, FUZZED)
    _, runs, _ = await laptop.get("/api/runs?pipeline=batches")
    return Known(
        schema=schemathesis.openapi.from_dict(describe_api()),
        checks=schemathesis.checks.CHECKS.get_by_names(CHECKS),
        run=runs["runs"][0]["id"],
        letter=letter,
        letters=frozenset(each["id"] for each in await laptop.dead_letters(1)),
    )


CHANGE_A_PIPELINE = {"pause_pipeline", "resume_pipeline", "release"}
CHANGE_THE_CHAMPION = {"promote_model", "roll_back_model"}
OPERATIONS = sorted(
    operation["operationId"]
    for operations in describe_api()["paths"].values()
    for operation in operations.values()
)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_no_request_is_a_fault_and_every_answer_is_as_described(
    laptop: Laptop, known: Known, name: str
) -> None:
    ids = {
        "name": FUZZED if name in CHANGE_A_PIPELINE else "batches",
        "version": "2",
        "run": known.run,
        "letter": str(known.letter["id"]),
    }

    def spare(body: Any) -> Any:
        """Change a body so that it does not affect the dead letters of other tests."""
        given = body if isinstance(body, dict) else {}
        if name == "redrive":  # without a run, all dead letters would be redriven
            return given | {"run": known.letter["run"]}
        if isinstance(given.get("ids"), list):
            return given | {"ids": [each for each in given["ids"] if each not in known.letters]}
        return body

    operation = known.schema.find_operation_by_id(name)

    @given(case=operation.as_strategy(), is_known=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ],
    )
    def send(case: Case[Any], *, is_known: bool) -> None:
        if is_known:  # request existing objects
            case.path_parameters.update(
                {name: value for name, value in ids.items() if name in case.path_parameters}
            )
        body = spare(case.body)
        if body is not case.body:  # a request without a body has no media type, either
            case.body, case.media_type = body, "application/json"
        response = case.call(base_url=laptop.url, headers={"x-functions-key": laptop.key})
        case.validate_response(response, checks=known.checks)

    await asyncio.to_thread(send)
    if name in CHANGE_THE_CHAMPION:
        path = "/api/pipelines/batches/models/2/promote"
        assert (await laptop.post(path, by="ada", reason="as it was"))[0] == 200

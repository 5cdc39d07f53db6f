"""Requests that are drawn from the OpenAPI document: no answer is a fault, each is as described."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from handlers.api.openapi import describe_api
from tests.local.operators.conftest import Laptop

if TYPE_CHECKING:
    from schemathesis import Case

schemathesis: Any = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: pip install schemathesis"
)
# The laptop takes tens of milliseconds for an answer.
EXAMPLES = 12
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


def fuzz(operation: Any, url: str, key: str, known: dict[str, str]) -> None:
    """Send drawn requests to one operation; an answer that is not as described is an error.

    Every second one asks for what is there, by `known` parameters of the path.
    """
    checks = schemathesis.checks.CHECKS.get_by_names(CHECKS)

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
        if is_known:
            case.path_parameters.update(
                {name: value for name, value in known.items() if name in case.path_parameters}
            )
        response = case.call(base_url=url, headers={"x-functions-key": key})
        case.validate_response(response, checks=checks)

    send()


OPERATIONS = sorted(
    operation["operationId"]
    for operations in describe_api()["paths"].values()
    for operation in operations.values()
)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_no_request_is_a_fault_and_every_answer_is_as_described(
    laptop: Laptop, name: str
) -> None:
    schema = schemathesis.openapi.from_dict(describe_api())
    operation = schema.find_operation_by_id(name)
    _, listed, _ = await laptop.get("/api/runs?pipeline=batches")
    letters = (await laptop.get("/api/dead-letters"))[1]["dead_letters"]
    is_letter = "dead_letter" in name and letters
    known = {
        "name": "batches",
        "version": "2",
        "id": str(letters[0]["id"]) if is_letter else listed["runs"][0]["id"],
    }
    await asyncio.to_thread(fuzz, operation, laptop.url, laptop.key, known)

"""Requests that are drawn from the OpenAPI document: no answer is a fault, each is as described."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from handlers.api.openapi import describe_api
from tests.local.operators.conftest import FUZZED, Laptop

if TYPE_CHECKING:
    from schemathesis import Case

# The laptop takes tens of milliseconds for an answer.
EXAMPLES = 6
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


def fuzz(name: str, laptop: Laptop, known: dict[str, str], spare: Callable[[Any], Any]) -> None:
    """Send drawn requests to one operation; an answer that is not as described is an error.

    Every second one asks for what is there, by `known` parameters of the path.
    """
    # Not at the top: every worker collects this file, and the import takes a second.
    schemathesis: Any = pytest.importorskip(
        "schemathesis", reason="schemathesis is not installed: pip install schemathesis"
    )
    operation = schemathesis.openapi.from_dict(describe_api()).find_operation_by_id(name)
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
        body = spare(case.body)
        if body is not case.body:  # where none was drawn there is no media type, either
            case.body, case.media_type = body, "application/json"
        response = case.call(base_url=laptop.url, headers={"x-functions-key": laptop.key})
        case.validate_response(response, checks=checks)

    send()


CHANGE_A_PIPELINE = {"pause_pipeline", "resume_pipeline", "release"}
CHANGE_THE_CHAMPION = {"promote_model", "roll_back_model"}
OPERATIONS = sorted(
    operation["operationId"]
    for operations in describe_api()["paths"].values()
    for operation in operations.values()
)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_no_request_is_a_fault_and_every_answer_is_as_described(
    laptop: Laptop, name: str
) -> None:
    letters = await laptop.dead_letters(1, FUZZED)
    batches = (await laptop.get("/api/runs?pipeline=batches"))[1]["runs"]
    known = {
        "name": FUZZED if name in CHANGE_A_PIPELINE else "batches",
        "version": "2",
        "id": str(letters[0]["id"]) if "dead_letter" in name else batches[0]["id"],
    }
    _, every, _ = await laptop.get("/api/dead-letters")
    taken = {each["id"] for each in every["dead_letters"]}

    def spare(body: Any) -> Any:
        """The body, which leaves alone what other tests look at."""
        given = body if isinstance(body, dict) else {}
        if name == "redrive":  # without a run it is of every dead letter
            return given | {"run": letters[0]["run"]}
        if isinstance(given.get("ids"), list):
            return given | {"ids": [each for each in given["ids"] if each not in taken]}
        return body

    await asyncio.to_thread(fuzz, name, laptop, known, spare)
    if name in CHANGE_THE_CHAMPION:
        path = "/api/pipelines/batches/models/2/promote"
        assert (await laptop.post(path, by="ada", reason="as it was"))[0] == 200

"""An app of azure-functions-durable 2; `sdk` is that SDK, or the stand-in beside this file."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN001, ANN201 - the same

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.functions as func
import sdk as df
from durabletask import entities, task
from durabletask.client import TaskHubGrpcClient

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
SOON = timedelta(milliseconds=10)


@app.route("start/{name}", methods=["GET", "POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client) -> func.HttpResponse:
    given = json.loads(req.get_body() or "null")
    instance_id = await client.schedule_new_orchestration(req.route_params["name"], input=given)
    return client.create_check_status_response(req, instance_id)


@app.route("client/{operation}/{id}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def call_client(req: func.HttpRequest, client) -> func.HttpResponse:
    """Call a method of the client for an instance, with the arguments in the body."""
    method = getattr(client, req.route_params["operation"])
    answer = await method(req.route_params["id"], **req.get_json())
    return func.HttpResponse(json.dumps(answer, default=vars))


@app.route("entity/{key}", methods=["GET", "POST"])
@app.durable_client_input(client_name="client")
async def entity(req: func.HttpRequest, client) -> func.HttpResponse:
    """Add to a counter; the answer is its state before that."""
    counter = entities.EntityInstanceId("counter", req.route_params["key"])
    found = await client.get_entity(counter)
    if req.method == "POST":
        await client.signal_entity(counter, "add", input=req.get_json())
    return func.HttpResponse(json.dumps(found and json.loads(found.get_state())))


@app.route("blocking/{id}")
@app.durable_client_input(client_name="client")
async def block(req: func.HttpRequest, client) -> func.HttpResponse:
    """Call a synchronous client in a coroutine, as users of the SDK's scheduled tasks do."""
    with TaskHubGrpcClient(host_address=client.rpcBaseUrl) as blocking:
        state = blocking.get_orchestration_state(req.route_params["id"])
    return func.HttpResponse(json.dumps(state and state.name))


@app.orchestration_trigger(context_name="context")
def all_steps(ctx: task.OrchestrationContext, number: int):
    squares = yield task.when_all([ctx.call_activity("square", input=n) for n in range(number)])
    yield ctx.create_timer(SOON)
    child = yield ctx.call_sub_orchestrator("one_step", input=7)
    policy = task.RetryPolicy(first_retry_interval=SOON, max_number_of_attempts=3)
    tried = yield ctx.call_activity("fail_first", input=ctx.instance_id, retry_policy=policy)
    counter = entities.EntityInstanceId("counter", ctx.instance_id)
    with (yield ctx.lock_entities([counter])):
        yield ctx.call_entity(counter, "add", 2)
        total = yield ctx.call_entity(counter, "add", 3)
    ctx.set_custom_status("waits")
    event = yield ctx.wait_for_external_event("go")
    return [squares, child, tried, total, event]


@app.orchestration_trigger(context_name="context")
def one_step(ctx: task.OrchestrationContext, number: int):
    return (yield ctx.call_activity("square", input=number))


@app.orchestration_trigger(context_name="context")
def generations(ctx: task.OrchestrationContext, left: int):
    yield ctx.call_activity("square", input=left)
    if left:
        ctx.continue_as_new(left - 1)
        return None
    return "done"


@app.orchestration_trigger(context_name="context")
def failing(ctx: task.OrchestrationContext, _: object):
    return (yield ctx.call_activity("fail_first", input=ctx.instance_id))


@app.activity_trigger(input_name="number")
def square(number: int) -> int:
    return number * number


@app.activity_trigger(input_name="name")
def fail_first(name: str) -> str:
    called = Path(f"called-{name}")  # by any of several hosts
    if not called.exists():
        called.touch()
        raise ValueError("the first time")
    return "tried again"


@app.entity_trigger(context_name="context")
def counter(ctx: entities.EntityContext, amount: Any):
    total = ctx.get_state(int, 0) + (amount or 0)
    ctx.set_state(total)
    return total

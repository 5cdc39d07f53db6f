"""Functions for the scenarios that every SDK version must pass."""

# pyright: basic
# This app is written like a user's app, without strict types.
# ruff: noqa: ANN001, ANN201 - the same

import datetime as dt
import json

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
attempts = []


@app.route(route="hello", methods=["GET", "POST"])
def hello(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(f"hello, {req.params.get('name', 'world')}")


@app.route(route="start/{name}")
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client) -> func.HttpResponse:
    instance = await client.start_new(
        req.route_params["name"], client_input=json.loads(req.get_body() or b"null")
    )
    return client.create_check_status_response(req, instance)


@app.route(route="approve/{instance}")
@app.durable_client_input(client_name="client")
async def approve(req: func.HttpRequest, client) -> func.HttpResponse:
    await client.raise_event(req.route_params["instance"], "approval", {"by": "the boss"})
    return func.HttpResponse(status_code=202)


@app.activity_trigger(input_name="number")
def square(number: int) -> int:
    return number * number


@app.activity_trigger(input_name="job")
def stumble(job: str) -> str:
    attempts.append(job)
    if attempts.count(job) < 3:
        raise ValueError(f"attempt {attempts.count(job)}")
    return f"attempt {attempts.count(job)}"


@app.activity_trigger(input_name="text")
def fail(text: str) -> str:
    raise ValueError(text)


@app.entity_trigger(context_name="context")
def counter(context):
    total = context.get_state(lambda: 0)
    if context.operation_name == "add":
        total += context.get_input()
        context.set_state(total)
    context.set_result(total)


@app.orchestration_trigger(context_name="context")
def squares(context):
    numbers = context.get_input()
    return (yield context.task_all([context.call_activity("square", n) for n in numbers]))


@app.orchestration_trigger(context_name="context")
def retries(context):
    options = df.RetryOptions(first_retry_interval_in_milliseconds=1, max_number_of_attempts=3)
    return (yield context.call_activity_with_retry("stumble", options, context.instance_id))


@app.orchestration_trigger(context_name="context")
def failures(context):
    try:
        yield context.call_activity("fail", "on purpose")
    except Exception as error:  # noqa: BLE001 - what the SDK raises differs
        return "caught" if "on purpose" in str(error) else str(error)


@app.orchestration_trigger(context_name="context")
def children(context):
    tasks = [context.call_sub_orchestrator("squares", [n, n + 1]) for n in (1, 2)]
    return (yield context.task_all(tasks))


@app.orchestration_trigger(context_name="context")
def timers(context):
    due = context.current_utc_datetime + dt.timedelta(milliseconds=50)
    yield context.create_timer(due)
    late = context.create_timer(due + dt.timedelta(hours=1))
    work = context.call_activity("square", 3)
    winner = yield context.task_any([late, work])
    late.cancel()
    return [context.current_utc_datetime >= due, winner.result]


@app.orchestration_trigger(context_name="context")
def events(context):
    context.set_custom_status("waiting")
    approval = yield context.wait_for_external_event("approval")
    # With older SDKs, an event that a client raised arrives as JSON text, on Azure, too.
    return json.loads(approval) if isinstance(approval, str) else approval


@app.orchestration_trigger(context_name="context")
def entities(context):
    entity = df.EntityId("counter", context.instance_id)
    context.signal_entity(entity, "add", 2)
    return (yield context.call_entity(entity, "add", 40))


@app.orchestration_trigger(context_name="context")
def calls(context):
    response = yield context.call_http("GET", context.get_input())
    body = response["content"] if isinstance(response, dict) else response.content
    return body


@app.orchestration_trigger(context_name="context")
def again(context):
    left = context.get_input()
    if left:
        yield context.call_activity("square", left)
        context.continue_as_new(left - 1)
        return None
    return "done"

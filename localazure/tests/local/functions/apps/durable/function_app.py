"""Durable functions of every sort, and a client of them."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN201, ARG001, N802 - the same

import logging
import sys
import threading

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
released = threading.Event()


@app.route(route="start/{name}")
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    instance = await client.start_new(
        req.route_params["name"], client_input=req.params.get("input")
    )
    return client.create_check_status_response(req, instance)


@app.route(route="counter/{key}")
@app.durable_client_input(client_name="client")
async def signal(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    entity = df.EntityId("counter", req.route_params["key"])
    await client.signal_entity(entity, req.params.get("operation", "add"), 2)
    return func.HttpResponse(status_code=202)


@app.orchestration_trigger(context_name="context")
def greetings(context: df.DurableOrchestrationContext):
    logging.getLogger("app").info(
        "replaying=%s on %s", context.is_replaying, threading.current_thread().name
    )
    first = yield context.call_activity("greet", context.get_input())
    second = yield context.call_activity("Renamed", "async")
    return [first, second]


@app.orchestration_trigger(context_name="context")
def texting(context: df.DurableOrchestrationContext):
    return (yield context.call_activity("text", "you"))


@app.activity_trigger(input_name="to")
@app.generic_output_binding(arg_name="message", type="twilioSms")
def text(to: str, message: func.Out[str]) -> str:
    message.set(f"hello, {to}")
    return "Message sent!"


@app.orchestration_trigger(context_name="context")
def failing(context: df.DurableOrchestrationContext):
    yield context.call_activity("fail", "x")


@app.orchestration_trigger(context_name="context")
def stumbling(context: df.DurableOrchestrationContext):
    yield context.call_activity("greet", "x")
    try:
        {}["the reason"]
    except KeyError as error:
        raise RuntimeError("the outcome") from error


@app.orchestration_trigger(context_name="context")
def leaving(context: df.DurableOrchestrationContext):
    try:
        yield context.call_activity("leave", "x")
    except Exception as error:  # noqa: BLE001 - the SDK's own
        return str(error)


@app.activity_trigger(input_name="what")
def leave(what: str) -> str:
    sys.exit("enough")


@app.orchestration_trigger(context_name="context")
def crowded(context: df.DurableOrchestrationContext):
    yield context.task_all([context.call_activity("dawdle") for _ in range(3)])
    return "through"


@app.orchestration_trigger(context_name="context")
def echo(context: df.DurableOrchestrationContext):
    return context.get_input()
    yield


@app.activity_trigger(input_name="name")
def greet(name: str) -> str:
    logging.getLogger("app").info("greeting")
    return f"Hello, {name}!"


@app.activity_trigger(input_name="name", activity="Renamed")
async def greet_async(name: str) -> dict:
    return {"hello": name}


@app.activity_trigger(input_name="what")
def fail(what: str) -> str:
    raise ValueError(f"no {what}")


@app.orchestration_trigger(context_name="context")
def forgets_yield(context: df.DurableOrchestrationContext):
    yield context.call_activity("greet", "you")
    return context.call_activity("greet", "me")


@app.orchestration_trigger(context_name="context")
def gives_an_object(context: df.DurableOrchestrationContext):
    return (yield context.call_activity("greet", object()))


@app.orchestration_trigger(context_name="context")
def asks_for_a_set(context: df.DurableOrchestrationContext):
    return (yield context.call_activity("give_a_set", "x"))


@app.activity_trigger(input_name="what")
def give_a_set(what: str):
    return {what}


@app.activity_trigger(input_name="nothing")
def dawdle(nothing: str) -> None:
    if not released.wait(30):
        raise TimeoutError


@app.route(route="release")
async def release(req: func.HttpRequest) -> str:
    released.set()
    return "released"


@app.entity_trigger(context_name="context")
def Counter(context: df.DurableEntityContext) -> None:
    logging.getLogger("app").info("counting")
    total = context.get_state(lambda: 0)
    if context.operation_name == "break":
        raise ValueError("broken")
    if context.operation_name == "add":
        total += context.get_input()
    context.set_state(total)
    context.set_result(total)
